"""One share group (KIP-932): members, epochs, target assignment, and which share partitions have a state.

This is data with its invariants; who may do what, and when, is decided in `membership.py` and
`partition_states.py`. What survives a restart is written by `ShareGroup.apply` alone, from records that have
just been appended or are read back. The values in it are shared with these records and never changed in
place. The rest (deadlines, what is to be looked at) is only here.

Source: ShareGroup.java, ShareGroupMember.java and ModernGroup.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.group import SHARE, CommitRequest, TypeOfGroup
from odradek.coordinator.groups.sessions import Session
from odradek.coordinator.shares.groups.assignor import NO_PARTITIONS, Partitions
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import (
    DeletingTopicInfo,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitionsInfo,
)

NONE = ErrorCode.NONE
FIRST_EPOCH = 1
"""Of a new group, and of its first target assignment, which is empty."""
STABLE = 0
"""The only state of a member: it takes what it gets."""
NO_METADATA = ShareGroupMemberMetadataValue(
    rack_id=None, client_id="", client_host="", subscribed_topic_names=[]
)
"""Of a member whose record has not been read yet."""


class MemberAssignment(NamedTuple):
    """What a member has."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    partitions: Partitions = NO_PARTITIONS


@dataclass(slots=True)
class ShareMember:
    member_id: str
    metadata: ShareGroupMemberMetadataValue = field(default_factory=lambda: NO_METADATA)
    current: MemberAssignment = field(default_factory=MemberAssignment)
    target: Partitions | None = None
    """None before the first assignment that counts this member."""
    session: Session = field(default_factory=Session, compare=False)


class TopicStates(NamedTuple):
    """The states of some partitions of a topic."""

    name: str
    partitions: frozenset[int]


class PartitionStates(NamedTuple):
    """Which share partitions have a state, by topic id."""

    initializing: Mapping[bytes, TopicStates] = {}
    """The share coordinator has been asked to set them up."""
    initialized: Mapping[bytes, TopicStates] = {}
    deleting: Mapping[bytes, str] = {}
    """Names of topics whose states the share coordinator has been asked to delete."""


NO_STATES = PartitionStates()


