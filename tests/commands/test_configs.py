"""`odradek configs` at a broker of ours; compat_tests has the same at others."""

import pytest

import odradek
from tests.kit.terminal import Terminal


@pytest.fixture(scope="module")
def broker():
    options = {"num.partitions": "2", "log.retention.ms": "700000"}
    # Groups have this option of the broker as a default of their own.
    options["group.streams.initial.rebalance.delay.ms"] = None
    with odradek.Broker(options=options) as running:
        yield running


@pytest.fixture
def configs(odradek_command):
    return lambda *arguments: odradek_command("configs", *arguments)


@pytest.fixture
def topic(odradek_command, request):
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    assert odradek_command("topics", "create", name, "-p", "1").status == 0
    return f"topic:{name}"


def value(configs, resource, name):
    (row,) = configs("get", resource, name, "--output", "json").rows
    return row["value"], row["source"]


def test_the_difference_is_what_is_set_for_the_topic_or_below_it(configs, topic):
    configs("set", topic, "cleanup.policy=compact")
    rows = configs("diff", topic, "--output", "json").rows
    assert [(row["name"], row["value"], row["default"], row["source"]) for row in rows] == [
        ("cleanup.policy", "compact", "delete", "DYNAMIC_TOPIC_CONFIG"),
        ("min.insync.replicas", "1", "1", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("retention.ms", "700000", None, "STATIC_BROKER_CONFIG"),
    ]


def test_an_option_is_set_and_given_back(configs, topic):
    ended = configs("set", topic, "retention.ms=5000", "segment.bytes=1048576", "--output", "json")
    assert ended.rows == [
        {
            "resource": topic,
            "name": "retention.ms",
            "value_before": "700000",
            "value": "5000",
            "sensitive": False,
        },
        {
            "resource": topic,
            "name": "segment.bytes",
            "value_before": "1073741824",
            "value": "1048576",
            "sensitive": False,
        },
    ]
    assert value(configs, topic, "retention.ms") == ("5000", "DYNAMIC_TOPIC_CONFIG")
    (row,) = configs("unset", topic, "retention.ms", "--output", "json").rows
    assert (row["value_before"], row["value"]) == ("5000", "700000")
    assert value(configs, topic, "retention.ms") == ("700000", "STATIC_BROKER_CONFIG")


def test_a_dry_run_asks_the_broker_and_changes_nothing(configs, topic):
    (row,) = configs("set", topic, "retention.ms=5000", "--dry-run", "--output", "json").rows
    assert (row["value_before"], row["value"]) == ("700000", "5000")
    refused = configs("set", topic, "retention.ms=soon", "--dry-run")
    assert refused.status == 1
    assert refused.err.startswith(f"odradek: changing {topic} was refused: INVALID_CONFIG (")
    configs("set", topic, "retention.ms=6000")
    (row,) = configs("unset", topic, "retention.ms", "--dry-run", "--output", "json").rows
    assert (row["value_before"], row["value"]) == ("6000", "700000")
    assert value(configs, topic, "retention.ms") == ("6000", "DYNAMIC_TOPIC_CONFIG")


def test_a_list_is_extended_and_cut(configs, topic):
    (row,) = configs("set", topic, "cleanup.policy+=compact", "--output", "json").rows
    assert row["value"] == value(configs, topic, "cleanup.policy")[0] == "delete,compact"
    (row,) = configs("set", topic, "cleanup.policy-=delete", "--output", "json").rows
    assert row["value"] == value(configs, topic, "cleanup.policy")[0] == "compact"


def test_brokers_have_values_of_their_own_and_defaults_for_all(configs):
    assert configs("set", "broker", "log.cleaner.threads=2").status == 0
    assert value(configs, "broker:1", "log.cleaner.threads") == ("2", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert configs("set", "broker:1", "log.cleaner.threads=1").status == 0
    assert value(configs, "broker:1", "log.cleaner.threads") == ("1", "DYNAMIC_BROKER_CONFIG")
    (row,) = configs("unset", "broker:1", "log.cleaner.threads", "--output", "json").rows
    assert row["value"] == "2"
    assert configs("unset", "broker", "log.cleaner.threads").status == 0
    assert value(configs, "broker:1", "log.cleaner.threads")[1] == "DEFAULT_CONFIG"


@pytest.mark.parametrize(
    ("resource", "name", "given", "source"),
    [
        ("group:readers", "consumer.session.timeout.ms", "46000", "DYNAMIC_GROUP_CONFIG"),
        ("client-metrics:all", "interval.ms", "60000", "DYNAMIC_CLIENT_METRICS_CONFIG"),
    ],
)
def test_groups_and_metrics_of_clients_have_options(configs, resource, name, given, source):
    assert configs("set", resource, f"{name}={given}").status == 0
    assert value(configs, resource, name) == (given, source)
    assert [row["name"] for row in configs("diff", resource, "--output", "json").rows] == [name]
    assert configs("unset", resource, name).status == 0
    assert configs("diff", resource).out == "all is default (1 resource)\n"


@pytest.fixture
def logging_broker():
    """In a process of its own: the levels of this one belong to its program."""
    with odradek.Broker(process=True) as running:
        yield running


def test_a_logger_differs_from_the_root(run, logging_broker):
    def configs(*arguments):
        return run("configs", *arguments, "-b", logging_broker.bootstrap_servers)

    names = [row["name"] for row in configs("get", "broker-logger:1", "--output", "json").rows]
    name = next(one for one in names if one != "root")
    assert configs("set", "broker-logger:1", f"{name}=TRACE").status == 0
    try:
        rows = configs("diff", "broker-logger:1", "--output", "json").rows
        assert (name, "TRACE") in [(row["name"], row["value"]) for row in rows]
        assert len(rows) < len(names)
    finally:
        assert configs("unset", "broker-logger:1", name).status == 0
    assert configs("diff", "broker-logger:1", "--output", "json").rows == []


def test_a_secret_is_no_argument_and_is_not_shown(configs, tmp_path):
    name = "listener.name.tls.ssl.keystore.password"
    refused = configs("set", "broker:1", f"{name}=hidden")
    assert refused.status == 1
    assert refused.err == f"odradek: {name} is a secret, and no argument: give --secret {name}=FILE\n"
    file = tmp_path / "secret"
    file.write_text("hidden\n")
    ended = configs("set", "broker:1", "--secret", f"{name}={file}", "--output", "json")
    assert ended.status == 0, ended.err
    assert (ended.rows[0]["value"], ended.rows[0]["sensitive"]) == (None, True)
    for form in ("json", "table", "tsv"):
        ended = configs("diff", "broker:1", "--output", form)
        assert name in ended.out
        assert "hidden" not in ended.out
    assert configs("unset", "broker:1", name).status == 0


def test_topics_are_named_by_a_pattern(configs, odradek_command):
    odradek_command("topics", "create", "many.1", "many.2", "-p", "1")
    rows = configs("set", "topic:many.*", "retention.ms=1", "--output", "json").rows
    assert [row["resource"] for row in rows] == ["topic:many.1", "topic:many.2"]
    lines = configs("get", "topic:many.*", "retention.ms", "--output", "tsv").out.splitlines()
    assert lines == [
        "resource\tname\tvalue\tsource",
        "topic:many.1\tretention.ms\t1\tDYNAMIC_TOPIC_CONFIG",
        "topic:many.2\tretention.ms\t1\tDYNAMIC_TOPIC_CONFIG",
    ]


def test_what_can_be_done_is_done_when_a_part_is_refused(configs, topic):
    ended = configs("diff", "broker:7", "topic:nowhere", topic, "--output", "json", "--timeout", "0.2")
    assert ended.status == 1
    missing, refused = ended.err.splitlines()
    assert missing == "odradek: topic nowhere does not exist"
    assert "DescribeConfigs at broker 7 failed for 0.2 s" in refused
    assert {row["resource"] for row in ended.rows} == {topic}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["get", "orders"], "'orders' is not a resource: write topic:NAME, broker:ID, broker, "),
        (["get", "topic:"], "'topic:' is not a resource"),
        (["get", "broker:one"], "broker:one is not a broker: it is the number of one"),
        (["get", "broker:9", "--timeout", "0.2"], "DescribeConfigs at broker 9 failed for 0.2 s"),
        (["get", "broker:1", "no.such"], "broker:1 has no option no.such"),
        (["diff", "topic:none"], "topic none does not exist"),
        (["diff", "topic:none.*"], "no topic matches none.*"),
        (["set", "broker", "x"], "x is not NAME=VALUE"),
        (["set", "broker", "=x"], "=x is not NAME=VALUE"),
        (["set", "broker"], "there is nothing to set: give NAME=VALUE"),
        (["set", "broker", "--secret", "x"], "--secret x is not NAME=FILE"),
        (
            ["set", "broker", "--secret", "x=/nowhere/y"],
            "the file of --secret x cannot be read: No such file",
        ),
        (["unset", "group:g", "no.such"], "group:g has no option no.such"),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(configs, arguments, sentence):
    ended = configs(*arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1


def test_names_of_options_are_whole_in_a_narrow_terminal(run, broker):
    names = ["follower.replication.throttled.replicas", "message.timestamp.after.max.ms"]
    run("topics", "create", "big", "-c", f"{names[0]}=0:1,1:1", "-b", broker.bootstrap_servers)
    with Terminal("configs", "get", "topic:big", "-b", broker.bootstrap_servers) as terminal:
        lines = terminal.ended()[0].splitlines()
    assert max(map(len, lines)) <= 80
    shown = {line.split()[0]: line.split()[-1] for line in lines}
    assert set(names) <= set(shown)
    assert not [name for name in shown if "…" in name]
    assert shown[names[0]] == "topic"
