"""AlterConfigs and IncrementalAlterConfigs: what is changed, what is refused, and what is told afterwards."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.test_records import batch, fetch, for_version, produce
from compat_tests.differential.topics import new_topic
from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT
from odradek.config.options import TOPIC_OPTIONS
from odradek.wire.compression import Compression
from odradek.wire.messages import alter_configs, incremental_alter_configs
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.records import iter_batches, iter_records, verify_crc

TOPIC, BROKER = 2, 4
OF_TOPIC, OF_BROKER, OF_ALL_BROKERS = 1, 2, 3
BROKER_SETTINGS = [
    "log.retention.ms",
    "log.retention.hours",
    "log.cleanup.policy",
    "log.flush.interval.ms",
    "compression.type",
    "message.max.bytes",
    "num.partitions",
    "log.cleaner.threads",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
]

Operation = tuple[str, int, str | None]


def partly(kind: int, name: str, *operations: Operation) -> incremental_alter_configs.AlterConfigsResource:
    configs = [
        incremental_alter_configs.AlterableConfig(name=setting, config_operation=operation, value=value)
        for setting, operation, value in operations
    ]
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )


def whole(kind: int, name: str, *settings: tuple[str, str | None]) -> alter_configs.AlterConfigsResource:
    configs = [alter_configs.AlterableConfig(name=setting, value=value) for setting, value in settings]
    return alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


def incremental(
    *resources: Any, dry: bool = False
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=dry
    )


def complete(*resources: Any, dry: bool = False) -> alter_configs.AlterConfigsRequest:
    return alter_configs.AlterConfigsRequest(resources=list(resources), validate_only=dry)


ONLY_NEWER = frozenset(
    {
        *("max.decompressed.message.bytes", "errors.deadletterqueue.group.enable"),
        *("remote.copy.lag.bytes", "remote.copy.lag.ms"),
    }
)
"""Settings of a topic that 4.4 has and 3.9 does not."""


def compare_settings(
    pair: Pair, kind: int, name: str, own: dict[str, str], keys: list[str] | None = None, note: str = ""
) -> None:
    """Asks both until their own settings of the resource are `own`, and compares all that they tell."""
    source = OF_TOPIC if kind == TOPIC else OF_BROKER if name else OF_ALL_BROKERS
    if kind == TOPIC:
        keys = list(TOPIC_OPTIONS)
        if is_older(pair):
            # Of the last one 4.0 changed the default (KIP-1030).
            without = {*ONLY_NEWER, "internal.segment.bytes", "message.timestamp.after.max.ms"}
            keys = [key for key in keys if key not in without]
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)

    def settled(answer: Any) -> bool:
        configs = answer.results[0].configs
        if kind == BROKER:
            # For a moment Kafka knows a setting's new source, and not yet its value or that it is gone.
            for one in configs:
                first = one.synonyms[0].value.replace(" ", "") if one.synonyms else None
                if one.value != first if name else one.config_source != source:
                    return False
        return {one.name: one.value for one in configs if one.config_source == source} == own

    answers = pair.ask(lambda _: request, 4, f"{note}, afterwards", settle=settled)
    assert all(map(settled, answers)), (note, own)


def is_older(pair: Pair) -> bool:
    """Whether it is 3.9 that we are compared with."""
    return 0 in pair.versions(FetchRequest)


def change(pair: Pair, request: Any) -> None:
    """Changes both; it is no part of what the test compares in the first place."""
    pair.ask(lambda _: request, 1, "change")


def test_settings_of_a_topic_change_alike_in_part(pair: Pair) -> None:
    steps: list[tuple[str, list[Operation], dict[str, str]]] = [
        ("set", [("retention.ms", SET, "60000")], {"retention.ms": "60000"}),
        ("set again", [("retention.ms", SET, "60000")], {"retention.ms": "60000"}),
        (
            "two at once",
            [("retention.ms", DELETE, None), ("max.message.bytes", SET, "5000")],
            {"max.message.bytes": "5000"},
        ),
        ("delete with a value", [("max.message.bytes", DELETE, "7")], {}),
        ("delete what is not set", [("segment.ms", DELETE, None)], {}),
        ("delete what is unknown", [("no.such", DELETE, None)], {}),
        (
            "append to the default",
            [("cleanup.policy", APPEND, "compact")],
            {"cleanup.policy": "delete,compact"},
        ),
        ("append again", [("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "delete,compact"}),
        ("subtract", [("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "compact"}),
        (
            "subtract what is not there",
            [("cleanup.policy", SUBTRACT, "delete")],
            {"cleanup.policy": "compact"},
        ),
        ("subtract all", [("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": ""}),
        ("append to nothing", [("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "delete"}),
        (
            "an internal one",
            [("internal.segment.bytes", SET, "1000")],
            {"cleanup.policy": "delete", "internal.segment.bytes": "1000"},
        ),
        ("no internal one", [("internal.segment.bytes", DELETE, None)], {"cleanup.policy": "delete"}),
        (
            "set with blanks",
            [("cleanup.policy", SET, " compact , delete ")],
            {"cleanup.policy": "compact,delete"},
        ),
        ("nothing", [], {"cleanup.policy": "compact,delete"}),
        # As kafka-reassign-partitions --throttle does.
        (
            "replicas, to be deleted",
            [
                ("cleanup.policy", DELETE, None),
                ("leader.replication.throttled.replicas", SET, "0:1,1:1"),
                ("follower.replication.throttled.replicas", SET, ""),
            ],
            {
                "leader.replication.throttled.replicas": "0:1,1:1",
                "follower.replication.throttled.replicas": "",
            },
        ),
        (
            "deleted replicas",
            [
                ("leader.replication.throttled.replicas", DELETE, None),
                ("follower.replication.throttled.replicas", SUBTRACT, "0:1"),
            ],
            {"follower.replication.throttled.replicas": ""},
        ),
        (
            "more replicas",
            [("follower.replication.throttled.replicas", APPEND, "7:1")],
            {"follower.replication.throttled.replicas": "7:1"},
        ),
    ]
    for version in pair.versions(incremental_alter_configs.IncrementalAlterConfigsRequest):
        topic = new_topic(pair, "altered")
        before: dict[str, str] = {}
        for note, operations, after in steps:
            request = incremental(partly(TOPIC, topic, *operations), dry=True)
            pair.ask(lambda _: request, version, f"{note}, validate only")
            compare_settings(pair, TOPIC, topic, before, note=note)
            request = incremental(partly(TOPIC, topic, *operations))
            pair.ask(lambda _: request, version, note)
            compare_settings(pair, TOPIC, topic, after, note=note)
            before = after


def test_settings_of_a_topic_change_alike_as_a_whole(pair: Pair) -> None:
    for version in pair.versions(alter_configs.AlterConfigsRequest):
        topic = new_topic(pair, "altered", segment_ms="70000")
        before = {"segment.ms": "70000"}
        for after in ({"retention.ms": "5", "flush.ms": "6"}, {"flush.ms": "6"}, {}):
            for dry in (True, False):
                request = complete(whole(TOPIC, topic, *after.items()), dry=dry)
                pair.ask(lambda _: request, version, f"{after}, validate only {dry}")
                compare_settings(pair, TOPIC, topic, before if dry else after, note=str(after))
            before = after


GOOD_VALUES = [
    ("compression.type", "uncompressed"),
    ("compression.type", "zstd"),
    ("compression.gzip.level", "9"),
    ("compression.gzip.level", "-1"),
    ("compression.lz4.level", "17"),
    ("compression.zstd.level", "-131072"),
    ("max.message.bytes", "0"),
    ("message.timestamp.type", "LogAppendTime"),
    ("message.timestamp.before.max.ms", "0"),
    ("message.timestamp.after.max.ms", "9223372036854775807"),
    ("flush.messages", "1"),
    ("flush.ms", "0"),
    ("preallocate", "TRUE"),
    ("min.insync.replicas", "3"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-7"),
    ("segment.bytes", "1048576"),
    ("segment.ms", "1"),
    ("segment.jitter.ms", "0"),
    ("segment.index.bytes", "4"),
    ("index.interval.bytes", "0"),
    ("file.delete.delay.ms", "0"),
    ("delete.retention.ms", "0"),
    ("min.compaction.lag.ms", "9223372036854775807"),
    ("max.compaction.lag.ms", "1"),
    ("min.cleanable.dirty.ratio", "1"),
    ("min.cleanable.dirty.ratio", "1e-2"),
    ("retention.ms", " 5 "),
    ("cleanup.policy", ""),
    ("cleanup.policy", "compact,compact"),
    ("leader.replication.throttled.replicas", "0:1,1:1"),
    ("leader.replication.throttled.replicas", " 0:1 , 12:34 "),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", ""),
    ("follower.replication.throttled.replicas", " * "),
    ("follower.replication.throttled.replicas", "0:1,0:1"),
    ("leader.replication.throttled.replicas", "0:1,,1:1"),
    ("leader.replication.throttled.replicas", ",*"),
    ("leader.replication.throttled.replicas", "0:1,"),
]
BAD_VALUES = [
    ("compression.type", "none"),
    ("compression.type", "GZIP"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "0"),
    ("compression.lz4.level", "18"),
    ("compression.zstd.level", "23"),
    ("max.message.bytes", "-1"),
    ("max.message.bytes", "2147483648"),
    ("message.timestamp.type", "NoTimestampType"),
    ("message.timestamp.before.max.ms", "-1"),
    ("flush.messages", "0"),
    ("flush.ms", "-1"),
    ("preallocate", "yes"),
    ("min.insync.replicas", "0"),
    ("retention.ms", "-2"),
    ("retention.ms", "soon"),
    ("retention.ms", ""),
    ("segment.bytes", "13"),
    ("segment.ms", "0"),
    ("segment.index.bytes", "3"),
    ("max.compaction.lag.ms", "0"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("cleanup.policy", "shred"),
    ("cleanup.policy", "compact,,delete"),
    ("leader.replication.throttled.replicas", "*,*"),
    ("leader.replication.throttled.replicas", "**"),
    ("leader.replication.throttled.replicas", "*,0:1"),
    ("leader.replication.throttled.replicas", "0"),
    ("leader.replication.throttled.replicas", "0:1:2"),
    ("leader.replication.throttled.replicas", "0 : 1"),
    ("follower.replication.throttled.replicas", "-1:1"),
    ("follower.replication.throttled.replicas", "any"),
    ("no.such", "1"),
]


def test_values_are_taken_and_refused_alike(pair: Pair) -> None:
    topic = new_topic(pair, "values")
    for name, value in GOOD_VALUES + BAD_VALUES:
        one = incremental(partly(TOPIC, topic, (name, SET, value)), dry=True)
        pair.ask(lambda _: one, 1, f"{name}={value}")
        all_ = complete(whole(TOPIC, topic, (name, value)), dry=True)
        pair.ask(lambda _: all_, 2, f"{name}={value}")
    compare_settings(pair, TOPIC, topic, {}, note="validated only")


def test_changes_of_topics_are_refused_alike(pair: Pair) -> None:
    topic, other = new_topic(pair, "refused", retention_ms="9"), new_topic(pair, "other")
    cases: dict[str, Any] = {
        "unknown topic": incremental(partly(TOPIC, "not-there", ("retention.ms", SET, "1"))),
        "unknown topic, bad value": incremental(partly(TOPIC, "not-there", ("retention.ms", SET, "soon"))),
        "unknown topic, deleted": incremental(partly(TOPIC, "not-there", ("retention.ms", DELETE, None))),
        "bad name": incremental(partly(TOPIC, "bad/name", ("retention.ms", SET, "1"))),
        "bad name, bad value": incremental(partly(TOPIC, "bad/name", ("retention.ms", SET, "soon"))),
        "no name": incremental(partly(TOPIC, "", ("retention.ms", SET, "1"))),
        "null": incremental(partly(TOPIC, topic, ("retention.ms", SET, None))),
        "null to append": incremental(partly(TOPIC, topic, ("cleanup.policy", APPEND, None))),
        "append to a number": incremental(partly(TOPIC, topic, ("retention.ms", APPEND, "1"))),
        "subtract from a number": incremental(partly(TOPIC, topic, ("retention.ms", SUBTRACT, "9"))),
        "append to the unknown": incremental(partly(TOPIC, topic, ("no.such", APPEND, "1"))),
        "append to what is of no topic": incremental(
            partly(TOPIC, "not-there", ("retention.ms", APPEND, "1"))
        ),
        "append nonsense": incremental(partly(TOPIC, topic, ("cleanup.policy", APPEND, "shred"))),
        "append nothing": incremental(partly(TOPIC, topic, ("cleanup.policy", APPEND, ""))),
        "one good, one bad": incremental(
            partly(TOPIC, topic, ("segment.ms", SET, "1000"), ("retention.ms", SET, "soon"))
        ),
        "a setting twice": incremental(
            partly(TOPIC, topic, ("segment.ms", SET, "1000"), ("segment.ms", DELETE, None))
        ),
        "crossed lags": incremental(
            partly(TOPIC, topic, ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8"))
        ),
        "a topic twice": incremental(
            partly(TOPIC, topic, ("segment.ms", SET, "1000")),
            partly(TOPIC, other, ("segment.ms", SET, "1000")),
            partly(TOPIC, topic, ("segment.ms", SET, "2000")),
            dry=True,
        ),
        "good and bad topics": incremental(
            partly(TOPIC, topic, ("segment.ms", SET, "soon")),
            partly(TOPIC, other, ("segment.ms", SET, "1000")),
            dry=True,
        ),
        "unknown resource": incremental(partly(77, "x", ("a", SET, "1"))),
        "no resource": incremental(partly(0, "x", ("a", SET, "1"))),
        "nothing": incremental(),
        "whole, unknown topic": complete(whole(TOPIC, "not-there", ("retention.ms", "1"))),
        "whole, unknown topic, bad value": complete(whole(TOPIC, "not-there", ("retention.ms", "soon"))),
        "whole, bad name": complete(whole(TOPIC, "bad/name")),
        "whole, no name": complete(whole(TOPIC, "")),
        "whole, null": complete(whole(TOPIC, topic, ("retention.ms", None))),
        "whole, a setting twice": complete(whole(TOPIC, topic, ("flush.ms", "1"), ("flush.ms", "1"))),
        "whole, unknown resource": complete(whole(77, "x")),
        "whole, a logger": complete(whole(8, "1", ("root", "INFO"))),
        "whole, nothing": complete(),
    }
    for note, request in cases.items():
        for version in pair.versions(type(request)):
            pair.ask(lambda _: request, version, note)
    compare_settings(pair, TOPIC, topic, {"retention.ms": "9"}, note="refused")
    compare_settings(pair, TOPIC, other, {}, note="refused")


@pytest.fixture
def brokers_as_before(pair: Pair) -> Iterator[Pair]:
    """Takes back what a test sets for brokers: the pair serves other tests, too."""
    yield pair
    for name in ("1", ""):
        change(pair, incremental(partly(BROKER, name, *((one, DELETE, None) for one in BROKER_SETTINGS))))
        compare_settings(pair, BROKER, name, {}, BROKER_SETTINGS)


def test_settings_of_brokers_change_alike(brokers_as_before: Pair) -> None:
    pair = brokers_as_before
    topic = new_topic(pair, "defaults", flush_ms="4")

    def compare(own: dict[str, str], shared: dict[str, str], note: str) -> None:
        compare_settings(pair, BROKER, "", shared, BROKER_SETTINGS, note)
        compare_settings(pair, BROKER, "1", own, BROKER_SETTINGS, note)
        compare_settings(pair, TOPIC, topic, {"flush.ms": "4"}, note=note)

    retention, policy, flush = "log.retention.ms", "log.cleanup.policy", "log.flush.interval.ms"
    for version in pair.versions(incremental_alter_configs.IncrementalAlterConfigsRequest):
        request = incremental(partly(BROKER, "", (retention, SET, "80000"), (flush, SET, "7")))
        pair.ask(lambda _: request, version, "all brokers")
        compare({}, {retention: "80000", flush: "7"}, "all brokers")
        request = incremental(partly(BROKER, "1", (retention, SET, "90000"), (policy, APPEND, "compact")))
        pair.ask(lambda _: request, version, "one broker, validate only")
        compare(
            {retention: "90000", policy: "delete,compact"}, {retention: "80000", flush: "7"}, "one broker"
        )
        request = incremental(partly(BROKER, "1", (retention, DELETE, None), (policy, SUBTRACT, "delete")))
        pair.ask(lambda _: request, version, "one broker, changed")
        compare({policy: "compact"}, {retention: "80000", flush: "7"}, "one broker, changed")
        request = incremental(
            partly(BROKER, "1", (policy, DELETE, None)),
            partly(BROKER, "", (retention, DELETE, None), (flush, DELETE, None)),
        )
        pair.ask(lambda _: request, version, "both taken back")
        compare({}, {}, "both taken back")
    blanks = {retention: " 80000 ", policy: " compact ,delete"}
    for name in ("1", ""):
        request = incremental(partly(BROKER, name, *((key, SET, value) for key, value in blanks.items())))
        pair.ask(lambda _: request, 1, "with blanks")
        own = {key: value.replace(" ", "") for key, value in blanks.items()}
        compare(*((own, {}) if name else ({}, blanks)), "with blanks")
        request = incremental(partly(BROKER, name, *((key, DELETE, None) for key in blanks)))
        pair.ask(lambda _: request, 1, "with blanks, taken back")
        compare({}, {}, "with blanks, taken back")
    for version in pair.versions(alter_configs.AlterConfigsRequest):
        one = complete(whole(BROKER, "1", (retention, "70000"), (flush, "8")))
        pair.ask(lambda _: one, version, "one broker")
        compare({retention: "70000", flush: "8"}, {}, "one broker, as a whole")
        one = complete(whole(BROKER, "1", (retention, "70000")))
        pair.ask(lambda _: one, version, "one broker, less")
        compare({retention: "70000"}, {}, "one broker, less")
        one = complete(whole(BROKER, "1"))
        pair.ask(lambda _: one, version, "one broker, nothing")
        compare({}, {}, "one broker, nothing")


def test_settings_that_change_in_steps_or_have_no_default_change_alike(brokers_as_before: Pair) -> None:
    pair = brokers_as_before
    threads, throttle = "log.cleaner.threads", "replica.alter.log.dirs.io.max.bytes.per.second"
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    for name in ("1", ""):
        for own in ({threads: "2"}, {threads: "4", throttle: "1000000"}, {threads: "2", throttle: "0"}, {}):
            if throttle in own:
                own |= dict.fromkeys(rates, own[throttle])
            if is_older(pair):
                for setting in (throttle, *rates):
                    own.pop(setting, None)  # 3.9 calls it read-only, and changes it all the same
            operations = [
                (setting, SET if setting in own else DELETE, own.get(setting))
                for setting in (threads, throttle, *rates)
            ]
            request = incremental(partly(BROKER, name, *operations))
            pair.ask(lambda _: request, 1, f"{name!r} {own}")
            compare_settings(pair, BROKER, name, own, BROKER_SETTINGS, f"{name!r} {own}")


def test_changes_of_brokers_are_refused_alike(brokers_as_before: Pair) -> None:
    pair = brokers_as_before
    refused: list[tuple[str, str, str | None]] = [
        ("1", "num.partitions", "3"),
        ("", "num.partitions", "3"),
        ("1", "log.retention.hours", "3"),
        ("1", "node.id", "1"),
        ("1", "log.retention.ms", "soon"),
        ("1", "log.retention.ms", None),
        ("", "log.retention.ms", "0"),
        ("", "log.segment.bytes", "13"),
        ("", "log.cleaner.min.compaction.lag.ms", str(2**63)),
        ("", "compression.type", "none"),
        ("", "compression.gzip.level", "0"),
        ("", "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT"),
        ("1", "log.cleaner.threads", "0"),
        ("", "log.cleaner.threads", "3"),
        ("1", "log.cleaner.threads", "3"),
        ("1", "replica.alter.log.dirs.io.max.bytes.per.second", "-1"),
        ("", "replica.alter.log.dirs.io.max.bytes.per.second", "soon"),
        ("1", "leader.replication.throttled.rate", "-1"),
        ("", "follower.replication.throttled.rate", "soon"),
        ("", "ssl.keystore.type", "JKS"),
        ("1", "ssl.keystore.type", "JKS"),
        ("2", "log.retention.ms", "5"),
        ("-1", "log.retention.ms", "5"),
        ("one", "log.retention.ms", "5"),
    ]
    for name, setting, value in refused:
        for dry in (True, False):
            request = incremental(partly(BROKER, name, (setting, SET, value)), dry=dry)
            pair.ask(lambda _: request, 1, f"{name!r} {setting}={value}, validate only {dry}")
            all_ = complete(whole(BROKER, name, (setting, value)), dry=dry)
            pair.ask(lambda _: all_, 2, f"{name!r} {setting}={value}, validate only {dry}")
    for note, operation in {
        "append to a number": ("log.retention.ms", APPEND, "5"),
        "append nonsense": ("log.cleanup.policy", APPEND, "shred"),
        "delete what cannot be set": ("num.partitions", DELETE, None),
        "no operation": ("log.retention.ms", 9, "5"),
    }.items():
        request = incremental(partly(BROKER, "1", operation), dry=True)
        pair.ask(lambda _: request, 1, note)
    twice = incremental(
        partly(BROKER, "", ("log.retention.ms", SET, "5")), partly(BROKER, "", ("log.retention.ms", SET, "5"))
    )
    pair.ask(lambda _: twice, 1, "all brokers twice")
    for name in ("1", ""):
        compare_settings(pair, BROKER, name, {}, BROKER_SETTINGS, "refused")


def contents(side: Side, topic: str) -> list[Any]:
    """What a topic's batches say and hold, but for how a codec packed it."""
    records = bytes(side.ask(fetch(side, topic), 12).responses[0].partitions[0].records)
    told = []
    for at, header in iter_batches(records):
        one = records[at : at + header.size_bytes]
        verify_crc(one, 0, header)
        names = ("base_offset", "last_offset_delta", "leader_epoch", "attributes", "base_timestamp")
        names += ("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count")
        told.append([*(getattr(header, name) for name in names), list(map(list, iter_records(one)))])
    return told


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_batches_are_stored_alike_in_a_topics_codec(pair: Pair, target: str) -> None:
    for version in pair.versions(ProduceRequest):
        if version < 3 or version % 5:
            continue
        topic = new_topic(pair, f"stored-{target}", compression_type=target)
        for codec in Compression:
            if codec == Compression.ZSTD and version < 7:
                continue
            for more in ({}, {"producer_id": 7000 + codec, "producer_epoch": 0, "base_sequence": 5}):
                records = batch(6, compression=codec, **more)
                pair.ask(lambda side: produce(side, topic, records), version, f"{codec.name} to {target}")
        pair.compare(f"stored as {target}", *(contents(side, topic) for side in pair.sides))


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "lz4"])
def test_old_message_sets_are_stored_alike_in_a_topics_codec(pair: Pair, target: str) -> None:
    for version in pair.versions(ProduceRequest):
        if version >= 3:
            continue
        topic = new_topic(pair, f"old-{target}", compression_type=target)
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY):
            records = for_version(batch(4, compression=codec), version)
            pair.ask(lambda side: produce(side, topic, records), version, f"{codec.name} to {target}")
        pair.compare(f"v{version} stored as {target}", *(contents(side, topic) for side in pair.sides))


