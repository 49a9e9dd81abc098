"""Where the configuration comes from, what rules over what, and what is refused in which words."""

import dataclasses
import os
import pathlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker_config import (
    STANDARD_AUTHORIZER,
    ConfigError,
    Listener,
    cordoned_directories,
    load,
    option_of_variable,
)
from odradek.config.option import BOOLEAN, DOUBLE, INT, INT_MAX, LONG, LONG_MAX, SHORT, WITH_METADATA
from odradek.config.options import (
    ACCEPTED,
    AT_CONTROLLER,
    BROKER_OPTIONS,
    GROUP_OPTIONS,
    HONOURED,
    IN_CLUSTER,
    OF_CLUSTER,
    REFUSED,
    TOPIC_OPTIONS,
    own_group_value,
)
from odradek.config.page import page
from odradek.config.properties import format_properties, parse_properties
from odradek.coordinator.groups.settings import GroupSettings
from odradek.storage.config import LogConfig
from tests.config.config_sources import CONTAINER, KAFKAS_OWN, from_text
from tests.kit.collecting import collected


def refusal(**given):
    with pytest.raises(ConfigError) as caught:
        load(**given)
    message = str(caught.value)
    assert message.endswith((".", "?"))
    assert "\n" not in message
    return message


# --- Sources ---


def test_nothing_given_is_a_single_node_on_localhost():
    config = load()
    assert config.node_id == 1
    assert config.listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.advertised == {}
    assert config.data_directories == ("./data",)
    assert config.values["offsets.topic.replication.factor"] == 1
    assert config.values["num.partitions"] == 1
    assert config.warnings == config.without_effect == ()


def test_the_file_that_kafka_ships_is_taken_unchanged(tmp_path):
    config = from_text(tmp_path, KAFKAS_OWN)
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.controller_listeners == (Listener("CONTROLLER", "", 9093),)
    assert config.advertised == {
        "PLAINTEXT": Listener("PLAINTEXT", "localhost", 9092),
        "CONTROLLER": Listener("CONTROLLER", "localhost", 9093),
    }
    assert config.data_directories == ("/tmp/kraft-combined-logs",)
    assert config.warnings == ()
    assert "process.roles" not in config.without_effect
    assert "num.io.threads" in config.without_effect
    assert "log.retention.hours" not in config.without_effect


def test_the_variables_of_kafkas_container_are_taken_unchanged():
    config = load(environ=CONTAINER)
    assert config.listeners == (Listener("PLAINTEXT_HOST", "", 9092), Listener("PLAINTEXT", "", 19092))
    assert config.advertised == {
        "PLAINTEXT_HOST": Listener("PLAINTEXT_HOST", "localhost", 9092),
        "PLAINTEXT": Listener("PLAINTEXT", "broker", 19092),
    }
    assert (config.cluster_id, config.inter_broker_listener) == (CONTAINER["CLUSTER_ID"], "PLAINTEXT")
    assert config.data_directories == ("/tmp/kraft-combined-logs",)
    assert config.values["group.initial.rebalance.delay.ms"] == 0
    assert config.warnings == ()


def test_a_container_that_is_told_only_its_advertised_address_listens_on_its_port():
    config = load(environ={"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker.example:19092"})
    assert config.listeners == (Listener("PLAINTEXT", "0.0.0.0", 19092),)
    assert config.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "broker.example", 19092)}
    # Listeners that are given, wherever that is, are the ones.
    config = load(
        environ={"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker.example:19092"},
        sets=["listeners=PLAINTEXT://127.0.0.1:9999"],
    )
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9999),)


def test_each_source_rules_over_the_one_before(tmp_path):
    text = "num.partitions=2"
    environ = {"KAFKA_NUM_PARTITIONS": "3"}
    assert from_text(tmp_path, text).values["num.partitions"] == 2
    assert from_text(tmp_path, text, environ=environ).values["num.partitions"] == 3
    config = from_text(tmp_path, text, environ=environ, sets=["num.partitions=4"])
    assert config.values["num.partitions"] == 4
    keywords = {"num_partitions": 5}
    config = from_text(tmp_path, text, environ=environ, sets=["num.partitions=4"], keywords=keywords)
    assert config.values["num.partitions"] == 5
    assert config.layers.start["num.partitions"] == "5"


@pytest.mark.parametrize(
    ("variable", "option"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B___C_D", "a_b-c.d"),
        ("KAFKA_KAFKA_METRICS_REPORTERS", "kafka.metrics.reporters"),
    ],
)
def test_variables_name_options_as_in_kafkas_image(variable, option):
    assert option_of_variable(variable) == option


