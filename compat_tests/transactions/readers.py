"""What is in the log, for either kind of reader, and where groups stand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from compat_tests.clients.confluent import PASSING
from compat_tests.differential.harness import CLOSED, NO_ANSWER, Side
from compat_tests.transactions.history import Ends, Partition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

DEADLINE_SECONDS = 180.0
"""Longer than a restart of Apache Kafka takes on a busy machine."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION = {READ_UNCOMMITTED: "read_uncommitted", READ_COMMITTED: "read_committed"}

NOT_YET = {
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


@contextmanager
def asking(bootstrap: str) -> Iterator[Side]:
    """A connection for single requests."""
    side = Side("broker", bootstrap)
    try:
        yield side
    finally:
        side.close()


def end_offset(side: Side, partition: Partition, isolation: int) -> int:
    """The last stable offset or the high watermark; waits while nobody leads the partition."""
    topic, number = partition
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=number, timestamp=-1)]
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        answer = side.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked]), 5)
        if answer not in (CLOSED, NO_ANSWER):
            found = answer.topics[0].partitions[0]
            if found.error_code == 0:
                return int(found.offset)
            assert found.error_code in NOT_YET, ErrorCode(found.error_code)
        assert time.monotonic() < deadline, f"{partition} has no leader"
        time.sleep(0.05)


def ends(bootstrap: str, partitions: Iterable[Partition]) -> dict[Partition, Ends]:
    """Where each partition ends."""
    with asking(bootstrap) as side:
        return {
            one: Ends(end_offset(side, one, READ_COMMITTED), end_offset(side, one, READ_UNCOMMITTED))
            for one in partitions
        }


def wait_until_stable(bootstrap: str, partitions: Iterable[Partition], seconds: float) -> bool:
    """Whether the last stable offset of each partition has come to its end within that time."""
    deadline = time.monotonic() + seconds
    partitions = list(partitions)
    while any(end.last_stable_offset < end.high_watermark for end in ends(bootstrap, partitions).values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def committed_offset(bootstrap: str, group: str, partition: Partition) -> int:
    """What the group has committed, 0 if nothing, as `require_stable` tells it: once no transaction has it
    pending any more.
    """
    topic, number = partition
    asked = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[number])]
            )
        ],
        require_stable=True,
    )
    deadline = time.monotonic() + DEADLINE_SECONDS
    with asking(bootstrap) as side:
        while True:
            try:
                side.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
                answer = side.ask(asked, 8)
            except OSError:
                answer = CLOSED
            if answer not in (CLOSED, NO_ANSWER):
                found = answer.groups[0]
                code = found.error_code or found.topics[0].partitions[0].error_code
                if code == 0:
                    return max(0, int(found.topics[0].partitions[0].committed_offset))
                assert code in NOT_YET, ErrorCode(code)
            assert time.monotonic() < deadline, f"{group} does not say where it is in {partition}: {answer}"
            time.sleep(0.05)


def new_consumer(bootstrap: str, isolation: int = READ_COMMITTED) -> Consumer:
    """A consumer that is in no group and tells when it is at the end of a partition."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": ISOLATION[isolation],
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
    )


def from_start(partitions: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(topic, number, 0) for topic, number in partitions]


def messages(
    bootstrap: str, partitions: Sequence[Partition], isolation: int = READ_COMMITTED
) -> dict[Partition, list[Any]]:
    """confluent-kafka's messages of every partition, from its first offset to its end of now.

    Where a transaction is committed meanwhile a partition has all of it or nothing; of several partitions one
    may have it and another not yet.
    """
    consumer = new_consumer(bootstrap, isolation)
    read: dict[Partition, list[Any]] = {one: [] for one in partitions}
    unread = set(partitions)
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        consumer.assign(from_start(partitions))
        while unread:
            assert time.monotonic() < deadline, f"not read to the end: {sorted(unread)}"
            for message in consumer.consume(500, 0.2):
                where = (message.topic(), message.partition())
                if message.error() is None:
                    read[where].append(message)
                    unread.add(where)  # behind an end, too: without the rest it would be cut off anywhere
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    unread.discard(where)
                elif not message.error().retriable() and message.error().code() not in PASSING:
                    raise KafkaException(message.error())
    finally:
        consumer.close()
    return read


def read_all(
    bootstrap: str, partitions: Sequence[Partition], isolation: int = READ_COMMITTED
) -> dict[Partition, list[tuple[int, bytes]]]:
    """(offset, value) of all records, from the first offset of a partition to its end of now."""
    read = messages(bootstrap, partitions, isolation)
    return {one: [(message.offset(), message.value()) for message in there] for one, there in read.items()}


def values_of(
    bootstrap: str, partitions: Sequence[Partition], isolation: int = READ_COMMITTED
) -> dict[Partition, list[bytes]]:
    """The values alone."""
    read = messages(bootstrap, partitions, isolation)
    return {one: [message.value() for message in there] for one, there in read.items()}
