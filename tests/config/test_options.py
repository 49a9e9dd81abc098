"""Declarations, values and what DescribeConfigs tells. Figures are those of a 4.4.0 broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config import options
from odradek.config.option import (
    DOUBLE,
    HONOURED,
    INT,
    LIST,
    LONG,
    PASSWORD,
    READ_ONLY,
    REFUSED,
    Option,
)
from odradek.config.options import BROKER_OPTIONS, GROUP_OPTIONS, TOPIC_OPTIONS, BrokerLayers
from odradek.wire.errors import ErrorCode, KafkaError
from tests.kit.collecting import collected

EVERY_OPTION = [*BROKER_OPTIONS.values(), *TOPIC_OPTIONS.values(), *GROUP_OPTIONS.values()]

# The same for a group, whose options have their defaults from the broker's.
GROUP_DEFAULTS = {
    "consumer.assignment.interval.ms": "1000",
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.session.timeout.ms": "45000",
    "errors.deadletterqueue.copy.record.enable": "false",
    "errors.deadletterqueue.topic.name": "",
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
    "streams.assignment.interval.ms": "1000",
    "streams.assignor.name": "sticky",
    "streams.heartbeat.interval.ms": "5000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
    "streams.rack.aware.assignment.tags": "",
    "streams.session.timeout.ms": "45000",
}

# What Kafka 4.4.0 answers to DescribeConfigs for a topic with no settings of its own.
TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.decompressed.message.bytes": "2147483639",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def by_name(entries):
    return {entry.name: entry for entry in entries}


def refusal(configs):
    with pytest.raises(KafkaError) as caught:
        options.parse_topic_configs(configs)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_every_option_that_kafka_tells_of_is_declared():
    told = [option for option in BROKER_OPTIONS.values() if not (option.internal or option.unlisted)]
    assert len(told) == 350
    assert len({option.name for option in EVERY_OPTION if option.kind == PASSWORD and option in told}) == 10


def test_a_default_is_a_value_of_its_own_option():
    with collected() as failures:
        for option in EVERY_OPTION:
            with failures.of(option.name):
                assert option.doc.endswith(".")
                if option.default_text is not None:
                    assert option.parse(option.default_text) == option.default_value
                    assert option.refusal_unless_built(option.default_value) is None


def test_topic_defaults_are_told_as_kafka_tells_them():
    entries = options.describe_topic({}, BrokerLayers())
    assert {entry.name: entry.value for entry in entries} == TOPIC_DEFAULTS
    assert {entry.source for entry in entries} == {options.FROM_DEFAULT}
    assert not any(entry.read_only or entry.sensitive for entry in entries)


def test_group_defaults_are_told_as_kafka_tells_them():
    entries = options.describe_group({}, BrokerLayers())
    assert {entry.name: entry.value for entry in entries} == GROUP_DEFAULTS
    assert {entry.source for entry in entries} == {options.FROM_DEFAULT}


THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.mark.parametrize("name", THROTTLED)
@pytest.mark.parametrize(
    "text", ["", "*", " * ", "0:1", " 0:1 , 12:34 ", "0:1,0:1", "0:1,,1:1", "0:1,", ",*"]
)
def test_throttled_replicas_are_all_or_pairs_of_partition_and_broker(name, text):
    assert options.parse_topic_configs({name: text})
    assert options.without_effect(["retention.ms", name, "no.such"], TOPIC_OPTIONS) == (name,)


@pytest.mark.parametrize("name", THROTTLED)
@pytest.mark.parametrize(
    "text", ["any", "0", "0:1:2", "0 : 1", "-1:1", "*,0:1", "*,*", "**", "0:1;1:1", "\u0660:\u0661"]
)
def test_throttled_replicas_of_another_shape_are_refused(name, text):
    assert refusal({name: text}) == (
        f"{name} must be * or a list of replicas such as 0:1,1:1 (partition:broker), not {text!r}."
    )


@pytest.mark.parametrize("option", GROUP_OPTIONS.values(), ids=lambda option: option.name)
def test_a_group_option_has_the_kind_and_default_of_its_broker_option(option):
    for name in option.synonyms:
        if option.name == "streams.assignor.name":
            assert BROKER_OPTIONS[name].default_value == ("sticky",)
            continue
        assert name == f"group.{option.name}"
        synonym = BROKER_OPTIONS[name]
        assert (synonym.kind, synonym.default, synonym.low) == (option.kind, option.default, option.low)
    for name in option.bounds:
        assert name is None or BROKER_OPTIONS[name].kind == option.kind


def test_options_of_share_groups_are_checked_as_those_of_the_others():
    broker = options.broker_values(BrokerLayers())
    options.check_group_configs({"share.session.timeout.ms": "50000"}, broker)
    for configs in (
        {"share.session.timeout.ms": "60001"},
        {"share.delivery.count.limit": "11"},
        {"share.isolation.level": "READ_COMMITTED"},
    ):
        with pytest.raises(KafkaError) as caught:
            options.check_group_configs(configs, broker)
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        assert next(iter(configs)) in caught.value.message


WHERE_SHARE_GROUPS_BEGIN = {
    True: "latest,earliest, latest ,by_duration:PT1H,by_duration:pt1h,by_duration:P1DT2H,by_duration:P2D,"
    "by_duration:PT1.5S,by_duration:+P1D",
    False: "LATEST,none,by_duration,by_duration:,by_duration:P,by_duration:PT,by_duration:-PT1H,"
    "by_duration:PT-1H,by_duration:PT1.5M,by_duration:--P1D,BY_DURATION:PT1H",
}


@pytest.mark.parametrize(
    ("is_taken", "text"),
    [(is_taken, text) for is_taken, texts in WHERE_SHARE_GROUPS_BEGIN.items() for text in texts.split(",")],
)
def test_where_a_share_group_begins_is_read_as_kafka_reads_it(is_taken, text):
    if is_taken:
        assert options.parse_group_configs({"share.auto.offset.reset": text})
    else:
        with pytest.raises(KafkaError):
            options.parse_group_configs({"share.auto.offset.reset": text})


def test_a_setting_of_a_listener_is_that_option_of_it():
    name = "listener.name.inside.max.connections"
    assert options.parse_broker_configs({name: "5"}, for_all_brokers=True) == {name: 5}
    other = "listener.name.outside.max.connections"
    layers = BrokerLayers(broker={name: "5"}, all_brokers={name: "6"}, start={name: "8", other: "7"})
    assert options.values_of_listeners(layers, "max.connections") == {"inside": 5, "outside": 7}
    others = (
        "listener.name.inside.ssl.keystore.type",
        "listener.name.inside.num.network.threads",
        "listener.name.inside.node.id",
    )
    values = dict(zip(others, ("PKCS12", "9", "3"), strict=True))
    assert options.parse_broker_configs(values, for_all_brokers=False).keys() == values.keys()
    honoured = "listener.name.inside.scram-sha-256.sasl.jaas.config"
    accepted = "listener.name.inside.sasl.login.class"
    assert options.without_effect([name, honoured, accepted, *others], BROKER_OPTIONS) == (
        accepted,
        *others[1:],
    )


@pytest.mark.parametrize(
    ("name", "text", "for_all"),
    [
        ("listener.name.inside.ssl.keystore.type", "JKS", True),
        ("listener.name.inside.max.connections", "-1", False),
        ("listener.name.inside.max.connection.creation.rate", "-5", False),
        ("listener.name.inside.max.connections", "0", False),
        ("max.connections", "0", True),
        ("max.connection.creation.rate", "0", True),
        ("listener.name.inside.principal.builder.class", "org.example.Principals", False),
        ("listener.name.inside.no.such", "1", False),
        ("listener.name.inside", "1", False),
        ("listener.name.", "1", False),
        ("ssl.keystore.type", "JKS", False),
    ],
)
def test_a_setting_of_a_listener_that_cannot_be_is_refused_by_its_name(name, text, for_all):
    with pytest.raises(KafkaError) as caught:
        options.parse_broker_configs({name: text}, for_all_brokers=for_all)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert name in caught.value.message


def test_what_is_told_of_a_setting_of_a_listener_names_that_of_all_behind_it():
    name, secret = "listener.name.inside.max.connections", "listener.name.inside.ssl.keystore.password"
    layers = BrokerLayers(
        broker={name: "5", secret: "x"}, all_brokers={name: "6"}, start={"max.connections": "7"}
    )
    entry, hidden = options.describe_broker(layers, [name, secret])
    assert (entry.name, entry.value, entry.read_only, entry.sensitive) == (name, "5", True, False)
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        (name, "5", options.FROM_BROKER),
        (name, "6", options.FROM_ALL_BROKERS),
        ("max.connections", "7", options.FROM_START),
        ("max.connections", "2147483647", options.FROM_DEFAULT),
    ]
    assert (hidden.value, hidden.sensitive) == (None, True)
    (of_all,) = options.describe_all_brokers(layers)
    assert (of_all.name, of_all.value, len(of_all.synonyms)) == (name, "6", 1)


def test_a_topics_own_value_comes_first_among_its_synonyms():
    layers = BrokerLayers(start={"log.segment.bytes": "2000000"})
    entry = by_name(options.describe_topic({"segment.bytes": "3000000"}, layers))["segment.bytes"]
    assert (entry.value, entry.source) == ("3000000", options.FROM_TOPIC)
    assert entry.synonyms == [
        ("segment.bytes", "3000000", options.FROM_TOPIC),
        ("log.segment.bytes", "2000000", options.FROM_START),
        ("log.segment.bytes", "1073741824", options.FROM_DEFAULT),
    ]


def test_layers_of_the_broker_rule_in_kafkas_order():
    layers = BrokerLayers(
        broker={"message.max.bytes": "4"},
        all_brokers={"message.max.bytes": "3"},
        start={"message.max.bytes": "2"},
    )
    entry = by_name(options.describe_topic({}, layers))["max.message.bytes"]
    assert entry.value == "4"
    assert [synonym.value for synonym in entry.synonyms] == ["4", "3", "2", "1048588"]
    assert [synonym.source for synonym in entry.synonyms] == [2, 3, 4, 5]


def test_hours_give_a_topic_its_retention_but_are_not_told_as_its_synonym():
    # A 4.3.1 broker with only log.retention.hours set answers with no synonyms and source "default".
    entry = by_name(options.describe_topic({}, BrokerLayers(start={"log.retention.hours": "2"})))[
        "retention.ms"
    ]
    assert (entry.value, entry.synonyms, entry.source) == ("7200000", [], options.FROM_DEFAULT)


@pytest.mark.parametrize(
    ("start", "retention_ms"),
    [
        ({"log.retention.ms": "5", "log.retention.minutes": "7"}, 5),
        ({"log.retention.minutes": "7", "log.retention.hours": "9"}, 420_000),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finer_unit_of_retention_rules(start, retention_ms):
    defaults = options.topic_defaults(options.broker_values(BrokerLayers(start=start)))
    assert defaults["retention.ms"] == retention_ms


def test_a_topic_without_a_flush_time_gets_the_schedulers():
    values = options.broker_values(BrokerLayers(start={"log.flush.scheduler.interval.ms": "77"}))
    assert options.topic_defaults(values)["flush.ms"] == 77


def test_secrets_are_never_told():
    layers = BrokerLayers(start={"ssl.key.password": "hush", "some.plugin.password": "hush"})
    entries = by_name(options.describe_broker(layers))
    for name in ("ssl.key.password", "some.plugin.password"):
        entry = entries[name]
        assert entry.sensitive
        assert entry.value is None
        assert all(synonym.value is None for synonym in entry.synonyms)


def test_only_dynamic_broker_options_are_told_as_changeable():
    entries = by_name(options.describe_broker(BrokerLayers()))
    assert not entries["log.retention.ms"].read_only
    assert not entries["ssl.keystore.location"].read_only
    assert entries["num.partitions"].read_only
    assert entries["log.retention.hours"].synonyms == [("log.retention.hours", "168", options.FROM_DEFAULT)]


def test_the_broker_without_a_name_tells_only_what_was_set_for_all():
    layers = BrokerLayers(all_brokers={"log.retention.ms": "9"}, start={"num.partitions": "3"})
    entries = options.describe_all_brokers(layers)
    assert [(entry.name, entry.value, entry.source) for entry in entries] == [("log.retention.ms", "9", 3)]


def test_only_the_options_that_were_asked_for_are_told():
    names = ["retention.ms", "no.such", "retention.ms"]
    assert [entry.name for entry in options.describe_topic({}, BrokerLayers(), names)] == ["retention.ms"]


def test_settings_of_a_topic_are_read_by_their_types():
    assert options.parse_topic_configs(
        {
            "cleanup.policy": " compact , delete,compact ",
            "min.cleanable.dirty.ratio": "0.25",
            "retention.ms": " -1 ",
            "preallocate": "FALSE",
        }
    ) == {
        "cleanup.policy": ("compact", "delete"),
        "min.cleanable.dirty.ratio": 0.25,
        "retention.ms": -1,
        "preallocate": False,
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "\N{ARABIC-INDIC DIGIT ONE}"),
        ("retention.ms", ""),
        ("max.message.bytes", "2147483648"),
        ("segment.bytes", "1048575"),
        ("cleanup.policy", "compact,shred"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("message.timestamp.type", "createtime"),
        ("preallocate", "yes"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("retention.hours", "1"),
        ("retention.ms", None),
    ],
)
def test_a_value_that_kafka_refuses_is_refused_by_name(name, text):
    assert name in refusal({name: text})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, 0.5) for text in ("0.5", ".5f", "+0.5F", "5e-1d", "0.5D", "5e-00001", " 0.5 ")),
        *((text, 0.5) for text in ("0x1p-1", "0X1P-1", "0x.8p0", "0x1.p-1f", "0x0.4p+1D")),
        *((text, 0.0) for text in ("-0", "1e-99999999999", "0x1p-99999999999")),
        *((text, None) for text in ("nan", "infinity", "inf", "Infinityd", "1e", ".", "1 f", "1l", "0.5df")),
        *((text, None) for text in ("0x1", "0xp1", "0x1p", "0x1p1e1", "1_0", "--1", "", "1f0", "f")),
        # These Java takes for numbers, and the bounds or reason do not.
        *((text, None) for text in ("NaN", "Infinity", "-Infinity", "0x1p99999999999", "1e99999999999")),
    ],
)
def test_a_double_is_what_java_takes_for_one(text, value):
    """By what Double.parseDouble of Java 17 makes of these texts."""
    name = "min.cleanable.dirty.ratio"
    if value is None:
        assert name in refusal({name: text})
    else:
        assert options.parse_topic_configs({name: text}) == {name: value}


def test_a_double_without_bounds_may_be_infinite():
    rate = "log.cleaner.io.max.bytes.per.second"
    for text in ("Infinity", "+Infinity", "1e400", "0x1p1024"):
        assert options.parse_broker_configs({rate: text}, for_all_brokers=True) == {rate: float("inf")}


@pytest.mark.parametrize(
    ("name", "text"),
    [("remote.storage.enable", "true")],
)
def test_what_is_not_built_yet_is_refused_by_name(name, text):
    message = refusal({name: text})
    assert name in message
    assert "not built yet" in message


def test_what_is_not_built_yet_is_taken_at_its_default():
    later = [option for option in TOPIC_OPTIONS.values() if option.standing == REFUSED]
    assert len(options.parse_topic_configs({option.name: option.default_text for option in later})) == len(
        later
    )


def test_compaction_lags_that_cross_are_refused():
    defaults = options.topic_defaults(options.broker_values(BrokerLayers(start={})))
    crossed = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    with pytest.raises(KafkaError) as caught:
        options.check_topic_configs(crossed, defaults)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    defaults["max.compaction.lag.ms"] = 5
    with pytest.raises(KafkaError):
        options.check_topic_configs({"min.compaction.lag.ms": "6"}, defaults)
    # A broker's default that came later is no reason to leave a topic without its settings.
    assert options.topic_values({"min.compaction.lag.ms": "6"}, defaults)["min.compaction.lag.ms"] == 6


def test_the_segment_size_for_tests_rules_over_the_bounded_one():
    defaults = options.topic_defaults(options.broker_values(BrokerLayers()))
    assert options.topic_values({"internal.segment.bytes": "500"}, defaults)["segment.bytes"] == 500
    assert options.topic_values({}, defaults)["segment.bytes"] == 1 << 30


def test_at_run_time_only_dynamic_broker_options_change():
    assert options.parse_broker_configs({"log.retention.ms": "5"}, for_all_brokers=True) == {
        "log.retention.ms": 5
    }
    for name, value, for_all in (
        ("num.partitions", "5", False),
        ("listeners", "PLAINTEXT://:1", True),
        ("listeners", "PLAINTEXT://:1", False),
        ("ssl.keystore.type", "JKS", True),
        ("log.retention.ms", "soon", True),
        ("log.retention.ms", None, True),
        ("log.retension.ms", "5", True),
        ("principal.builder.class", "org.example.Principals", False),
    ):
        with pytest.raises(KafkaError) as caught:
            options.parse_broker_configs({name: value}, for_all_brokers=for_all)
        assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert name in caught.value.message


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value, text):
    assert Option("d", options.HONOURED, DOUBLE, 0.0, doc="").text(value) == text


@given(st.text(max_size=40), st.sampled_from([INT, LONG, DOUBLE, LIST]))
def test_any_text_is_a_value_or_is_refused(text, kind):
    option = Option("some.option", options.HONOURED, kind, None, doc="", low=0 if kind != LIST else None)
    try:
        value = option.parse(text)
    except ValueError as error:
        message = str(error)
    else:
        message = option.name
        # A list of one empty item is written like an empty list, in Kafka too.
        assert option.parse(option.text(value)) == (() if value == ("",) else value)
    assert "some.option" in message


def test_a_text_is_told_as_it_was_set_and_a_value_as_kafka_writes_it():
    layers = BrokerLayers(all_brokers={"log.cleanup.policy": " compact ,delete"})
    (entry,) = options.describe_broker(layers, ["log.cleanup.policy"])
    assert (entry.value, entry.synonyms[0].value) == ("compact,delete", " compact ,delete")
    (entry,) = options.describe_all_brokers(layers)
    assert entry.value == " compact ,delete"


def test_no_client_names_an_address_that_the_broker_asks_or_a_class():
    """CVE-2025-27817: an address of a token server that a client may set reads files and asks other machines.
    Those that Kafka lets clients change have no effect here."""
    of_addresses = [name for name in BROKER_OPTIONS if "oauthbearer" in name and name.endswith(".url")]
    assert len(of_addresses) >= 2
    assert all(BROKER_OPTIONS[name].dynamic == READ_ONLY for name in of_addresses)
    of_classes = [name for name in BROKER_OPTIONS if name.endswith((".class", ".class.name", ".classes"))]
    assert len(of_classes) > 5
    changeable = {name for name in of_classes if BROKER_OPTIONS[name].dynamic != READ_ONLY}
    assert {name for name in changeable if BROKER_OPTIONS[name].standing == HONOURED} == set()