def test_variables_of_kafkas_scripts_are_no_options():
    config = load(
        environ={"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_JMX_PORT": "99", "PATH": "/bin", "CLUSTER_ID": "abc"}
    )
    assert config.warnings == ()
    assert config.cluster_id == "abc"


def test_keywords_take_python_values():
    config = load(
        keywords={
            "auto_create_topics_enable": False,
            "log_dirs": ["/a", "/b"],
            "log_retention_ms": 5,
            "broker_rack": None,
        }
    )
    assert config.values["auto.create.topics.enable"] is False
    assert config.data_directories == ("/a", "/b")
    assert config.topic_defaults["retention.ms"] == 5
    assert config.values["broker.rack"] is None


def test_the_data_directory_of_the_command_line_rules_over_the_file(tmp_path):
    config = from_text(tmp_path, "log.dirs=/one,/two", data_dir=tmp_path / "three")
    assert config.data_directories == (str(tmp_path / "three"),)


def test_a_reference_to_a_provider_of_settings_stays_text():
    """CVE-2024-31141: Kafka's providers read files and variables for whoever may change a setting."""
    text = "${file:/etc/passwd:root} ${env:HOME}"
    assert load(sets=[f"broker.rack={text}"]).values["broker.rack"] == text


def test_log_dirs_rules_over_log_dir():
    assert load(sets=["log.dir=/one"]).data_directories == ("/one",)
    assert load(sets=["log.dir=/one", "log.dirs=/two"]).data_directories == ("/two",)


# --- Names ---


def test_an_unknown_name_in_a_file_is_a_warning_with_the_nearest_name(tmp_path):
    (warning,) = from_text(tmp_path, "log.retention.hour=3").warnings
    assert "'log.retention.hour'" in warning
    assert "Did you mean log.retention.hours?" in warning
    (warning,) = load(environ={"KAFKA_NUM_PARTITION": "3"}).warnings
    assert "KAFKA_NUM_PARTITION" in warning
    assert "num.partitions" in warning


def test_an_unknown_name_on_the_command_line_or_as_a_keyword_is_refused():
    assert "Did you mean num.partitions?" in refusal(sets=["num.partition=3"])
    assert "Did you mean num.partitions?" in refusal(keywords={"num_partition": 3})
    assert "NAME=VALUE" in refusal(sets=["num.partitions"])


def test_what_is_not_built_yet_is_refused_unless_it_is_the_default():
    config = load(sets=["transaction.two.phase.commit.enable=false"])
    assert not config.values["transaction.two.phase.commit.enable"]
    message = refusal(sets=["transaction.two.phase.commit.enable=true"])
    assert "transaction.two.phase.commit.enable" in message
    assert "not built yet" in message
    assert "--set" in message
    of_a_listener = "listener.name.x.principal.builder.class=org.example.Principals"
    assert of_a_listener.partition("=")[0] in refusal(sets=[of_a_listener])


@pytest.mark.parametrize(
    ("cordoned", "found"),
    [
        ("", set()),
        ("two", {"two"}),
        (" two , one", {"one", "two"}),
        ("*", {"one", "two", "three"}),
        (os.path.abspath("three"), {"three"}),
    ],
)
def test_cordoned_directories_are_named_as_log_dirs_or_the_broker_names_them(cordoned, found):
    config = load(sets=["log.dirs=one,two,three", f"cordoned.log.dirs={cordoned}"])
    assert cordoned_directories(config.values) == found


def test_what_nothing_reads_is_taken_and_named():
    texts = {
        "ssl.keystore.location": "/no/such/file",
        "listener.name.plaintext.ssl.keystore.location": "/no/such/file",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": "secret",
        "sasl.kerberos.min.time.before.relogin": "58000",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "share.coordinator.threads": "3",
        "remote.log.reader.threads": "3",
        "alter.log.dirs.replication.quota.window.num": "5",
    }
    config = load(sets=[f"{name}={text}" for name, text in texts.items()])
    assert config.without_effect == tuple(texts)
    assert config.warnings == ()
    assert "replica.selector.class" in refusal(sets=["replica.selector.class=org.example.Nearest"])


@pytest.mark.parametrize("name", ["unstable.api.versions.enable", "unstable.feature.versions.enable"])
def test_what_is_not_final_is_refused_at_the_start(name):
    assert (
        refusal(sets=[f"{name}=true"])
        == f"{name} is known but not built yet: leave it at false (given by --set)."
    )
    assert load(sets=[f"{name}=false"]).without_effect == ()


