"""One share group (KIP-932): a group with epochs whose topics have share partitions with a state.

Source: ShareGroup.java and ShareGroupMember.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.epochs.group import EpochGroup, EpochMember, appliers_of
from odradek.coordinator.groups.epochs.records import EpochRecords
from odradek.coordinator.groups.group import SHARE, CommitRequest, TypeOfGroup
from odradek.coordinator.groups.subscriptions import add_to_count
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
STABLE = 0
"""The only state of a member: it takes what it gets."""
NO_METADATA = ShareGroupMemberMetadataValue(
    rack_id=None, client_id="", client_host="", subscribed_topic_names=[]
)
"""Metadata of a member whose record has not been read yet."""


class MemberAssignment(NamedTuple):
    """Assignment of a member."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    partitions: Partitions = NO_PARTITIONS

    @property
    def is_revoking(self) -> bool:
        """False: nobody has to give a partition up before another may have it."""
        return False

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.member_epoch == epoch


ShareMember = EpochMember[ShareGroupMemberMetadataValue, MemberAssignment]


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


class ShareGroup(EpochGroup[ShareMember, Partitions]):
    group_type: ClassVar[TypeOfGroup] = SHARE
    protocol_type: ClassVar[str] = "share"
    offsets_may_expire: ClassVar[bool] = False
    no_target = NO_PARTITIONS

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.subscriptions: dict[str, int] = {}
        """How many members subscribe to a topic, by its name."""
        self.recorded_states: PartitionStates | None = None
        """None: the log has no record of them."""
        # What does not survive a restart
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
    def may_expire(self) -> bool:
        """False: its states would stay behind."""
        return False

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """Refuse: the group has no offsets of that kind."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whoever asks is told of no offset."""
        return NONE

    def check_offset_deletion(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    # More questions

    @property
    def states(self) -> PartitionStates:
        return self.recorded_states or NO_STATES

    def topics_with(self, before: Collection[str], after: Collection[str]) -> Collection[str]:
        """The names of the subscribed topics, once a member has changed `before` to `after`."""
        if before == after:
            return self.subscriptions.keys()
        counts = dict(self.subscriptions)
        for names, change in ((before, -1), (after, 1)):
            for name in names:
                add_to_count(counts, name, change)
        return counts.keys()

    def has_all_assigned(self, view: ClusterView) -> bool:
        """Whether each partition with a state, of a subscribed topic, is in the target of a member."""
        if self._is_assigned is None:
            self._is_assigned = self._look_for_unassigned(view)
        return self._is_assigned

    def _look_for_unassigned(self, view: ClusterView) -> bool:
        assigned: dict[bytes, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return all(
            assigned.get(topic_id, set()) == states.partitions
            for topic_id, states in self.states.initialized.items()
            if states.name in self.subscriptions and topic_id in view.topic_names
        )

    def have_topics_changed(self) -> None:
        """The next heartbeat looks at everything again."""
        self.topics_may_have_changed = True
        self.are_states_complete = False
        self._is_assigned = None

    # Durable state

    def apply(self, key: Any, value: Any) -> bool:
        """Apply the record."""
        self._is_assigned = None
        return super().apply(key, value)

    def _apply_states(
        self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
    ) -> bool:
        self.are_states_complete = False
        self.recorded_states = None if value is None else _states(value)
        initializing = self.states.initializing
        for topic_id in self.asked_at_ms.keys() - initializing.keys():
            del self.asked_at_ms[topic_id]
        return True

    # Inside

    def new_member(self, member_id: str) -> ShareMember:
        return ShareMember(member_id, NO_METADATA, MemberAssignment())

    def _more_keys(self) -> Iterable[Any]:
        return (ShareGroupStatePartitionMetadataKey(group_id=self.group_id),)

    def _count(self, member: ShareMember, change: int) -> None:
        self.are_states_complete = False
        for name in member.metadata.subscribed_topic_names:
            add_to_count(self.subscriptions, name, change)


# As the log knows it


def _target_value(target: Partitions) -> ShareGroupTargetAssignmentMemberValue:
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_topic_partitions(target))


def _target_of(value: ShareGroupTargetAssignmentMemberValue) -> Partitions:
    return _partitions(value.topic_partitions)


def _current_value(current: MemberAssignment) -> ShareGroupCurrentMemberAssignmentValue:
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=STABLE,
        assigned_partitions=_topic_partitions(current.partitions),
    )


def _current_of(value: ShareGroupCurrentMemberAssignmentValue) -> MemberAssignment:
    return MemberAssignment(
        value.member_epoch, value.previous_member_epoch, _partitions(value.assigned_partitions)
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


ShareGroup.records = EpochRecords(
    epoch_key=ShareGroupMetadataKey,
    epoch_value=ShareGroupMetadataValue,
    member_key=ShareGroupMemberMetadataKey,
    target_epoch_key=ShareGroupTargetAssignmentMetadataKey,
    target_epoch_value=ShareGroupTargetAssignmentMetadataValue,
    target_key=ShareGroupTargetAssignmentMemberKey,
    target_value=_target_value,
    target_of=_target_of,
    current_key=ShareGroupCurrentMemberAssignmentKey,
    current_value=_current_value,
    current_of=_current_of,
)
ShareGroup.appliers = {
    **appliers_of(ShareGroup),
    ShareGroupStatePartitionMetadataKey: ShareGroup._apply_states,
}
