"""Offsets of groups in ZooKeeper: as the oldest protocol writes and reads them, and as the old tools do."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Looking, in_zookeeper
from compat_tests.zookeeper.ensemble import ZooKeeper
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.raw_client import RawClient
from tests.tiers import rest_at_night

TOPIC = "committed"
PARTITIONS = 3
RECORDS = 10
VERSIONS = rest_at_night("0.8.2.2", "0.9.0.1", "0.10.2.2")
SECONDS = 30


@pytest.fixture(scope="module", autouse=True)
def topic(broker: odradek.Broker) -> None:
    server = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(server)
    (future,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values()
    future.result(SECONDS)
    producer = Producer(server)
    for index in range(PARTITIONS):
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, partition=index)
    assert producer.flush(SECONDS) == 0


@pytest.fixture
def client(broker: odradek.Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as one:
        yield one


def commit(
    client: RawClient, group: str, offsets: dict[int, int], topic: str = TOPIC, metadata: str = "m"
) -> dict[int, int]:
    """Error codes by partition."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    )
    (answer,) = client.ask(request, 0).topics
    return {one.partition_index: one.error_code for one in answer.partitions}


def fetch(client: RawClient, group: str, topic: str = TOPIC) -> dict[int, tuple[int, int]]:
    """Offset and error code by partition."""
    indexes = list(range(PARTITIONS))
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)]
    )
    (answer,) = client.ask(request, 0).topics
    return {one.partition_index: (one.committed_offset, one.error_code) for one in answer.partitions}


NOTHING = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_offsets_are_bare_numbers_in_zookeeper(client: RawClient, looking: Looking) -> None:
    group = topic_name("group")
    assert fetch(client, group) == dict.fromkeys(range(PARTITIONS), NOTHING)
    assert commit(client, group, {0: 5, 2: 7}) == {0: 0, 2: 0}
    path = f"/consumers/{group}/offsets/{TOPIC}"
    assert {index: looking.read(f"{path}/{index}") for index in looking.children(path)} == {
        "0": b"5",
        "2": b"7",
    }
    assert fetch(client, group) == {0: (5, 0), 1: NOTHING, 2: (7, 0)}
    looking.client.set(f"{path}/0", b"9")
    assert commit(client, group, {2: 8}) == {2: 0}
    assert fetch(client, group) == {0: (9, 0), 1: NOTHING, 2: (8, 0)}, (
        "what consumers write themselves counts"
    )


def test_what_cannot_be_kept_is_refused(client: RawClient, looking: Looking) -> None:
    group = topic_name("group")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, group, {0: 1}, topic="nowhere") == {0: unknown}
    assert commit(client, group, {0: 1, 9: 1}) == {0: 0, 9: unknown}
    assert commit(client, group, {1: 1}, metadata="x" * 5000) == {1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    looking.client.create(f"/consumers/{group}/offsets/nowhere/0", b"3", makepath=True)
    assert fetch(client, group, topic="nowhere")[0] == NOTHING
    for nonsense in (b"nonsense", b"--5", b"", b"9" * 30):
        looking.client.set(f"/consumers/{group}/offsets/{TOPIC}/0", nonsense)
        assert fetch(client, group)[0] == (-1, ErrorCode.UNKNOWN_SERVER_ERROR)
    for bad in ("", "..", "a/b"):
        assert commit(client, bad, {0: 1}) == {0: ErrorCode.INVALID_GROUP_ID}
        assert fetch(client, bad)[0] == (-1, ErrorCode.INVALID_GROUP_ID)
    assert commit(client, "with blank\tand\x01control", {0: 1}) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert fetch(client, group)[1] == NOTHING, "the connection goes on"


def test_later_versions_keep_offsets_in_kafka(
    client: RawClient, broker: odradek.Broker, looking: Looking
) -> None:
    group = topic_name("group")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 4)], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(TOPIC, 0)], SECONDS)
    consumer.close()
    assert found.offset == 4
    assert looking.children(f"/consumers/{group}") == []
    assert fetch(client, group)[0] == NOTHING, "the two do not know each other"


def test_without_zookeeper_they_are_refused_and_all_else_is_served() -> None:
    with ZooKeeper() as own, in_zookeeper(own.address) as broker, RawClient(broker.port) as client:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (future,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values()
        future.result(SECONDS)
        assert commit(client, "g", {0: 1}) == {0: 0}
        own.stop()
        wait_until(
            lambda: commit(client, "g", {0: 2}) == {0: ErrorCode.UNKNOWN_SERVER_ERROR}, "it is refused"
        )
        assert fetch(client, "g")[0] == (-1, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert TOPIC in admin.list_topics(timeout=SECONDS).topics
        own.start()
        wait_until(lambda: commit(client, "g", {0: 3}) == {0: 0}, "it is kept again")
        assert fetch(client, "g")[0] == (3, 0)


@pytest.fixture(params=VERSIONS)
def group(
    request: pytest.FixtureRequest, address: str, looking: Looking, tmp_path: pathlib.Path
) -> tuple[str, str]:
    """The release, and a group that has read all but what came after it."""
    name, version = topic_name("group"), request.param
    config = tmp_path / "consumer.properties"
    config.write_text(f"group.id={name}\nauto.commit.interval.ms=100\n")
    reference.kafka_tool(
        "kafka.tools.ConsoleConsumer",
        *("--zookeeper", address, "--consumer.config", str(config), "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(PARTITIONS * RECORDS)),
        version=version,
        timeout_seconds=60,
    )
    assert looking.children(f"/consumers/{name}/offsets/{TOPIC}") == ["0", "1", "2"]
    return version, name


def test_tools_tell_export_and_import_offsets(
    group: tuple[str, str], address: str, broker: odradek.Broker, looking: Looking, tmp_path: pathlib.Path
) -> None:
    version, name = group

    def run(tool: str, *words: str) -> str:
        return reference.kafka_tool(f"kafka.tools.{tool}", *words, version=version).stdout

    told = run("ConsumerOffsetChecker", "--zookeeper", address, "--group", name, "--topic", TOPIC)
    rows = [line.split() for line in told.splitlines() if line.startswith(name)]
    assert [row[1:6] for row in rows] == [[TOPIC, str(index), "10", "10", "0"] for index in range(PARTITIONS)]

    file = tmp_path / "offsets"
    run("ExportZkOffsets", "--zkconnect", address, "--group", name, "--output-file", str(file))
    exported = sorted(file.read_text().split())
    assert exported == [f"/consumers/{name}/offsets/{TOPIC}/{index}:10" for index in range(PARTITIONS)]
    file.write_text(file.read_text().replace(":10", ":6"))
    run("ImportZkOffsets", "--zkconnect", address, "--input-file", str(file))
    path = f"/consumers/{name}/offsets/{TOPIC}"
    assert {looking.read(f"{path}/{index}") for index in looking.children(path)} == {b"6"}
    told = run("ConsumerOffsetChecker", "--zookeeper", address, "--group", name, "--topic", TOPIC)
    assert [line.split()[5] for line in told.splitlines() if line.startswith(name)] == ["4"] * PARTITIONS

    told = run("GetOffsetShell", "--broker-list", broker.bootstrap_servers, "--topic", TOPIC, "--time", "-1")
    assert sorted(told.split()) == [f"{TOPIC}:{index}:10" for index in range(PARTITIONS)]
    told = run("VerifyConsumerRebalance", "--zookeeper.connect", address, "--group", name)
    assert "Rebalance operation successful" in told