def other_value(option):
    """A value that is not its default."""
    default = option.default_value
    if option.name == "controller.quorum.voters":
        return "1@localhost:9093"
    if option.choices:
        return next(one for one in option.choices if default not in (one, (one,)))
    if option.kind == BOOLEAN:
        return "false" if default else "true"
    if option.kind == DOUBLE:
        return "0.25"
    if option.kind in (INT, SHORT, LONG):
        low = 0 if option.low is None else int(option.low)
        # What is between a least and a most stays there.
        goes_down = ".min." in option.name or default in (INT_MAX, LONG_MAX)
        near = [low] if default is None else [default - 1, default + 1][:: 1 if goes_down else -1]
        return str(next(one for one in near if one >= low and (option.high is None or one <= option.high)))
    return "other"


def test_a_start_takes_and_names_what_has_no_effect_and_refuses_what_would_promise_something():
    with collected() as failures:
        for option in BROKER_OPTIONS.values():
            if option.standing not in (HONOURED, WITH_METADATA):
                with failures.of(option.name):
                    check_that_it_is_named_or_refused(option)


def check_that_it_is_named_or_refused(option):
    text = f"{option.name}={other_value(option)}"
    if option.standing == REFUSED:
        assert option.name in refusal(sets=[text])
    elif option.name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        roles = "process.roles=broker,controller"
        assert load(sets=[roles, text]).without_effect == ("process.roles", option.name)
    else:
        assert load(sets=[text]).without_effect == (option.name,)


def test_super_users_are_separated_by_semicolons_and_names_may_have_commas():
    users = "User:CN=a, O=b ; User:c;;"
    config = load(sets=[f"super.users={users}", f"authorizer.class.name={STANDARD_AUTHORIZER}"])
    assert config.super_users == {"User:CN=a, O=b", "User:c"}
    assert config.warnings == ()
    assert load().super_users == frozenset()


@pytest.mark.parametrize("text", ["super.users=User:a", "allow.everyone.if.no.acl.found=true"])
def test_options_of_an_authorizer_without_one_are_named(text):
    (warning,) = load(sets=[text]).warnings
    assert "have no effect without authorizer.class.name" in warning


def test_a_setting_of_a_listener_that_nobody_knows_stops_the_start():
    assert "listener.name.x.ssl.key" in refusal(sets=["listener.name.x.ssl.key=1"])
    assert "listener.name.x.ssl.key" in refusal(environ={"KAFKA_LISTENER_NAME_X_SSL_KEY": "1"})
    assert "max.connections must be" in refusal(sets=["listener.name.x.max.connections=-1"])
    assert "listener 'x'" in refusal(sets=["listener.name.x.max.connections=1"])


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["log.dirs=one,two", "cordoned.log.dirs=three,one"], "cordoned.log.dirs has three,"),
        (["log.dirs=one,two", "cordoned.log.dirs=one/"], "cordoned.log.dirs has one/,"),
        (["log.dirs=one,two", "cordoned.log.dirs=*,one"], "means all directories"),
        (["log.roll.ms=0"], "log.roll.ms must be at least 1"),
        (["log.roll.jitter.ms=-1"], "log.roll.jitter.ms must be at least 0"),
        (["max.connections.per.ip=0"], "refuses all clients"),
        (["log.cleaner.dedupe.buffer.size=2097152", "log.cleaner.threads=2"], "more than 1 MiB"),
        (["group.share.assignment.interval.ms=15001"], "above group.share.max.assignment.interval.ms"),
    ],
)
def test_bounds_that_kafka_has_beside_those_of_its_definitions_are_ours(sets, words):
    assert words in refusal(sets=sets)


def test_a_bad_value_is_refused_with_its_name_and_its_place(tmp_path):
    with pytest.raises(
        ConfigError, match=r"num\.partitions must be at least 1, not 0 \(given by .*properties\)\."
    ):
        from_text(tmp_path, "num.partitions=0")
    assert "KAFKA_NUM_PARTITIONS" in refusal(environ={"KAFKA_NUM_PARTITIONS": "many"})
    # Even where the value has no effect.
    assert "num.io.threads" in refusal(sets=["num.io.threads=x"])


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    assert "nowhere" in refusal(path=tmp_path / "nowhere")
    broken = tmp_path / "broken.properties"
    broken.write_text("a=\\u12")
    assert "broken.properties" in refusal(path=broken)


