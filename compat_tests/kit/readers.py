"""What is in the log, for either kind of reader, and where groups stand.

`bootstrap` may be several addresses, with commas: each broker of a cluster is asked what it knows, and
whoever is named with the highest leader epoch is asked on. A broker that has been away knows the past. The
broker of one address is asked itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compat_tests.differential.harness import CLOSED, NO_ANSWER, Side
from compat_tests.kit.history import Ends, Partition
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.partitioner import partition_for
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

DEADLINE_SECONDS = 180.0
"""Longer than a restart of Apache Kafka takes on a busy machine."""
LOOK_SECONDS = 10.0
"""For a look at what is stuck, after the wait for it."""
QUICK_SECONDS = 3.0
"""For the answer to one request: of several brokers one may be stopped."""
PAUSE_SECONDS = 0.01
"""Between two looks."""

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION = {READ_UNCOMMITTED: "read_uncommitted", READ_COMMITTED: "read_committed"}

NOT_YET = {
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
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


def leader_of(bootstrap: str, partition: Partition) -> str | None:
    """The address of the leader by the newest view of those brokers that answer soon; None: there is none."""
    if "," not in bootstrap:
        return bootstrap
    topic, number = partition
    newest: tuple[int, str | None] = (-1, None)
    for address in bootstrap.split(","):
        told = _metadata(address, topic)
        if told is None or told.topics[0].error_code or number >= len(told.topics[0].partitions):
            continue
        (found,) = (one for one in told.topics[0].partitions if one.partition_index == number)
        named = {broker.node_id: f"{broker.host}:{broker.port}" for broker in told.brokers}
        if found.leader_epoch > newest[0]:
            newest = found.leader_epoch, named.get(found.leader_id)
    return newest[1]


def coordinator_of(bootstrap: str, group: str) -> str | None:
    """The address of the group's coordinator; None while there is none."""
    for address in bootstrap.split(","):
        told = _metadata(address, OFFSETS_TOPIC)
        if told is not None and not told.topics[0].error_code:
            number = partition_for(group, len(told.topics[0].partitions))
            return leader_of(bootstrap, (OFFSETS_TOPIC, number))
        # The topic comes with the first group that is looked for.
        _ask(address, FindCoordinatorRequest(coordinator_keys=[group]), 4)
    return None


def _metadata(address: str, topic: str) -> Any:
    return _ask(address, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)


def _ask(address: str, request: Message, version: int) -> Any:
    """None where the broker does not answer."""
    with asking(address) as side:
        try:
            answer = side.ask(request, version, seconds=QUICK_SECONDS)
        except OSError:
            return None
    return None if answer in (CLOSED, NO_ANSWER) else answer


def end_offset(bootstrap: str, partition: Partition, isolation: int) -> int:
    """The last stable offset or the high watermark; waits while nobody leads the partition."""
    topic, number = partition
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=number, timestamp=-1)]
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        leader = leader_of(bootstrap, partition)
        answer = None if leader is None else _ask(leader, request, 5)
        if answer is not None:
            found = answer.topics[0].partitions[0]
            if found.error_code == 0:
                return int(found.offset)
            assert found.error_code in NOT_YET, ErrorCode(found.error_code)
        assert time.monotonic() < deadline, f"{partition} has no leader"
        time.sleep(PAUSE_SECONDS)


def ends(bootstrap: str, partitions: Iterable[Partition]) -> dict[Partition, Ends]:
    """Where each partition ends."""
    return {
        one: Ends(end_offset(bootstrap, one, READ_COMMITTED), end_offset(bootstrap, one, READ_UNCOMMITTED))
        for one in partitions
    }


def wait_until_stable(bootstrap: str, partitions: Iterable[Partition], seconds: float) -> bool:
    """Whether the last stable offset of each partition has come to its end within that time."""
    deadline = time.monotonic() + seconds
    partitions = list(partitions)
    while any(end.last_stable_offset < end.high_watermark for end in ends(bootstrap, partitions).values()):
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def committed_offset(
    bootstrap: str, group: str, partition: Partition, seconds: float = DEADLINE_SECONDS
) -> int:
    """What the group has committed, 0 if nothing, as `require_stable` tells it: once no transaction has it
    pending any more. AssertionError: that does not come within so many seconds.
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
    deadline, last = time.monotonic() + seconds, "nobody answers"
    while True:
        coordinator = coordinator_of(bootstrap, group)
        answer = None if coordinator is None else _ask(coordinator, asked, 8)
        if answer is not None:
            found = answer.groups[0]
            code = found.error_code or found.topics[0].partitions[0].error_code
            if code == 0:
                return max(0, int(found.topics[0].partitions[0].committed_offset))
            assert code in NOT_YET, ErrorCode(code)
            last = ErrorCode(code).name
        assert time.monotonic() < deadline, f"{group} does not say where it is in {partition}: {last}"
        time.sleep(PAUSE_SECONDS)


def new_consumer(bootstrap: str, isolation: int = READ_COMMITTED) -> Consumer:
    """A consumer that is in no group and tells when it is at the end of a partition."""
    from confluent_kafka import Consumer

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
    from confluent_kafka import TopicPartition

    return [TopicPartition(topic, number, 0) for topic, number in partitions]


def messages(
    bootstrap: str, partitions: Sequence[Partition], isolation: int = READ_COMMITTED
) -> dict[Partition, list[Any]]:
    """confluent-kafka's messages of every partition, from its first offset to its end of now.

    Where a transaction is committed meanwhile a partition has all of it or nothing; of several partitions one
    may have it and another not yet.
    """
    # Here, as most processes ask brokers alone.
    from confluent_kafka import KafkaError, KafkaException

    from compat_tests.clients.confluent import PASSING

    consumer = new_consumer(bootstrap, isolation)
    read: dict[Partition, list[Any]] = {one: [] for one in partitions}
    unread = set(partitions)
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        consumer.assign(from_start(partitions))
        while unread:
            assert time.monotonic() < deadline, f"not read to the end: {sorted(unread)}"
            # It waits for all the 500 or so long, also where the last one is there already.
            for message in consumer.consume(500, PAUSE_SECONDS):
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


def assert_copied(copied: Sequence[bytes], sent: Sequence[bytes]) -> None:
    """Every value of a partition once and in order. What is missing is told apart from all else."""
    there = set(copied)
    missing = [value for value in sent if value not in there]
    assert copied == [value for value in sent if value in there], "copies are doubled, wrong or out of order"
    assert not missing, f"{len(missing)} of {len(sent)} copies are missing: {missing[:10]}"
