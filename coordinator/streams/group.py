"""One group of the streams protocol (KIP-1071): members, topology, epochs, target assignment, who runs what.

This is data with its invariants; who may do what, and when, is decided in
`coordinator/streams/membership.py`. What survives a restart is written by `StreamsGroup.apply` alone, from
records that have just been appended or are read back. The values in it are shared with these records and
never changed in place. The rest (deadlines, the topology compared with the cluster, a request for a shutdown)
lives only here.

Source: StreamsGroup.java and StreamsGroupMember.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from odradek.coordinator.groups.group import STREAMS, CommitRequest, TypeOfGroup
from odradek.coordinator.groups.sessions import Session
from odradek.coordinator.streams.assignor import TaskAssignment, Tasks
from odradek.coordinator.streams.reconciliation import (
    EpochsOfTasks,
    HeldTasks,
    MemberState,
    MemberTasks,
    TaskOwners,
)
from odradek.coordinator.streams.topology import (
    ConfiguredTopology,
    required_topics,
    subtopology_by_source,
)
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import streams_group_heartbeat as heartbeat
from odradek.wire.messages.group_records import (
    AssignedTaskIds,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TaskIds,
)

NONE = ErrorCode.NONE
INITIAL_EPOCH = 1
"""Of a group before its first member, and of its target assignment."""
NO_TOPOLOGY_EPOCH = -1
NO_TARGET = TaskAssignment()
MEMBER_EPOCHS_SINCE = 9
"""OffsetCommit version that a member of this protocol has to use at least."""
ListedTasks = TypeVar("ListedTasks")


def new_member_metadata() -> StreamsGroupMemberMetadataValue:
    """Of a member whose record has not been read yet."""
    return StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        topology_epoch=NO_TOPOLOGY_EPOCH,
        process_id="",
        client_tags=[],
    )


@dataclass(slots=True)
class StreamsMember:
    member_id: str
    metadata: StreamsGroupMemberMetadataValue = field(default_factory=new_member_metadata)
    tasks: MemberTasks = field(default_factory=MemberTasks)
    target: TaskAssignment | None = None
    """None before the first assignment that counts this member."""
    session: Session = field(default_factory=Session, compare=False)


class StreamsGroup:
    """A `Group`."""

    group_type: ClassVar[TypeOfGroup] = STREAMS
    protocol_type: ClassVar[str] = "streams"
    may_expire: ClassVar[bool] = True
    offsets_may_expire: ClassVar[bool] = True
    """Of topics that the application does not read: that is always known."""
    empty_since_ms: ClassVar[None] = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        """Epoch of the topology whose topics were all right when it was looked last."""
        self.assignment_configs: Mapping[str, str] = {}
        """The settings by which tasks were assigned last."""
        self.assignment_epoch = INITIAL_EPOCH
        self.assigned_at_ms = 0
        """When the target assignment was made; 0 when there is none."""
        self.members: dict[str, StreamsMember] = {}
        """By member id, in the order of joining."""
        self.topology: StreamsGroupTopologyValue | None = None
        self.owners = TaskOwners()
        self._readers: Mapping[str, str] = {}
        """Subtopology id by the topic that it reads."""
        self._required_topics: frozenset[str] = frozenset()
        # What does not survive a restart
        self.configured: ConfiguredTopology | None = None
        """The topology compared with the existing topics; None: the next heartbeat does it."""
        self.is_to_look = True
        """Topics may have changed since `metadata_hash`: the next heartbeat looks."""
        self.shutdown_by: str | None = None
        """The member that requested the stop of the application, until no member is left."""
        self.endpoint_epoch = 0
        """Counts up when what can be asked where changes."""
        self.delayed_until_ms: int | None = None
        """When the first assignment is made: a new group waits for more members."""

    # What a group of any type can be asked

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        is_stable = all(member.tasks.is_reconciled(epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, and where the epoch is not that of the member
        STALE_MEMBER_EPOCH, with a transaction ILLEGAL_GENERATION, which producers know. An older epoch may
        commit what the member has had since then."""
        epoch, in_transaction = generation, version is None
        if epoch < 0 and not self.members:
            return NONE
        if in_transaction and epoch == -1 and not request.member_id and request.group_instance_id is None:
            # Its producer knows no member.
            return NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version is not None and version < MEMBER_EPOCHS_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.tasks.member_epoch:
            return NONE
        if epoch < member.tasks.member_epoch and self._had_since(member, epoch, request):
            return NONE
        return ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """As for a commit; an administrator names no member."""
        if member_id is None and member_epoch < 0:
            return NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return NONE if member_epoch == member.tasks.member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_deletion(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else NONE

    def check_offset_deletion(self) -> ErrorCode:
        return NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self._readers

    def owned(self) -> Iterator[tuple[str, Collection[int]]]:
        """A task reads the partition of its number of each topic of its subtopology."""
        sources: dict[str, list[str]] = {}
        for topic, subtopology_id in self._readers.items():
            sources.setdefault(subtopology_id, []).append(topic)
        for member in list(self.members.values()):
            for subtopology_id, tasks in member.tasks.assigned.active.items():
                for topic in sources.get(subtopology_id, ()):
                    yield topic, tasks

    def keys(self) -> list[Any]:
        """What refers to something goes before it; the group itself goes last."""
        group_id, members = self.group_id, self.members
        return [
            *(StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one) for one in members),
            *(StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one) for one in members),
            StreamsGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(StreamsGroupMemberMetadataKey(group_id=group_id, member_id=one) for one in members),
            StreamsGroupTopologyKey(group_id=group_id),
            StreamsGroupMetadataKey(group_id=group_id),
        ]

    # More questions

    def needs_any_of(self, names: frozenset[str]) -> bool:
        """Whether the application uses one of these topics."""
        return not self._required_topics.isdisjoint(names)

    def target_of(self, member_id: str) -> TaskAssignment:
        member = self.members.get(member_id)
        return NO_TARGET if member is None or member.target is None else member.target

    # Durable state

    def apply(self, key: Any, value: Any) -> bool:
        """Apply the record."""
        return _APPLY[key.__class__](self, key, value)

    def _apply_group(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> bool:
        if value is None:
            return False
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        configs = value.last_assignment_configs or ()
        self.assignment_configs = {config.key: config.value for config in configs}
        return True

    def _apply_topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> bool:
        self.topology = value
        self.configured = None
        self._readers = {} if value is None else subtopology_by_source(value)
        self._required_topics = frozenset() if value is None else required_topics(value)
        return True

    def _apply_member(
        self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
    ) -> bool:
        if value is None:
            member = self.members.pop(key.member_id, None)
            if member is not None:
                self._release(member)
            if not self.members:
                self.shutdown_by = None
        else:
            member = self._member(key.member_id)
            self._release(member)
            member.metadata = value
            self._take(member)
        return True

    def _apply_target_epoch(
        self,
        key: StreamsGroupTargetAssignmentMetadataKey,
        value: StreamsGroupTargetAssignmentMetadataValue | None,
    ) -> bool:
        self.assignment_epoch = INITIAL_EPOCH if value is None else value.assignment_epoch
        self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
        return True

    def _apply_target(
        self,
        key: StreamsGroupTargetAssignmentMemberKey,
        value: StreamsGroupTargetAssignmentMemberValue | None,
    ) -> bool:
        if value is not None:
            self._member(key.member_id).target = TaskAssignment(
                tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
            )
        elif key.member_id in self.members:
            self.members[key.member_id].target = None
        return True

    def _apply_current(
        self,
        key: StreamsGroupCurrentMemberAssignmentKey,
        value: StreamsGroupCurrentMemberAssignmentValue | None,
    ) -> bool:
        if value is None and key.member_id not in self.members:
            return True
        member = self._member(key.member_id)
        self._release(member)
        member.tasks = MemberTasks() if value is None else _member_tasks(value)
        self._take(member)
        return True

    # Inside

    def _member(self, member_id: str) -> StreamsMember:
        """A compacted log may have what a member runs before who it is."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = StreamsMember(member_id)
        return member

    def _take(self, member: StreamsMember) -> None:
        self.owners.take(member.metadata.process_id, member.tasks.assigned)
        self.owners.take(member.metadata.process_id, member.tasks.to_revoke)

    def _release(self, member: StreamsMember) -> None:
        self.owners.release(member.metadata.process_id, member.tasks.assigned)
        self.owners.release(member.metadata.process_id, member.tasks.to_revoke)

    def _had_since(self, member: StreamsMember, epoch: int, request: CommitRequest) -> bool:
        """Whether the member has had all that it commits since that epoch."""
        tasks = member.tasks
        for topic in request.topics:
            subtopology_id = self._readers.get(topic.name, "")
            assigned = tasks.assigned.active.get(subtopology_id, {})
            to_revoke = tasks.to_revoke.active.get(subtopology_id, {})
            for partition in topic.partitions:
                index = partition.partition_index
                since = assigned.get(index, to_revoke.get(index))
                if since is None or epoch < since:
                    return False
        return True


_APPLY: dict[type, Callable[[StreamsGroup, Any, Any], bool]] = {
    StreamsGroupMetadataKey: StreamsGroup._apply_group,
    StreamsGroupTopologyKey: StreamsGroup._apply_topology,
    StreamsGroupMemberMetadataKey: StreamsGroup._apply_member,
    StreamsGroupTargetAssignmentMetadataKey: StreamsGroup._apply_target_epoch,
    StreamsGroupTargetAssignmentMemberKey: StreamsGroup._apply_target,
    StreamsGroupCurrentMemberAssignmentKey: StreamsGroup._apply_current,
}


# As the log knows it


def group_value(
    group_epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> StreamsGroupMetadataValue:
    return StreamsGroupMetadataValue(
        epoch=group_epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[KeyValue(key=key, value=value) for key, value in sorted(configs.items())],
    )


def target_value(target: TaskAssignment) -> StreamsGroupTargetAssignmentMemberValue:
    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=listed_tasks(target.active, TaskIds),
        standby_tasks=listed_tasks(target.standby, TaskIds),
        warmup_tasks=listed_tasks(target.warmup, TaskIds),
    )


def current_tasks_value(tasks: MemberTasks) -> StreamsGroupCurrentMemberAssignmentValue:
    assigned, to_revoke = tasks.assigned, tasks.to_revoke
    return StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=tasks.member_epoch,
        previous_member_epoch=tasks.previous_member_epoch,
        state=tasks.state,
        active_tasks=_with_epochs(assigned.active),
        standby_tasks=listed_tasks(assigned.standby, AssignedTaskIds),
        warmup_tasks=listed_tasks(assigned.warmup, AssignedTaskIds),
        active_tasks_pending_revocation=_with_epochs(to_revoke.active),
        standby_tasks_pending_revocation=listed_tasks(to_revoke.standby, AssignedTaskIds),
        warmup_tasks_pending_revocation=listed_tasks(to_revoke.warmup, AssignedTaskIds),
    )


def listed_tasks(tasks: Tasks, make: Callable[..., ListedTasks]) -> list[ListedTasks]:
    """Tasks in order, as a record or a message lists them; `make` is its class of one subtopology's tasks."""
    return [
        make(subtopology_id=subtopology_id, partitions=sorted(partitions))
        for subtopology_id, partitions in sorted(tasks.items())
    ]


def _with_epochs(epochs: EpochsOfTasks) -> list[AssignedTaskIds]:
    listed = []
    for subtopology_id, of_each in sorted(epochs.items()):
        partitions = sorted(of_each)
        since = [of_each[partition] for partition in partitions]
        listed.append(
            AssignedTaskIds(subtopology_id=subtopology_id, partitions=partitions, assignment_epochs=since)
        )
    return listed


def tasks_of(listed: Iterable[TaskIds | AssignedTaskIds | heartbeat.TaskIds]) -> Tasks:
    """Tasks that a record or a request lists; a request may name a subtopology twice."""
    tasks: dict[str, frozenset[int]] = {}
    for one in listed:
        if one.partitions:
            tasks[one.subtopology_id] = tasks.get(one.subtopology_id, frozenset()).union(one.partitions)
    return tasks


def _member_tasks(value: StreamsGroupCurrentMemberAssignmentValue) -> MemberTasks:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    epoch = value.member_epoch
    return MemberTasks(
        epoch,
        value.previous_member_epoch,
        state,
        HeldTasks(
            _epochs(value.active_tasks, epoch), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
        ),
        HeldTasks(
            _epochs(value.active_tasks_pending_revocation, epoch),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        ),
    )


def _epochs(listed: Iterable[AssignedTaskIds], member_epoch: int) -> EpochsOfTasks:
    epochs: dict[str, Mapping[int, int]] = {}
    for one in listed:
        since = one.assignment_epochs
        if since is None or len(since) != len(one.partitions):
            # Brokers before 4.3 did not say; nothing older than the member's epoch is believed then.
            epochs[one.subtopology_id] = dict.fromkeys(one.partitions, member_epoch)
        else:
            epochs[one.subtopology_id] = dict(zip(one.partitions, since, strict=True))
    return {subtopology_id: of_each for subtopology_id, of_each in epochs.items() if of_each}
