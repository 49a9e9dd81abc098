"""One group of the streams protocol (KIP-1071): a group with epochs that has a topology, and members that run
tasks of it. The topology compared with the cluster, and a request for a shutdown, survive no restart.

Source: StreamsGroup.java and StreamsGroupMember.java of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from odradek.coordinator.groups.epochs.group import NO_EPOCHS, EpochGroup, EpochMember, appliers_of
from odradek.coordinator.groups.epochs.records import EpochRecords, epochs_of
from odradek.coordinator.groups.group import STREAMS, TypeOfGroup
from odradek.coordinator.streams.assignor import TaskAssignment, Tasks
from odradek.coordinator.streams.descriptions import NONE_STORED, Pause
from odradek.coordinator.streams.reconciliation import (
    NO_TASKS,
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

NO_TOPOLOGY_EPOCH = -1
NO_TARGET = TaskAssignment()
ListedTasks = TypeVar("ListedTasks")


def new_member_metadata() -> StreamsGroupMemberMetadataValue:
    """Metadata of a member whose record has not been read yet."""
    return StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        topology_epoch=NO_TOPOLOGY_EPOCH,
        process_id="",
        client_tags=[],
    )


class TaskOffsets(NamedTuple):
    """Offsets by subtopology and partition, in the order in which the member named them."""

    restored: Mapping[tuple[str, int], int] = {}
    """How far a task has restored its state."""
    ends: Mapping[tuple[str, int], int] = {}
    """The ends of the changelogs."""


NO_OFFSETS = TaskOffsets()

StreamsMember = EpochMember[StreamsGroupMemberMetadataValue, MemberTasks]


class StreamsGroup(EpochGroup[StreamsMember, TaskAssignment]):
    group_type: ClassVar[TypeOfGroup] = STREAMS
    protocol_type: ClassVar[str] = "streams"
    no_target = NO_TARGET

    def __init__(self, group_id: str, keeps_description: bool = False) -> None:
        """`keeps_description`: there is a store of descriptions of topologies."""
        super().__init__(group_id)
        self.keeps_description = keeps_description
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        """Epoch of the topology whose topics were all right when it was looked last."""
        self.assignment_configs: Mapping[str, str] = {}
        """The settings by which tasks were assigned last."""
        self.stored_description_epoch = NONE_STORED
        """Epoch of the topology whose description is stored; UNCERTAIN while a change of the store is under
        way, and after one that was interrupted."""
        self.failed_description_epoch = NONE_STORED
        """Epoch of the topology whose description the store has refused for good."""
        self.topology: StreamsGroupTopologyValue | None = None
        self.owners = TaskOwners()
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self._readers: Mapping[str, str] = {}
        """Subtopology id by the topic that it reads."""
        self._required_topics: frozenset[str] = frozenset()
        # What does not survive a restart
        self.configured: ConfiguredTopology | None = None
        """The topology compared with the existing topics; None: the next heartbeat does it."""
        self.shutdown_by: str | None = None
        """The member that requested the stop of the application, until no member is left."""
        self.endpoint_epoch = 0
        """Counts up when what can be asked where changes."""
        self.task_offsets: dict[str, TaskOffsets] = {}
        """By member: what it has told of the changelogs of its tasks."""
        self.description_pause: Pause | None = None
        """Until when no member is asked for a description of the topology."""
        self.delayed_until_ms: int | None = None
        """When the first assignment is made: a new group waits for more members."""

    # What a group of any type can be asked

    @property
    def may_expire(self) -> bool:
        """Not before its description is deleted."""
        return not self.has_description

    @property
    def state_name(self) -> str:
        if self.members and (self.topology is None or self.topology.epoch != self.validated_topology_epoch):
            return "NotReady"
        return super().state_name

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self._readers

    def owned(self) -> Iterator[tuple[str, Collection[int]]]:
        """A task reads the partition of its number of each topic of its subtopology."""
        sources: dict[str, list[str]] = {}
        for topic, subtopology_id in self._readers.items():
            sources.setdefault(subtopology_id, []).append(topic)
        for member in list(self.members.values()):
            for subtopology_id, tasks in member.current.assigned.active.items():
                for topic in sources.get(subtopology_id, ()):
                    yield topic, tasks

    def keys(self) -> list[Any]:
        """Kafka deletes the topology last."""
        return [*super().keys(), StreamsGroupTopologyKey(group_id=self.group_id)]

    # More questions

    @property
    def has_description(self) -> bool:
        """Whether one is stored, or may be."""
        return self.keeps_description and self.stored_description_epoch != NONE_STORED

    def beside_epoch(self, validated_epoch: int, configs: Mapping[str, str]) -> dict[str, Any]:
        """Fields of the group's record beside its epoch and its hash."""
        return {
            "validated_topology_epoch": validated_epoch,
            "last_assignment_configs": [
                KeyValue(key=key, value=value) for key, value in sorted(configs.items())
            ],
            "stored_description_topology_epoch": self.stored_description_epoch,
            "failed_description_topology_epoch": self.failed_description_epoch,
        }

    def needs_any_of(self, names: frozenset[str]) -> bool:
        """Whether the application uses one of these topics."""
        return not self._required_topics.isdisjoint(names)

    # Durable state

    def _apply_epoch(self, key: StreamsGroupMetadataKey, value: StreamsGroupMetadataValue | None) -> bool:
        if value is not None:
            self.validated_topology_epoch = value.validated_topology_epoch
            configs = value.last_assignment_configs or ()
            self.assignment_configs = {config.key: config.value for config in configs}
            self.stored_description_epoch = value.stored_description_topology_epoch
            self.failed_description_epoch = value.failed_description_topology_epoch
        return super()._apply_epoch(key, value)

    def _apply_member(
        self, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
    ) -> bool:
        if value is not None and value.instance_id is not None:
            self.static_members[value.instance_id] = key.member_id
        return super()._apply_member(key, value)

    def _apply_topology(self, key: StreamsGroupTopologyKey, value: StreamsGroupTopologyValue | None) -> bool:
        self.topology = value
        self.configured = None
        self._readers = {} if value is None else subtopology_by_source(value)
        self._required_topics = frozenset() if value is None else required_topics(value)
        return True

    # Inside

    def new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id, new_member_metadata(), MemberTasks())

    def _count(self, member: StreamsMember, change: int) -> None:
        """The process of a member may have changed, which has its tasks."""
        change_owner = self.owners.take if change > 0 else self.owners.release
        change_owner(member.metadata.process_id, member.current.assigned)
        change_owner(member.metadata.process_id, member.current.to_revoke)

    def _set_current(self, member: StreamsMember, current: MemberTasks) -> None:
        self._count(member, -1)
        member.current = current
        self._count(member, 1)

    def _removed(self, member: StreamsMember) -> None:
        self.task_offsets.pop(member.member_id, None)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]
        if not self.members:
            self.shutdown_by = None

    def _epochs_of(self, member: StreamsMember, topic: Any) -> tuple[Mapping[int, int], Mapping[int, int]]:
        subtopology_id, tasks = self._readers.get(topic.name, ""), member.current
        return (
            tasks.assigned.active.get(subtopology_id, NO_EPOCHS),
            tasks.to_revoke.active.get(subtopology_id, NO_EPOCHS),
        )


