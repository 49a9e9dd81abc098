"""State for tests: topics with their records, groups with members and lag (`state.topics`, `state.groups`),
and the same for waits (`server/test_kit/wait_for.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import NO_LEADER
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.errors import KafkaError
from odradek.wire.partitioner import partition_for
from odradek.wire.record_layout import CONTROL
from odradek.wire.records import iter_whole_batches

if TYPE_CHECKING:
    from odradek.coordinator.group_machine import GroupMachine
    from odradek.coordinator.groups.group import Group
    from odradek.server.test_kit.kit import TestKit
    from odradek.server.test_kit.tested import Tested
    from odradek.storage.log.partition import Partition

READ_BYTES = 1024 * 1024
"""A look at the headers of batches reads so much at a time."""
READS_MAX = 64
"""In one turn of the event loop."""


def make(kit: TestKit) -> State:
    return State(kit)


class State:
    """The part of the test kit."""

    operations = ("topics", "groups", "coordinating_partition")

    def __init__(self, kit: TestKit) -> None:
        self._server = kit.server

    async def topics(self) -> list[dict[str, Any]]:
        """Topics of clients by name, with the number of their partitions and of offsets in them: from the
        first one that is kept to the high watermark."""
        topics = self._server.cluster_view.topics.values()
        return [
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "offsets": sum(
                    log.high_watermark - log.log_start_offset
                    for log in logs_of(self._server, topic.name).values()
                ),
            }
            for topic in sorted(topics, key=lambda topic: topic.name)
            if not topic.is_internal
        ]

    async def groups(self) -> list[dict[str, Any]]:
        """Groups by id, with state, members and lag in all topics."""
        found = []
        for machine in _machines(self._server):
            for group_id, group in machine.groups.items():
                lag = GroupLag(self._server, group_id, None)
                members = member_ids(group)
                found.append(
                    {"group": group_id, "state": group.state_name, "members": members, "lag": lag.total}
                )
        return sorted(found, key=lambda one: one["group"])

    async def coordinating_partition(
        self, group: str | None = None, transactional_id: str | None = None
    ) -> dict[str, Any]:
        """Topic and number of the partition whose leader coordinates a group or a transactional id.
        TestKitError: there is no such topic yet."""
        topic, key = (OFFSETS_TOPIC, group) if group is not None else (TRANSACTIONS_TOPIC, transactional_id)
        view = self._server.cluster_view.topics.get(topic)
        if view is None or key is None:
            raise TestKitError(f"there is no topic {topic} yet")
        return {"topic": topic, "partition": partition_for(key, len(view.partitions))}

    def close(self) -> None:
        """The broker stops."""


# Topics


def logs_of(server: Tested, topic: str) -> dict[int, Partition]:
    """Logs of a topic on this node, by partition; none of a topic that there is not."""
    view = server.cluster_view.topics.get(topic)
    found = {}
    for one in () if view is None else view.partitions:
        try:
            log = server.store.get(topic, one.index)
        except KafkaError:
            # Its disk has failed.
            continue
        if log is not None:
            found[one.index] = log
    return found


class RecordCount:
    """Records of one log up to its high watermark, without those of control batches. Each batch is looked at
    once."""

    def __init__(self) -> None:
        self._log: Partition | None = None
        self._count = 0
        self._next_offset = 0

    def of(self, log: Partition) -> int:
        """The number of records; of a long log only what was counted so far, as nobody else is served
        meanwhile: ask again."""
        if log is not self._log or self._next_offset < log.log_start_offset:
            self._log, self._count, self._next_offset = log, 0, log.log_start_offset
        for _ in range(READS_MAX):
            if self._next_offset >= log.high_watermark or not self._read(log):
                break
        return self._count

    def _read(self, log: Partition) -> bool:
        """Whether there was a batch."""
        records = log.read(self._next_offset, max_bytes=READ_BYTES).records
        has_batch = False
        # One buffer: a view of the file, of which only the headers are read.
        for buffer in records.buffers():
            for _, header in iter_whole_batches(buffer):
                if not header.attributes & CONTROL:
                    self._count += header.record_count
                self._next_offset = header.base_offset + header.last_offset_delta + 1
                has_batch = True
        return has_batch


# Groups


def _machines(server: Tested) -> Iterator[GroupMachine]:
    coordinator = server.coordinators.groups
    if coordinator.is_made:
        for running in list(coordinator().partitions.values()):
            if running.machine is not None:
                yield running.machine


def machine_of(server: Tested, group_id: str) -> GroupMachine | None:
    """The machine that has the group; None: there is none here."""
    return next((machine for machine in _machines(server) if group_id in machine.groups), None)


def member_ids(group: Group) -> list[str]:
    """Ids of its members; none of a group that only keeps offsets."""
    return list(getattr(group, "members", ()))


class GroupLag:
    """How far a group is behind in each partition of the topics that it has read or that its members have.
    In a partition without a commit it is behind by all that is kept."""

    def __init__(self, server: Tested, group_id: str, topic: str | None) -> None:
        """`topic`: of this one alone, whether the group has it or not."""
        machine = machine_of(server, group_id)
        self.has_group = machine is not None
        self.by_partition: dict[tuple[str, int], int] = {}
        self.topics: list[str] = []
        if machine is None:
            return
        topics = {topic} if topic is not None else _topics_of(server, machine, group_id)
        self.topics = sorted(topics)
        for name in self.topics:
            commits = machine.offsets.of_topic(group_id, name)
            for index, log in logs_of(server, name).items():
                commit = commits.get(index)
                position = log.log_start_offset if commit is None else commit.offset
                self.by_partition[name, index] = max(0, log.high_watermark - position)

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


def _topics_of(server: Tested, machine: GroupMachine, group_id: str) -> set[str]:
    owned = {name for name, _ in machine.owned(machine.groups[group_id], server.cluster_view)}
    return owned | set(machine.offsets.of_group(group_id))


# Clusters


def refuse_remote_coordinator(server: Tested, topic: str, key: str) -> None:
    """TestKitError: another node coordinates the group or the transactional id, by the partition of an
    internal topic."""
    view = server.cluster_view
    internal = view.topic(topic)
    if internal is None:
        return
    leader = view.leader_of(topic, partition_for(key, len(internal.partitions)))
    if leader not in (NO_LEADER, server.node_id):
        raise TestKitError(
            f"node {leader} coordinates {key!r}, and this is node {server.node_id}: ask that one"
        )


def refuse_remote_replicas(server: Tested, topic: str, partition: int | None) -> None:
    """TestKitError: a partition of the topic, or this one, has no replica on this node."""
    view = server.cluster_view.topic(topic)
    for one in () if view is None else view.partitions:
        if partition in (None, one.index) and server.node_id not in one.replicas:
            nodes = ", ".join(map(str, one.replicas))
            raise TestKitError(
                f"{topic}-{one.index} has its replicas on the nodes {nodes}, and this is node "
                f"{server.node_id}: ask one of those, with a partition where none has all of them"
            )


# Transactions


def transaction_state(server: Tested, transactional_id: str) -> str | None:
    """Kafka's name of the state, such as "CompleteCommit"; None: there is no such id here."""
    coordinator = server.coordinators.transactions
    if coordinator.is_made:
        for running in list(coordinator().partitions.values()):
            if running.machine is not None:
                transaction = running.machine.transactions.get(transactional_id)
                if transaction is not None:
                    return transaction.state.label
    return None
