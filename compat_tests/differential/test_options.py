"""Every option of Kafka 4.4.0, set at run time: what is taken and what is refused.

The names are those of Kafka's own definitions, read from its jars, with another value than the default for
each. What differs on purpose is `OTHERWISE`, with the reason; a difference that is gone there fails, too.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator, Mapping

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.differential.harness import SECONDS, Pair, Pauses, common_versions, side_of
from compat_tests.differential.test_records import produce
from compat_tests.differential.test_settings import (
    BROKER,
    TOPIC,
    complete,
    incremental,
    partly,
    whole,
)
from compat_tests.differential.topics import new_topic
from odradek.config.changes import DELETE, SET
from odradek.config.option import (
    ACCEPTED,
    BOOLEAN,
    CLASS,
    DOUBLE,
    LIST,
    PASSWORD,
    PER_BROKER,
    REFUSED,
    STRING,
    Option,
)
from odradek.config.options import BROKER_OPTIONS, GROUP_OPTIONS, TOPIC_OPTIONS
from odradek.embedding.embedded import Broker
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.records import Record, build_batch

GROUP = 32
OPTIONS = {BROKER: BROKER_OPTIONS, TOPIC: TOPIC_OPTIONS, GROUP: GROUP_OPTIONS}

PROGRAM = """
public class Names {
    public static void main(String[] arguments) {
        for (String one : kafka.server.KafkaConfig.configDef().names())
            System.out.println("4 " + one);
        for (String one : org.apache.kafka.server.config.DynamicConfig.Broker.names())
            System.out.println("4 " + one);
        for (String one : org.apache.kafka.storage.internals.log.LogConfig.configNames())
            System.out.println("2 " + one);
        for (String one : org.apache.kafka.coordinator.group.GroupConfig.configNames())
            System.out.println("32 " + one);
    }
}
"""

SECURITY = "org.apache.kafka.common.security"
DEFAULT_HANDLER = "$DefaultLoginCallbackHandler"
VALUES = {
    "advertised.listeners": "PLAINTEXT://127.0.0.1:1",
    "config.providers": "",
    "group.streams.assignors": "sticky",
    "controller.quorum.voters": "7@127.0.0.1:1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT",
    "listeners": "PLAINTEXT://127.0.0.1:0",  # without Kafka's one for controllers
    "log.local.retention.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "134217729",
    "max.connections.per.ip.overrides": "127.0.0.1:1000000",
    "metric.reporters": "",
    "sasl.login.connect.timeout.ms": "5",
    "share.auto.offset.reset": "earliest",
    "ssl.enabled.protocols": "TLSv1.3",
    "sasl.client.callback.handler.class": f"{SECURITY}.authenticator.SaslClientCallbackHandler",
    "sasl.login.callback.handler.class": f"{SECURITY}.authenticator.AbstractLogin{DEFAULT_HANDLER}",
    "sasl.login.class": f"{SECURITY}.authenticator.DefaultLogin",
    "sasl.oauthbearer.assertion.algorithm": "ES256",
    "sasl.oauthbearer.jwt.retriever.class": f"{SECURITY}.oauthbearer.FileJwtRetriever",
    "sasl.oauthbearer.jwt.validator.class": f"{SECURITY}.oauthbearer.BrokerJwtValidator",
    "sasl.server.callback.handler.class": f"{SECURITY}.scram.internals.ScramServerCallbackHandler",
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
    "follower.replication.throttled.replicas": "0:1",
    "leader.replication.throttled.replicas": "0:1",
}

LISTENERS = "a broker keeps its listeners until it is started anew"
JAVA_CLASSES = (
    "There are no Java classes that make or check TLS here, and trust would be another than asked for."
)
OF_THE_START = "How clients authenticate is read at the start: a change that is not used would be relied on."
READ_AT_THE_START = [
    name
    for name, option in BROKER_OPTIONS.items()
    if name.startswith("sasl.") and option.standing != ACCEPTED
]
OF_TLS_OTHERWISE = {
    "ssl.engine.factory.class": JAVA_CLASSES,
    "ssl.trustmanager.algorithm": JAVA_CLASSES,
}
OF_LISTENERS_OTHERWISE = {
    **OF_TLS_OTHERWISE,
    **dict.fromkeys(READ_AT_THE_START, OF_THE_START),
}
OTHERWISE = {
    "listener.security.protocol.map": LISTENERS,
    **OF_TLS_OTHERWISE,
    **{name: OF_THE_START for name in READ_AT_THE_START if BROKER_OPTIONS[name].dynamic == PER_BROKER},
}
"""Options that Kafka takes and Odradek refuses, for one broker or for all, and why."""


OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka's authorizer reads them itself: they are in no definition of Kafka's options."""