class ShareGroup:
    """A `Group`."""

    group_type: ClassVar[TypeOfGroup] = SHARE
    protocol_type: ClassVar[str] = "share"
    may_expire: ClassVar[bool] = False
    """It stays until it is deleted, since its states would stay behind."""
    offsets_may_expire: ClassVar[bool] = False
    empty_since_ms: ClassVar[None] = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """When the target assignment was made; 0 when there is none."""
        self.members: dict[str, ShareMember] = {}
        """By member id, in the order of joining."""
        self.subscriptions: dict[str, int] = {}
        """How many members subscribe to a topic, by its name."""
        self.recorded_states: PartitionStates | None = None
        """None: the log has no record of them."""
        # What does not survive a restart
        self.is_to_look = True
        """Topics may have changed since `metadata_hash`: the next heartbeat looks."""
        self.are_states_complete = False
        """Every partition of a subscribed topic is known to have a state."""
        self.asked_at_ms: dict[bytes, int] = {}
        """When the states of a topic that is being set up were last asked for, by topic id."""
        self.deletion_asked_at_ms: dict[bytes, int] = {}
        """When the deletion of the states of a topic was asked for that is still under way, by topic id."""
        self._is_assigned: bool | None = None
        """Whether the targets have all partitions with a state; None: it is not known."""

    # What a group of any type can be asked

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """It has no offsets of that kind."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whoever asks is told of no offset."""
        return NONE

    def check_deletion(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else NONE

    def check_offset_deletion(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def keys(self) -> list[Any]:
        """In the order in which Kafka deletes them: what refers to something goes before it."""
        group_id, members = self.group_id, self.members
        return [
            *(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one) for one in members),
            *(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one) for one in members),
            ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
            *(ShareGroupMemberMetadataKey(group_id=group_id, member_id=one) for one in members),
            ShareGroupStatePartitionMetadataKey(group_id=group_id),
            ShareGroupMetadataKey(group_id=group_id),
        ]

    # More questions

    @property
    def states(self) -> PartitionStates:
        return self.recorded_states or NO_STATES

    def target_of(self, member_id: str) -> Partitions:
        member = self.members.get(member_id)
        return NO_PARTITIONS if member is None or member.target is None else member.target

    def topics_with(self, before: Collection[str], after: Collection[str]) -> Collection[str]:
        """The names of the subscribed topics, once a member has changed `before` to `after`."""
        if before == after:
            return self.subscriptions.keys()
        counts = dict(self.subscriptions)
        _count(counts, before, -1)
        _count(counts, after, 1)
        return counts.keys()

    def has_all_assigned(self, view: ClusterView) -> bool:
        """Whether each partition with a state, of a subscribed topic, is in the target of a member."""
        if self._is_assigned is None:
            self._is_assigned = self._look_for_unassigned(view)
        return self._is_assigned

    def _look_for_unassigned(self, view: ClusterView) -> bool:
        assigned: dict[bytes, set[int]] = {}
        for member in self.members.values():
            for topic_id, partitions in (member.target or NO_PARTITIONS).items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return all(
            assigned.get(topic_id, set()) == states.partitions
            for topic_id, states in self.states.initialized.items()
            if states.name in self.subscriptions and topic_id in view.topic_names
        )

    def have_topics_changed(self) -> None:
        """The next heartbeat looks at everything again."""
        self.is_to_look = True
        self.are_states_complete = False
        self._is_assigned = None

    # Durable state

    def apply(self, key: Any, value: Any) -> bool:
        """Apply the record."""
        self._is_assigned = None
        return _APPLY[key.__class__](self, key, value)

    def _apply_group(self, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None) -> bool:
        if value is None:
            return False
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        return True

    def _apply_member(
        self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None
    ) -> bool:
        self.are_states_complete = False
        if value is None:
            member = self.members.pop(key.member_id, None)
            if member is not None:
                _count(self.subscriptions, member.metadata.subscribed_topic_names, -1)
        else:
            member = self._member(key.member_id)
            _count(self.subscriptions, member.metadata.subscribed_topic_names, -1)
            member.metadata = value
            _count(self.subscriptions, value.subscribed_topic_names, 1)
        return True

    def _apply_target_epoch(
        self,
        key: ShareGroupTargetAssignmentMetadataKey,
        value: ShareGroupTargetAssignmentMetadataValue | None,
    ) -> bool:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
        return True

    def _apply_target(
        self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> bool:
        if value is not None:
            self._member(key.member_id).target = _partitions(value.topic_partitions)
        elif key.member_id in self.members:
            self.members[key.member_id].target = None
        return True

    def _apply_current(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> bool:
        if value is not None:
            self._member(key.member_id).current = MemberAssignment(
                value.member_epoch, value.previous_member_epoch, _partitions(value.assigned_partitions)
            )
        elif key.member_id in self.members:
            self.members[key.member_id].current = MemberAssignment()
        return True

    def _apply_states(
        self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
    ) -> bool:
        self.are_states_complete = False
        self.recorded_states = None if value is None else _states(value)
        initializing = self.states.initializing
        for topic_id in self.asked_at_ms.keys() - initializing.keys():
            del self.asked_at_ms[topic_id]
        return True

    def _member(self, member_id: str) -> ShareMember:
        """A compacted log may have what a member has before who it is."""
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = ShareMember(member_id)
        return member


_APPLY: dict[type, Callable[[ShareGroup, Any, Any], bool]] = {
    ShareGroupMetadataKey: ShareGroup._apply_group,
    ShareGroupMemberMetadataKey: ShareGroup._apply_member,
    ShareGroupTargetAssignmentMetadataKey: ShareGroup._apply_target_epoch,
    ShareGroupTargetAssignmentMemberKey: ShareGroup._apply_target,
    ShareGroupCurrentMemberAssignmentKey: ShareGroup._apply_current,
    ShareGroupStatePartitionMetadataKey: ShareGroup._apply_states,
}


def _count(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    for name in names:
        count = counts.get(name, 0) + change
        if count:
            counts[name] = count
        else:
            del counts[name]


# As the log knows it


def target_value(target: Partitions) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_topic_partitions(target))


def current_value(current: MemberAssignment) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=STABLE,
        assigned_partitions=_topic_partitions(current.partitions),
    )


def states_value(states: PartitionStates) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topic_states(states.initializing),
        initialized_topics=_topic_states(states.initialized),
        deleting_topics=[
            DeletingTopicInfo(topic_id=topic_id, topic_name=name)
            for topic_id, name in sorted(states.deleting.items())
        ],
    )


def _topic_partitions(partitions: Partitions) -> list[TopicPartition]:
    return [
        TopicPartition(topic_id=topic_id, partitions=sorted(indexes))
        for topic_id, indexes in sorted(partitions.items())
    ]


def _partitions(listed: Iterable[TopicPartition]) -> Partitions:
    return {one.topic_id: frozenset(one.partitions) for one in listed if one.partitions}


def _topic_states(states: Mapping[bytes, TopicStates]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=one.name, partitions=sorted(one.partitions))
        for topic_id, one in sorted(states.items())
    ]


def _states(value: ShareGroupStatePartitionMetadataValue) -> PartitionStates:
    return PartitionStates(
        _states_by_topic(value.initializing_topics),
        _states_by_topic(value.initialized_topics),
        {one.topic_id: one.topic_name for one in value.deleting_topics},
    )


def _states_by_topic(listed: Iterable[TopicPartitionsInfo]) -> Mapping[bytes, TopicStates]:
    return {
        one.topic_id: TopicStates(one.topic_name, frozenset(one.partitions))
        for one in listed
        if one.partitions
    }
