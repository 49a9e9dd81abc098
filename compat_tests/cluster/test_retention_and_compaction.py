"""Retention and compaction beside replication: each replica does both for itself, nodes of ours and a broker
of Kafka alike, and a replica that comes later takes logs that have gaps."""

from __future__ import annotations

import json
import pathlib

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.sharing import Member
from compat_tests.cluster.test_nearest_replica import fetch_once
from compat_tests.cluster.test_replication import batches_in, create, isr_of
from compat_tests.reference import kafka_tool

SEGMENT_BYTES = 1_048_576
VALUE_BYTES = 10_000
ROUNDS, KEYS = 5, 100
"""Of a compacted topic: as many values of each key; about a segment a round."""


def bootstrap_of(members: dict[str, Member]) -> str:
    return ",".join(one.bootstrap_servers for one in members.values())


def produce_rounds(bootstrap: str, topic: str, rounds: range) -> None:
    """Each round has a value for every key."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for number in rounds:
        for key in range(KEYS):
            value = (b"%d-%d " % (number, key)).ljust(VALUE_BYTES, b"x")
            producer.produce(topic, value, b"%d" % key, partition=0)
        assert producer.flush(DEADLINE_SECONDS) == 0


def records_of(member: Member, topic: str, end_offset: int) -> dict[int, tuple[bytes, bytes]]:
    """Key and first word of the value by offset, as this replica serves them to consumers."""
    from odradek.wire.records import iter_records, iter_whole_batches

    found: dict[int, tuple[bytes, bytes]] = {}
    offset = fetch_once(member, topic, end_offset).log_start_offset
    while offset < end_offset:
        records = memoryview(bytes(fetch_once(member, topic, offset).records))
        for at, header in iter_whole_batches(records):
            for record in iter_records(records[at : at + header.size_bytes]):
                found[record.offset] = bytes(record.key or b""), bytes(record.value or b"").split()[0]
            offset = header.last_offset + 1
    return found


def segments_of(member: Member, topic: str) -> int:
    return len(list((member.data_dir / f"{topic}-0").glob("*.log")))


@pytest.mark.parametrize("order", ["ours-kafka-other", "kafka-ours-other"])
def test_replicas_of_a_compacted_topic_are_compacted_and_a_later_one_takes_the_gaps(
    members: dict[str, Member], order: str, tmp_path: pathlib.Path
) -> None:
    topic = f"compacted-{order}"
    first, second, third = (members[name] for name in order.split("-"))
    bootstrap = first.bootstrap_servers
    create(
        bootstrap,
        topic,
        [first.node_id, second.node_id],
        cleanup_policy="compact",
        segment_bytes=str(SEGMENT_BYTES),
        min_cleanable_dirty_ratio="0.01",
        min_insync_replicas="2",
    )
    wait_until(
        lambda: isr_of(bootstrap, topic) == {first.node_id, second.node_id}, "both in sync", seconds=60
    )
    produce_rounds(bootstrap_of(members), topic, range(ROUNDS))
    end_offset = ROUNDS * KEYS

    def is_compacted(member: Member) -> bool:
        """Of the first rounds only what no later round has is left, and the newest segment."""
        records = records_of(member, topic, end_offset)
        return min(records) >= KEYS and len(records) < 3 * KEYS

    for one in (first, second):
        wait_until(lambda one=one: is_compacted(one), "it is compacted", seconds=60)  # type: ignore[misc]
    plan = tmp_path / "plan.json"
    replicas = [one.node_id for one in (first, second, third)]
    moved = {"topic": topic, "partition": 0, "replicas": replicas}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    arguments = ["--bootstrap-server", bootstrap, "--reassignment-json-file", str(plan)]
    kafka_tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *arguments, "--execute")
    wait_until(lambda: isr_of(bootstrap, topic) == set(replicas), "the third is in sync", seconds=60)
    produce_rounds(bootstrap_of(members), topic, range(ROUNDS, ROUNDS + 1))
    end_offset += KEYS
    wait_until(
        lambda: all(fetch_once(one, topic, 0).high_watermark == end_offset for one in (first, second, third)),
        "all know what is committed",
        seconds=DEADLINE_SECONDS,
    )
    latest = {b"%d" % key: b"%d-%d" % (ROUNDS, key) for key in range(KEYS)}
    for one in (first, second, third):
        assert dict(records_of(one, topic, end_offset).values()) == latest


@pytest.mark.parametrize("order", ["ours-other-kafka", "kafka-ours-other"])
def test_what_retention_deletes_at_the_leader_is_gone_at_the_followers(
    members: dict[str, Member], order: str
) -> None:
    topic = f"retained-{order}"
    replicas = [members[name] for name in order.split("-")]
    bootstrap = replicas[0].bootstrap_servers
    ids = {one.node_id for one in replicas}
    create(
        bootstrap,
        topic,
        [one.node_id for one in replicas],
        segment_bytes=str(SEGMENT_BYTES),
        retention_bytes=str(2 * SEGMENT_BYTES),
        min_insync_replicas="3",
    )
    wait_until(lambda: isr_of(bootstrap, topic) == ids, "all in sync", seconds=60)
    produce_rounds(bootstrap_of(members), topic, range(2 * ROUNDS))
    end_offset = 2 * ROUNDS * KEYS

    def starts() -> list[int]:
        return [fetch_once(one, topic, end_offset).log_start_offset for one in replicas]

    wait_until(lambda: min(starts()) > 4 * KEYS and len(set(starts())) == 1, "all begin later", seconds=60)
    wait_until(lambda: all(segments_of(one, topic) <= 4 for one in replicas), "files are gone", seconds=60)
    assert isr_of(bootstrap, topic) == ids

    def all_have_the_same() -> bool:
        """Retention may go on while they are read one after the other."""
        first, *others = (records_of(one, topic, end_offset) for one in replicas)
        return all(other == first for other in others)

    wait_until(all_have_the_same, "all have the same records", seconds=60)
    # Until a log is compacted its batches are the leader's, byte by byte.
    batches = [batches_in(one, topic)[-KEYS // 2 :] for one in replicas]
    assert batches[0] == batches[1] == batches[2]