NAMES_THAT_KAFKA_4_HAS_NOT = ("odradek.", "zookeeper.")
"""Our own options, and those for the oldest clients, which Kafka had before 4.0."""


def names_of_kafka(directory: pathlib.Path) -> dict[int, list[str]]:
    """Kafka's own options by the number of the kind of their owner."""
    source = directory / "Names.java"
    source.write_text(PROGRAM)
    told = reference.run_java(source).split("\n")
    found: dict[int, list[str]] = {kind: [] for kind in OPTIONS}
    for line in filter(None, told):
        kind, name = line.split()
        found[int(kind)].append(name)
    return {kind: sorted(set(names)) for kind, names in found.items()}


def another_value(option: Option) -> str:
    """A text that is a value of it, and not its default."""
    if option.name in VALUES:
        return VALUES[option.name]
    default = option.default_value
    if option.kind == BOOLEAN:
        return "false" if default else "true"
    if option.choices:
        return next(one for one in option.choices if default not in (one, (one,)))
    if option.kind == DOUBLE:
        return "0.25"
    if option.kind in (STRING, LIST, CLASS, PASSWORD):
        return "other"
    low = 0 if option.low is None else int(option.low)
    # Numbers of threads change by half or double at the most, and most bounds are far from the default.
    near = (default - 1, default + 1) if default is not None else (low + 1,)
    return str(next(one for one in near if one >= low and (option.high is None or one <= option.high)))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    settings = {
        "auto.create.topics.enable": "false",
        "producer.id.expiration.ms": "3000",
        "producer.id.expiration.check.interval.ms": "100",
    }
    with (
        reference.Kafka(properties=settings, host=shared_host()) as kafka,
        Broker(process=True, options=settings) as broker,
    ):
        sides = side_of("kafka", kafka.bootstrap_servers), side_of("odradek", broker.bootstrap_servers)
        yield Pair(*sides, common_versions(*sides))
        for side in sides:
            side.close()


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    return names_of_kafka(tmp_path_factory.mktemp("names"))


def test_every_option_of_kafka_is_declared_and_no_other(names: Mapping[int, list[str]]) -> None:
    ours = {
        kind: [
            one
            for one in options
            if not one.startswith(NAMES_THAT_KAFKA_4_HAS_NOT) and one not in OF_THE_AUTHORIZER
        ]
        for kind, options in OPTIONS.items()
    }
    assert {kind: sorted(options) for kind, options in ours.items()} == names


def codes(pair: Pair, request: IncrementalAlterConfigsRequest) -> tuple[int, int]:
    theirs, ours = (side.ask(request, 1).responses[0].error_code for side in pair.sides)
    return theirs, ours


def differing(pair: Pair, owner: str, names: list[str], prefix: str = "") -> dict[str, tuple[int, int]]:
    """Of options of a broker (or of all, under the empty name) those with another answer."""
    found = {}
    for name in names:
        change = (f"{prefix}{name}", SET, another_value(BROKER_OPTIONS[name]))
        both = codes(pair, incremental(partly(BROKER, owner, change), dry=True))
        if both[0] != both[1]:
            found[name] = both
    return found