def test_topics_in_zstd_are_fetched_alike(pair: Pair) -> None:
    """By versions 4 to 9 as from 4.3, which looks at the topic no more; by older ones as from 3.9."""
    topic = new_topic(pair, "zstd", compression_type="zstd")
    records = batch(4, compression=Compression.ZSTD)
    pair.ask(lambda side: produce(side, topic, records), 9)
    for version in range(4) if is_older(pair) else range(4, 13):
        for offset in (0, 4, 9):
            pair.ask(lambda side: fetch(side, topic, offset), version, f"a topic in zstd, from {offset}")


@pytest.mark.parametrize("target", ["producer", "gzip", "zstd", "uncompressed"])
def test_batches_in_zstd_are_fetched_alike(pair: Pair, target: str) -> None:
    """Between others in the log, whatever the topic says now: it may have said something else before."""
    topic = new_topic(pair, f"zstd-then-{target}", compression_type="producer")
    for codec in (Compression.NONE, Compression.ZSTD, Compression.GZIP, Compression.ZSTD):
        records = batch(4, compression=codec)
        pair.ask(lambda side: produce(side, topic, records), 9)
    change(pair, incremental(partly(TOPIC, topic, ("compression.type", SET, target))))
    for version in range(4) if is_older(pair) else range(4, 13):
        for offset in (0, 2, 4, 6, 8, 12, 15, 16, 99):
            pair.ask(lambda side: fetch(side, topic, offset), version, f"{target}, from {offset}")