# As the log knows it


def _target_value(target: TaskAssignment) -> StreamsGroupTargetAssignmentMemberValue:
    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=listed_tasks(target.active, TaskIds),
        standby_tasks=listed_tasks(target.standby, TaskIds),
        warmup_tasks=listed_tasks(target.warmup, TaskIds),
    )


def _target_of(value: StreamsGroupTargetAssignmentMemberValue) -> TaskAssignment:
    return TaskAssignment(
        tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
    )


def _current_value(tasks: MemberTasks) -> StreamsGroupCurrentMemberAssignmentValue:
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


def _current_of(value: StreamsGroupCurrentMemberAssignmentValue) -> MemberTasks:
    epoch = value.member_epoch
    to_revoke = HeldTasks(
        _epochs(value.active_tasks_pending_revocation, epoch),
        tasks_of(value.standby_tasks_pending_revocation),
        tasks_of(value.warmup_tasks_pending_revocation),
    )
    return MemberTasks(
        epoch,
        value.previous_member_epoch,
        _state_of(value.state, to_revoke),
        HeldTasks(
            _epochs(value.active_tasks, epoch), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
        ),
        to_revoke,
    )


def _state_of(number: int, to_revoke: HeldTasks) -> MemberState:
    """The state that a record has. Builds before 0.1.0 counted from 0: theirs are known from the tasks, since
    a member in the state UNREVOKED_TASKS alone has some to give up."""
    try:
        state = MemberState(number or MemberState.STABLE)
    except ValueError:
        return MemberState.UNKNOWN
    if state is MemberState.STABLE and to_revoke != NO_TASKS:
        return MemberState.UNREVOKED_TASKS
    if state is MemberState.UNREVOKED_TASKS and to_revoke == NO_TASKS:
        return MemberState.UNRELEASED_TASKS
    return state


def _epochs(listed: Iterable[AssignedTaskIds], member_epoch: int) -> EpochsOfTasks:
    return {one.subtopology_id: epochs_of(one, member_epoch) for one in listed if one.partitions}


StreamsGroup.records = EpochRecords(
    epoch_key=StreamsGroupMetadataKey,
    epoch_value=StreamsGroupMetadataValue,
    member_key=StreamsGroupMemberMetadataKey,
    target_epoch_key=StreamsGroupTargetAssignmentMetadataKey,
    target_epoch_value=StreamsGroupTargetAssignmentMetadataValue,
    target_key=StreamsGroupTargetAssignmentMemberKey,
    target_value=_target_value,
    target_of=_target_of,
    current_key=StreamsGroupCurrentMemberAssignmentKey,
    current_value=_current_value,
    current_of=_current_of,
)
StreamsGroup.appliers = {
    **appliers_of(StreamsGroup),
    StreamsGroupTopologyKey: StreamsGroup._apply_topology,
}