# --- Listeners ---


def test_named_listeners_have_an_address_each():
    config = load(
        sets=[
            "listeners=inside://[::1]:0, OUTSIDE://0.0.0.0:9094",
            "listener.security.protocol.map=INSIDE:plaintext,OUTSIDE:PLAINTEXT",
            "advertised.listeners=OUTSIDE://broker.example:19094",
            "inter.broker.listener.name=inside",
        ]
    )
    assert config.listeners == (Listener("INSIDE", "::1", 0), Listener("OUTSIDE", "0.0.0.0", 9094))
    assert config.advertised == {"OUTSIDE": Listener("OUTSIDE", "broker.example", 19094)}
    assert config.inter_broker_listener == "INSIDE"


def test_the_short_forms_replace_what_a_file_says_of_its_listeners(tmp_path):
    config = from_text(tmp_path, KAFKAS_OWN, listen="127.0.0.1:0", advertise="broker.example:29092")
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 0),)
    assert config.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "broker.example", 29092)}
    config = from_text(tmp_path, KAFKAS_OWN, advertise="[::1]:29092")
    assert config.advertised["PLAINTEXT"].host == "::1"
    assert load(listen=":9092").listeners[0].host == ""


def test_what_is_set_beside_the_short_form_goes_with_it():
    config = load(listen="127.0.0.1:9095", sets=["advertised.listeners=PLAINTEXT://broker.example:9095"])
    assert config.advertised["PLAINTEXT"] == Listener("PLAINTEXT", "broker.example", 9095)


def test_a_controller_listener_needs_no_entry_in_the_default_map():
    config = load(
        sets=["listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names=CONTROLLER"],
    )
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT"]