def test_options_of_brokers_are_taken_and_refused_alike(pair: Pair, names: Mapping[int, list[str]]) -> None:
    for owner in ("1", ""):
        expected = {name for name in OTHERWISE if owner or BROKER_OPTIONS[name].dynamic != "per-broker"}
        found = differing(pair, owner, names[BROKER])
        assert found.keys() == expected, (owner, found)
        assert not any(theirs for theirs, _ in found.values()), (owner, found)


@pytest.mark.parametrize("listener", ["plaintext", "other"])
def test_settings_of_single_listeners_are_taken_and_refused_alike(
    pair: Pair, names: Mapping[int, list[str]], listener: str
) -> None:
    read_by_listeners = [name for name in names[BROKER] if name.startswith(("ssl.", "sasl."))]
    read_by_listeners += ["max.connections", "max.connection.creation.rate", "num.network.threads"]
    for owner in ("1", ""):
        found = differing(pair, owner, read_by_listeners, f"listener.name.{listener}.")
        assert found.keys() == (OF_LISTENERS_OTHERWISE.keys() if owner else set()), (owner, found)


def test_what_is_set_for_a_listener_is_told_alike(pair: Pair) -> None:
    settings = {
        "listener.name.plaintext.max.connections": "500",
        "listener.name.plaintext.ssl.keystore.type": "PKCS12",
        "listener.name.plaintext.ssl.keystore.password": "secret",
        "listener.name.other.ssl.keystore.location": "other",
    }
    for_all = {"listener.name.plaintext.max.connections": "600"}
    for owner, own in (("1", settings), ("", for_all)):
        request = incremental(partly(BROKER, owner, *((name, SET, value) for name, value in own.items())))
        pair.ask(lambda _: request, 1, f"{owner!r} set")
    for owner in ("1", ""):
        for keys in ([*settings], None) if owner else ([*for_all], None):
            resource = DescribeConfigsResource(
                resource_type=BROKER, resource_name=owner, configuration_keys=keys
            )
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
            told = []
            for side in pair.sides:
                deadline = time.monotonic() + SECONDS
                pause = Pauses()
                while True:
                    configs = [
                        one
                        for one in side.ask(request, 4).results[0].configs
                        if one.name in settings and one.config_source != 5
                    ]
                    if len(configs) == (len(settings) if owner else 1) or time.monotonic() > deadline:
                        break
                    pause()
                told.append(sorted((side.plain(one, 4) for one in configs), key=lambda one: one["name"]))
            pair.compare(f"told of {owner!r}, {keys}", *told)
            assert told[1]
    for owner, own in (("1", settings), ("", for_all)):
        request = incremental(partly(BROKER, owner, *((name, DELETE, None) for name in own)))
        pair.ask(lambda _: request, 1, f"{owner!r} taken back")


def test_what_nothing_reads_may_be_set_and_is_told(pair: Pair) -> None:
    setting = ("sasl.kerberos.min.time.before.relogin", SET, "58000")
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=[setting[0]]
    )
    describe = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    for change, value in ((setting, "58000"), ((setting[0], DELETE, None), "60000")):
        request = incremental(partly(BROKER, "1", change))
        pair.ask(lambda _: request, 1, "change")
        pair.ask(lambda _: describe, 4, settle=lambda answer: answer.results[0].configs[0].value == value)