def test_bounds_of_messages_are_alike(pair: Pair) -> None:
    small, large = batch(40, compression=Compression.GZIP), batch(40)
    cases = {
        "as it came": ({"compression_type": "gzip", "max_message_bytes": str(len(large) - 1)}, large),
        "as it is stored": ({"compression_type": "uncompressed", "max_message_bytes": "700"}, small),
        "both fit": ({"compression_type": "gzip", "max_message_bytes": str(len(large))}, large),
    }
    assert len(small) < 700 < len(large)
    for note, (settings, records) in cases.items():
        topic = new_topic(pair, "bounds", **settings)
        pair.ask(lambda side: produce(side, topic, records), 9, note)


def test_new_bounds_count_for_the_next_batch(pair: Pair) -> None:
    topic = new_topic(pair, "live")
    records = batch(4)
    pair.ask(lambda side: produce(side, topic, records), 9, "before")
    for name, value in {
        "max.message.bytes": "100",
        "message.timestamp.before.max.ms": "1000",
        "cleanup.policy": "compact",
    }.items():
        change(pair, incremental(partly(TOPIC, topic, (name, SET, value))))
        compare_settings(pair, TOPIC, topic, {name: value}, note=name)
        keyless = batch(4, key=None)
        pair.ask(lambda side: produce(side, topic, keyless), 9, name)
        change(pair, incremental(partly(TOPIC, topic, (name, DELETE, None))))
        compare_settings(pair, TOPIC, topic, {}, note=name)
        pair.ask(lambda side: produce(side, topic, keyless), 9, f"{name} taken back")
