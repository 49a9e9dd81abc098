"""`odradek topics` says what the AdminClients of librdkafka and kafka-python say, and does what it shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType
from kafka import KafkaAdminClient

from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import START_MS, topic_name

Rows = list[dict[str, Any]]
Command = Callable[..., Rows]
Place = tuple[str, int]


@pytest.fixture
def topic(rows: Command, bootstrap: str) -> str:
    """With ten records in the first of its three partitions, a second apart."""
    name = topic_name("topics")
    assert rows("topics", "create", name, "-p", "3", "-r", "1") == [{"topic": name, "created": True}]
    wait_until(lambda: len(rows("topics", "list", name)) == 1, "the topic is there")
    messages = [Message(b"%d" % number, timestamp_ms=START_MS + 1000 * number) for number in range(10)]
    KafkaPythonClient(bootstrap).produce(name, messages)
    return name


def offsets(admin: AdminClient, topic: str, spec: OffsetSpec) -> dict[int, int]:
    asked = {TopicPartition(topic, number): spec for number in range(3)}
    found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {place.partition: future.result(30).offset for place, future in found.items()}


def iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def by_partition(rows: Rows, key: str) -> dict[int, Any]:
    return {row["partition"]: row[key] for row in rows}


def test_the_list_is_that_of_the_admin_client(rows: Command, admin: AdminClient, topic: str) -> None:
    def theirs() -> dict[str, tuple[int, int]]:
        return {
            name: (len(one.partitions), len(one.partitions[0].replicas))
            for name, one in admin.list_topics(timeout=30).topics.items()
        }

    def mine(*more: str) -> dict[str, tuple[int, int]]:
        return {row["topic"]: (row["partitions"], row["replicas"]) for row in rows("topics", "list", *more)}

    wait_until(lambda: mine("--internal") == theirs(), "nobody makes topics")
    assert mine(f"{topic[:-1]}*") == {topic: (3, 1)}
    future = admin.describe_topics(TopicCollection(list(theirs())))
    internal = {name for name, one in future.items() if one.result(30).is_internal}
    assert {row["topic"] for row in rows("topics", "list", "--internal") if row["internal"]} == internal
    assert mine().keys() == theirs().keys() - internal


def test_a_description_is_that_of_the_admin_clients(
    rows: Command, admin: AdminClient, python_admin: KafkaAdminClient, topic: str
) -> None:
    described = rows("topics", "describe", topic)
    (future,) = admin.describe_topics(TopicCollection([topic])).values()
    assert [
        (row["topic"], row["partition"], row["leader"], row["replicas"], row["in_sync"]) for row in described
    ] == [
        (topic, one.id, one.leader.id, [each.id for each in one.replicas], [each.id for each in one.isr])
        for one in future.result(30).partitions
    ]
    known = admin.list_topics(topic, timeout=30).topics[topic].partitions
    assert {row["leader_epoch"] for row in described} == {0}
    assert [row["offline"] for row in described] == [[]] * len(known)
    assert by_partition(described, "start_offset") == offsets(admin, topic, OffsetSpec.earliest())
    assert by_partition(described, "end_offset") == offsets(admin, topic, OffsetSpec.latest())
    assert by_partition(described, "records") == {0: 10, 1: 0, 2: 0}
    sizes: Counter[int] = Counter()
    for broker in python_admin.describe_log_dirs():
        for directory in broker["log_dirs"]:
            for stored in directory["topics"]:
                if stored["name"] == topic:
                    sizes.update(
                        {one["partition_index"]: one["partition_size"] for one in stored["partitions"]}
                    )
    assert by_partition(described, "size_bytes") == sizes
    (row,) = rows("topics", "list", topic, "--sizes")
    assert (row["records"], row["size_bytes"]) == (10, sizes.total())


def test_offsets_are_those_of_the_admin_client(rows: Command, admin: AdminClient, topic: str) -> None:
    found = rows("topics", "offsets", topic)
    assert by_partition(found, "start_offset") == offsets(admin, topic, OffsetSpec.earliest())
    ends = offsets(admin, topic, OffsetSpec.latest())
    assert by_partition(found, "end_offset") == ends
    newest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    (row, *others) = rows("topics", "describe", topic, "--times")
    assert row["newest_time_ms"] == next(iter(newest.values())).result(30).timestamp
    assert (row["oldest_time_ms"], row["records_per_second"]) == (START_MS, 0)
    assert {(one["oldest_time_ms"], one["newest_time_ms"]) for one in others} == {(None, None)}
    for number in (0, 4, 10):
        at_ms = START_MS + 1000 * number - 500
        theirs = offsets(admin, topic, OffsetSpec.for_timestamp(at_ms))
        expected = {
            partition: offset if offset >= 0 else ends[partition] for partition, offset in theirs.items()
        }
        assert expected[0] == number
        assert by_partition(rows("topics", "offsets", topic, "--at", str(at_ms)), "offset") == expected


def test_what_is_made_and_changed_is_what_the_admin_client_then_sees(
    rows: Command, admin: AdminClient, topic: str
) -> None:
    name = topic_name("made")
    create = (
        "topics",
        "create",
        name,
        "-p",
        "2",
        "-c",
        "retention.ms=86400000",
        "-c",
        "cleanup.policy=compact",
    )
    assert rows(*create, "--dry-run") == [{"topic": name, "created": False}]
    assert name not in admin.list_topics(timeout=30).topics
    assert rows(*create) == [{"topic": name, "created": True}]
    assert rows(*create, status=1) == []
    assert rows(*create, "--if-not-exists") == [{"topic": name, "created": False}]

    def partitions() -> int:
        found = admin.list_topics(timeout=30).topics.get(name)
        return 0 if found is None else len(found.partitions)

    wait_until(lambda: partitions() == 2, "the topic is there")
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    options = future.result(30)
    assert (options["retention.ms"].value, options["cleanup.policy"].value) == ("86400000", "compact")

    grow = ("topics", "add-partitions", name, "5")
    assert rows(*grow, "--dry-run") == [{"topic": name, "partitions_before": 2, "partitions": 5}]
    assert partitions() == 2
    assert rows(*grow) == [{"topic": name, "partitions_before": 2, "partitions": 5}]
    wait_until(lambda: partitions() == 5, "the partitions are there")

    for where, start in (("4", 4), (iso(START_MS + 6500), 7), ("99", 10)):
        trim = ("topics", "trim", f"{topic}:0", "--before", where)
        before = offsets(admin, topic, OffsetSpec.earliest())[0]
        planned = rows(*trim, "--dry-run")
        assert offsets(admin, topic, OffsetSpec.earliest())[0] == before
        assert rows(*trim) == planned
        assert planned == [
            {
                "topic": topic,
                "partition": 0,
                "start_offset_before": before,
                "start_offset": start,
                "records_deleted": start - before,
            }
        ]
        assert offsets(admin, topic, OffsetSpec.earliest())[0] == start

    assert rows("topics", "delete", name, "--dry-run") == [{"topic": name, "deleted": False}]
    assert partitions() == 5
    assert rows("topics", "delete", name, "nowhere-at-all", status=1) == [{"topic": name, "deleted": True}]
    wait_until(lambda: partitions() == 0, "the topic is gone")