@pytest.mark.parametrize("host", ["localhost", "broker.example", "a_b-c", "256.1.1.1.1", "x127.0.0.1"])
def test_a_host_that_is_written_as_a_name_is_told_as_it_is_written(host):
    assert load(sets=[f"listeners=PLAINTEXT://{host}:1"]).advertised == {
        "PLAINTEXT": Listener("PLAINTEXT", host, 1)
    }
    other = load(sets=[f"listeners=PLAINTEXT://{host}:1", "advertised.listeners=PLAINTEXT://other:2"])
    assert other.advertised == {"PLAINTEXT": Listener("PLAINTEXT", "other", 2)}


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("", ""),
        ("0.0.0.0", "0.0.0.0"),
        ("[::]", "::"),
        ("::", "::"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_an_address_in_listeners_and_every_interface_are_no_names_to_tell(written, host):
    config = load(sets=[f"listeners=PLAINTEXT://{written}:9094"])
    assert config.listeners == (Listener("PLAINTEXT", host, 9094),)
    assert config.advertised == {}


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["listeners=PLAINTEXT://localhost"], "NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://a:b:1"], "NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://::1"], "NAME://HOST:PORT"),
        (["listeners=SSL://0.0.0.0:1,PLAINTEXT://[::]:1"], "port 1 twice"),
        (["listeners=SSL://0.0.0.0:1,PLAINTEXT://[::1]:1"], "port 1 twice"),
        (["listeners=PLAINTEXT://localhost:65536"], "NAME://HOST:PORT"),
        (["listeners=localhost:9092"], "NAME://HOST:PORT"),
        (["listeners="], "none for clients"),
        (["listeners=SASL_SSL://:9092"], "offers GSSAPI, the default of sasl.enabled.mechanisms"),
        (["listeners=SASL_PLAINTEXT://:9092"], "offers GSSAPI, the default of sasl.enabled.mechanisms"),
        (["listeners=INSIDE://:9092"], "add INSIDE:PLAINTEXT to listener.security.protocol.map"),
        (["listeners=PLAINTEXT://:1,PLAINTEXT://:2"], "PLAINTEXT twice"),
        (["listeners=SSL://a:1,PLAINTEXT://b:1"], "port 1 twice"),
        (["listeners=CONTROLLER://:1", "controller.listener.names=CONTROLLER"], "none for clients"),
        (["listener.security.protocol.map=PLAINTEXT:TLS"], "NAME:PROTOCOL"),
        (["listener.security.protocol.map=PLAINTEXT:SSL,plaintext:PLAINTEXT"], "two protocols"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "clients cannot connect"),
        (["advertised.listeners=SSL://h:1"], "which is not in listeners"),
        (["advertised.listeners=PLAINTEXT://h:1,PLAINTEXT://i:2"], "PLAINTEXT twice"),
        (["inter.broker.listener.name=OTHER"], "is not in listeners"),
        (["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"], "only one"),
        (["node.id=2", "broker.id=3"], "differ"),
        (["log.dirs=", "log.dir="], "has no directory"),
        (["offsets.topic.replication.factor=3"], "set it to 1"),
        (["offsets.topic.segment.bytes=1000"], "give 1048576 or more"),
        (["group.min.session.timeout.ms=9", "group.max.session.timeout.ms=8"], "above group.max.session"),
        (["group.consumer.session.timeout.ms=9"], "above group.consumer.session.timeout.ms=9"),
        (["group.consumer.session.timeout.ms=60001"], "above group.consumer.max.session.timeout.ms=60000"),
        (["group.consumer.min.assignment.interval.ms=1001"], "above group.consumer.assignment.interval.ms"),
        (
            ["group.streams.min.session.timeout.ms=9", "group.streams.session.timeout.ms=5000"],
            "not below group.streams.session.timeout.ms=5000",
        ),
        (["group.streams.num.standby.replicas=3"], "above group.streams.max.standby.replicas=2"),
        (["group.share.assignors="], "must name one assignor: simple"),
        (["group.share.assignors=com.example.Mine"], "must be of simple"),
        (
            ["group.streams.topology.description.plugin.class=com.example.Mine"],
            "must be of org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin, "
            "odradek.FileTopologyDescriptionPlugin, not 'com.example.Mine'",
        ),
        (["group.share.max.share.sessions=199"], "group.share.max.size=200 is above group.share.max.share"),
        (["group.share.delivery.count.limit=6", "group.share.max.delivery.count.limit=5"], "is above"),
        (["group.share.record.lock.duration.ms=14999"], "min.record.lock.duration.ms=15000 is above"),
        (["group.share.partition.max.record.locks=4001"], "is above group.share.max.partition.max.record"),
        (["group.consumer.assignors="], "must name an assignor"),
        (["group.consumer.assignors=com.example.Mine"], "must be of uniform, range"),
        (["group.consumer.migration.policy=both"], "must be of disabled, downgrade, upgrade, bidirectional"),
        (["group.coordinator.rebalance.protocols=consumer"], "must have classic"),
        (["log.retention.ms=0"], "log.retention.ms"),
        (["authorizer.class.name=com.example.Mine"], "use org.apache.kafka.metadata.authorizer.Standard"),
        (["super.users=User:a;admin"], "without a type: write User:admin"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(sets, words):
    assert words in refusal(sets=sets)


def test_the_listener_among_brokers_is_none_of_controllers_and_is_named_once():
    controllers = ["controller.listener.names=CTL", "listeners=PLAINTEXT://:1,CTL://:2"]
    protocols = "listener.security.protocol.map=CTL:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    words = refusal(sets=[*controllers, protocols, "inter.broker.listener.name=CTL"])
    assert "is a listener of controllers" in words
    words = refusal(sets=["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"])
    assert "exclude each other" in words


@pytest.mark.parametrize(
    ("at_least", "at_most", "counts"), [(6_000, None, 6_000), (1, 4_000, 4_000), (1, None, 5_000)]
)
def test_where_bounds_have_changed_the_nearest_value_counts_of_a_group(at_least, at_most, counts):
    option = GROUP_OPTIONS["consumer.session.timeout.ms"]
    assert own_group_value(option, "5000", at_least, at_most) == counts


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port():
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    assert len(load(sets=["listeners=A://127.0.0.1:9092,B://[::1]:9092", protocols]).listeners) == 2


@pytest.mark.parametrize("address", ["9092", "localhost", "host:70000", "http://host:1", "::1:9092"])
def test_a_short_form_that_is_no_address_is_refused(address):
    assert "HOST:PORT" in refusal(listen=address)
    assert "--advertise" in refusal(advertise=address)


def test_advertise_with_several_listeners_is_refused():
    sets = [
        "listeners=PLAINTEXT://:1,B://:2",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    ]
    assert "there are several" in refusal(sets=sets, advertise="h:1")


def test_the_older_name_of_the_node_id_counts():
    assert load(sets=["broker.id=7"]).node_id == 7
    assert load(sets=["node.id=7", "broker.id=7"]).node_id == 7
    assert load(sets=["node.id=0"]).node_id == 0


def test_every_option_can_be_given_its_default():
    with collected() as failures:
        for option in BROKER_OPTIONS.values():
            with failures.of(option.name):
                check_that_its_default_can_be_given(option)


def check_that_its_default_can_be_given(option):
    if option.default_text is None or option.name == "security.inter.broker.protocol":
        return
    config = load(sets=[f"{option.name}={option.default_text}"])
    assert config.values[option.name] == option.default_value
    without_effect = option.standing in (ACCEPTED, AT_CONTROLLER, IN_CLUSTER, OF_CLUSTER)
    # Nothing reads settings of TLS and SASL without a listener that has it.
    without_effect |= option.name.startswith(("ssl.", "sasl.")) or option.name == "connections.max.reauth.ms"
    # Nor is there a ZooKeeper.
    without_effect |= option.name.startswith("zookeeper.") and option.name != "zookeeper.connect"
    assert config.without_effect == ((option.name,) if without_effect else ())
    if option.standing == REFUSED:
        assert config.warnings == ()


# --- The syntax of the file ---


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a:b\nc d\n e \t= f ", {"a": "b", "c": "d", "e": "f "}),
        ("a==b\nc:=d", {"a": "=b", "c": "=d"}),
        ("# a=b\n  ! c=d\n\n \t\n", {}),
        ("a=b#c", {"a": "b#c"}),
        ("a=b\\\n   c\\\r\n\td", {"a": "bcd"}),
        ("a=b\\\n# no comment", {"a": "b# no comment"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("# x\\\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u00e9\\ud83d\\ude00", {"a": "\u00e9\U0001f600"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\ra=2", {"a": "2"}),
        ("a=b\\", {"a": "b"}),
        ("\\\n\n", {}),
        ("a=\xe9", {"a": "\xe9"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, properties):
    assert parse_properties(text.encode("latin-1")) == properties


@given(st.binary(max_size=80))
def test_any_file_is_read_or_refused(data):
    refusals = []
    try:
        parse_properties(data)
    except ValueError as error:
        refusals.append(str(error))
    assert all("\\u" in refusal for refusal in refusals)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=4))
def test_escaped_text_comes_back(properties):
    def escape(text):
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in properties.items())
    assert parse_properties(text.encode("latin-1")) == properties


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=4))
def test_what_is_written_reads_the_same_in_ascii(properties):
    assert parse_properties(format_properties(properties).encode("ascii")) == properties


# --- The page and the price ---


def test_the_reference_page_is_what_the_declarations_say():
    path = pathlib.Path(__file__).parents[2] / "docs" / "configuration.md"
    assert path.read_text() == page(), "run: python -m odradek.config.page > docs/configuration.md"


def test_an_honoured_broker_option_is_read_somewhere():
    # An option that is taken and then ignored is the worst of all; topic options come by way of LogConfig.
    root = pathlib.Path(__file__).parents[2]
    names = (
        "broker_config.py",
        "broker_security.py",
        "cluster_config.py",
        "kerberos.py",
        "kerberos_names.py",
        "listener_security.py",
        "listeners.py",
        "live.py",
        "logins.py",
        "oauthbearer.py",
        "roles.py",
        "zookeeper.py",
    )
    paths = [root / "config" / name for name in names]
    paths += [path for folder in ("server", "apis", "security") for path in (root / folder).rglob("*.py")]
    source = "".join(path.read_text() for path in paths)
    of_topics = {synonym for option in TOPIC_OPTIONS.values() for synonym in option.synonyms}
    of_groups = {field.name.replace("_", ".") for field in dataclasses.fields(GroupSettings)}
    # Controllers decide about elections.
    elsewhere = {"unclean.leader.election.enable"}
    unread = [
        option.name
        for option in BROKER_OPTIONS.values()
        if option.standing in (HONOURED, IN_CLUSTER)
        and option.name not in of_topics | of_groups | elsewhere
        and f'"{option.name}"' not in source
    ]
    assert unread == [], "read it, or give it another standing in config/option_list.py"


def test_an_honoured_topic_option_reaches_the_log():
    known = {field.name.replace("_", ".") for field in dataclasses.fields(LogConfig)}
    honoured = {option.name for option in TOPIC_OPTIONS.values() if option.standing == HONOURED}
    # One takes the place of segment.bytes before a log hears of it, the other is for share groups.
    assert honoured - {"internal.segment.bytes", "errors.deadletterqueue.group.enable"} <= known


def test_the_topic_defaults_of_the_broker_are_those_of_the_log():
    assert LogConfig.from_mapping(load().topic_defaults) == LogConfig()


def test_loading_costs_a_few_milliseconds_of_start():
    times = []
    for _ in range(5):
        start = time.perf_counter()
        load()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01