BEYOND = [
    ("log.roll.ms", "0"),
    ("log.roll.jitter.ms", "-1"),
    ("log.retention.ms", "-5"),
    ("log.cleaner.dedupe.buffer.size", "1048576"),
    ("max.connections", "0"),
    ("max.connection.creation.rate", "0"),
    ("max.connections.per.ip", "0"),
    ("max.connections.per.ip.overrides", "127.0.0.1"),
    ("max.connections.per.ip.overrides", "127.0.0.1:x"),
    ("max.connections.per.ip.overrides", "::1:3, localhost : 1000000"),
    ("max.connections.per.ip.overrides", "[::1]:3"),
    ("max.connections.per.ip.overrides", "a,b:1"),
    ("max.connections.per.ip.overrides", "a b:1"),
    ("num.io.threads", "17"),
    ("num.network.threads", "100"),
    ("background.threads", "21"),
    ("num.replica.fetchers", "3"),
    ("num.recovery.threads.per.data.dir", "5"),
    ("remote.log.reader.threads", "21"),
    ("remote.log.manager.copier.thread.pool.size", "4"),
    ("log.cleaner.io.buffer.load.factor", "7"),
    ("log.flush.interval.ms", "-1"),
    ("group.consumer.assignment.interval.ms", "20000"),
    ("group.share.assignment.interval.ms", "20000"),
    ("group.streams.assignment.interval.ms", "20000"),
    ("ssl.client.auth", "nonsense"),
    ("listener.name.plaintext.max.connections", "-1"),
    ("listener.name.plaintext.max.connections", "0"),
    ("listener.name.plaintext.max.connection.creation.rate", "0"),
    ("listener.name.plaintext.ssl.client.auth", "nonsense"),
]


@pytest.mark.parametrize(("name", "value"), BEYOND)
def test_bounds_beside_those_of_the_definitions_are_alike(pair: Pair, name: str, value: str) -> None:
    for owner in ("1", ""):
        request = incremental(partly(BROKER, owner, (name, SET, value)), dry=True)
        pair.ask(lambda _: request, 1, f"{owner!r} {name}={value}")
    # Of all brokers Kafka has min.insync.replicas set, which the whole must not leave out.
    legacy = complete(whole(BROKER, "1", (name, value)), dry=True)
    pair.ask(lambda _: legacy, 2, f"{name}={value}")


def test_options_of_topics_and_groups_are_taken_and_refused_alike(
    pair: Pair, names: Mapping[int, list[str]]
) -> None:
    topic = new_topic(pair, "options")
    for name in names[TOPIC]:
        value = another_value(TOPIC_OPTIONS[name])
        request = incremental(partly(TOPIC, topic, (name, SET, value)), dry=True)
        pair.ask(lambda _: request, 1, f"{name}={value}")
        created = CreatableTopic(
            name="made",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=name, value=value)],
        )
        theirs, ours = (
            side.ask(CreateTopicsRequest(topics=[created], timeout_ms=9000, validate_only=True), 5)
            for side in pair.sides
        )
        pair.compare(f"made with {name}={value}", theirs.topics[0].error_code, ours.topics[0].error_code)
    for name in names[GROUP]:
        option = GROUP_OPTIONS[name]
        # Of what is not built only the default is taken.
        others = [] if option.standing == REFUSED else ["nonsense", "1"]
        for value in (another_value(option), *others):
            request = incremental(partly(GROUP, "g", (name, SET, value)), dry=True)
            pair.ask(lambda _: request, 1, f"{name}={value}")


def test_silent_producers_are_forgotten_at_the_pace_of_their_own_interval(pair: Pair) -> None:
    """Retention is looked at every five minutes, and after half a minute for the first time."""
    topic = new_topic(pair, "silent")
    version = pair.versions(ProduceRequest)[-1]
    sent = Record(0, time.time_ns() // 1_000_000, b"key", b"value")
    records = bytes(build_batch([sent], producer_id=7000, producer_epoch=0, base_sequence=0))
    pair.ask(lambda side: produce(side, topic, records), version)
    asked = [TopicRequest(name=topic, partition_indexes=[0])]
    request = DescribeProducersRequest(topics=asked)
    for is_known in (True, False):
        answers = pair.ask(
            lambda _: request,
            0,
            f"known: {is_known}",
            settle=lambda answer: bool(answer.topics[0].partitions[0].active_producers) == is_known,
        )
        for answer in answers:
            assert bool(answer.topics[0].partitions[0].active_producers) == is_known
