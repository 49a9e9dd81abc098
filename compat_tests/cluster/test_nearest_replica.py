"""Consumers read from the replica in their rack (KIP-392), and DeleteRecords waits for all replicas; nodes of
ours and a broker of Kafka lead and follow in turn."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster import sharing
from compat_tests.cluster.sharing import NUMBERS, Member
from compat_tests.cluster.test_replication import create, isr_of
from compat_tests.differential.harness import Side
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

COUNT = 50
RACKS = {NUMBERS[name]: rack for name, rack in sharing.RACKS.items()}


def produce(bootstrap: str, topic: str, first: int = 0) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(first, first + COUNT):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0


def fetch_once(member: Member, topic: str, offset: int, rack: str = "", version: int = 11) -> Any:
    side = Side("broker", member.bootstrap_servers)
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
        rack_id=rack,
    )
    try:
        return side.ask(request, version).responses[0].partitions[0]
    finally:
        side.close()


def replicated(members: dict[str, Member], topic: str, order: str) -> list[Member]:
    """A topic with these replicas, the first one leads; all of them are in the ISR and have its records."""
    replicas = [members[name] for name in order.split("-")]
    bootstrap = replicas[0].bootstrap_servers
    ids = [one.node_id for one in replicas]
    create(bootstrap, topic, ids)
    wait_until(lambda: isr_of(bootstrap, topic) == set(ids), "all in sync", seconds=60)
    produce(bootstrap, topic)
    for one in replicas[1:]:
        wait_until(
            lambda one=one: fetch_once(one, topic, 0).high_watermark == COUNT,  # type: ignore[misc]
            "the follower knows what is committed",
            seconds=DEADLINE_SECONDS,
        )
    return replicas


@pytest.mark.parametrize("order", ["ours-other", "ours-kafka", "kafka-ours"])
def test_the_leader_names_the_replica_in_the_rack_and_that_one_serves_what_is_committed(
    members: dict[str, Member], order: str
) -> None:
    topic = f"named-{order}"
    leader, follower = replicated(members, topic, order)
    near = fetch_once(leader, topic, 7, RACKS[follower.node_id])
    assert (near.error_code, near.preferred_read_replica, near.records) == (0, follower.node_id, b"")
    assert near.high_watermark == COUNT
    for rack in (RACKS[leader.node_id], "elsewhere", ""):
        here = fetch_once(leader, topic, 7, rack)
        assert (here.error_code, here.preferred_read_replica) == (0, -1)
        assert here.records
    assert bytes(fetch_once(follower, topic, 7).records) == bytes(fetch_once(leader, topic, 7).records)
    out_of_range = fetch_once(leader, topic, COUNT + 1, RACKS[follower.node_id])
    assert out_of_range.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    refused = fetch_once(follower, topic, 7, version=10)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("order", ["kafka-ours", "ours-kafka", "ours-other"])
def test_a_consumer_reads_in_its_rack_and_goes_on_when_that_replica_dies(
    members: dict[str, Member], order: str
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = f"read-{order}"
    leader, follower = replicated(members, topic, order)
    read_from: list[int] = []

    def note(text: str) -> None:
        partitions = json.loads(text)["topics"].get(topic, {}).get("partitions", {})
        if "0" in partitions:
            read_from.append(partitions["0"]["broker"])

    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(one.bootstrap_servers for one in members.values()),
            "group.id": topic,
            "client.rack": RACKS[follower.node_id],
            "enable.auto.commit": False,
            "statistics.interval.ms": 100,
            "stats_cb": note,
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def read(wanted: int) -> bool:
        for message in consumer.consume(wanted, 0.1):
            assert message.error() is None, message.error()
            values.append(message.value())
        return len(values) >= wanted

    wait_until(lambda: read(COUNT), "all is read", seconds=60)
    del read_from[:]
    wait_until(lambda: not read(COUNT + 1) and bool(read_from), "statistics", seconds=60)
    assert read_from[-1] == follower.node_id
    produce(leader.bootstrap_servers, topic, COUNT)
    wait_until(lambda: read(2 * COUNT), "what is new is read as well", seconds=60)
    follower.kill()
    try:
        produce(leader.bootstrap_servers, topic, 2 * COUNT)
        wait_until(lambda: read(3 * COUNT), "the leader serves it now", seconds=90)
    finally:
        follower.start()
        consumer.close()
    assert values == [b"%d" % number for number in range(3 * COUNT)]


def delete_before(member: Member, topic: str, offset: int, timeout_ms: int) -> tuple[ErrorCode, int]:
    side = Side("broker", member.bootstrap_servers)
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=timeout_ms
    )
    try:
        found = side.ask(request, 2).topics[0].partitions[0]
    finally:
        side.close()
    return ErrorCode(found.error_code), found.low_watermark


@pytest.mark.parametrize("order", ["ours-other-kafka", "kafka-ours-other"])
def test_deleted_records_are_gone_on_all_replicas_when_the_answer_comes(
    members: dict[str, Member], order: str
) -> None:
    topic = f"deleted-{order}"
    replicas = replicated(members, topic, order)
    assert delete_before(replicas[0], topic, 20, 30_000) == (ErrorCode.NONE, 20)
    assert [fetch_once(one, topic, COUNT).log_start_offset for one in replicas] == [20, 20, 20]
    assert delete_before(replicas[0], topic, -1, 30_000) == (ErrorCode.NONE, COUNT)
    assert [fetch_once(one, topic, COUNT).log_start_offset for one in replicas] == [COUNT] * 3


@pytest.mark.parametrize("order", ["ours-other", "kafka-other"])
def test_a_replica_that_does_not_fetch_is_waited_for_until_the_time_out_or_until_it_is_fenced(
    members: dict[str, Member], order: str
) -> None:
    topic = f"waited-{order}"
    leader, follower = replicated(members, topic, order)
    os.kill(follower.pid, signal.SIGSTOP)
    try:
        code, low_watermark = delete_before(leader, topic, 20, 200)
        assert (code, low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        # Its session ends after 3 s: then it is not waited for.
        wait_until(
            lambda: delete_before(leader, topic, 30, 1_000) == (ErrorCode.NONE, 30),
            "it is fenced",
            seconds=60,
        )
    finally:
        os.kill(follower.pid, signal.SIGCONT)
    wait_until(lambda: fetch_once(follower, topic, COUNT).log_start_offset == 30, "it follows", seconds=60)
