"""One group of the consumer protocol (KIP-848): a group with epochs whose members subscribe to topics by name
or by pattern, may be static, and may use the classic protocol.

Source: ConsumerGroup.java and ModernGroup.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.classic_group import OfferedProtocol
from odradek.coordinator.groups.epochs.group import NO_EPOCHS, EpochGroup, EpochMember, appliers_of
from odradek.coordinator.groups.epochs.records import EpochRecords, epochs_of
from odradek.coordinator.groups.group import CONSUMER, TypeOfGroup
from odradek.coordinator.groups.reconciliation import (
    Assignment,
    AssignmentEpochs,
    MemberAssignment,
    MemberState,
)
from odradek.coordinator.groups.sessions import Session
from odradek.coordinator.groups.subscriptions import ResolvedPattern, Subscriptions, add_to_count
from odradek.wire.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from odradek.wire.schema import ZERO_UUID

NOTHING: Assignment = {}
NO_METADATA = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id=None,
    client_id="",
    client_host="",
    subscribed_topic_names=[],
    subscribed_topic_regex="",
    rebalance_timeout_ms=-1,
    server_assignor=None,
    classic_member_metadata=None,
)
"""Metadata of a member whose metadata record has not been read yet."""


@dataclass(slots=True)
class ConsumerSession(Session):
    has_join_timer: bool = False
    """A classic member has to join again, in time."""
    has_sync_timer: bool = False
    """A classic member that has joined has so long to sync."""


@dataclass(slots=True)
class ConsumerMember(EpochMember[ConsumerGroupMemberMetadataValue, MemberAssignment]):
    session: ConsumerSession = field(default_factory=ConsumerSession, compare=False)

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def pattern(self) -> str:
        """The regular expression that it subscribes to; empty for none."""
        return self.metadata.subscribed_topic_regex or ""

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic_member_metadata is not None


class ConsumerGroup(EpochGroup[ConsumerMember, Assignment]):
    """`topics` gives the newest view of the cluster."""

    group_type: ClassVar[TypeOfGroup] = CONSUMER
    protocol_type: ClassVar[str] = "consumer"
    no_target = NOTHING

    def __init__(self, group_id: str, topics: Callable[[], ClusterView]) -> None:
        super().__init__(group_id)
        self._topics = topics
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.subscriptions = Subscriptions()
        self.has_partition_metadata = False
        """A record of an older broker is to be taken back."""
        self.classic_member_count = 0
        self._classic_protocol_counts: dict[str, int] = {}
        """By protocol, how many classic members know it."""
        self._owners: dict[bytes, dict[int, str]] = {}
        """Member id by topic id and partition."""
        self._shared_names: list[str] = []
        """The topic names of the last record: members with the same names share this list."""
        self._assignor_counts: dict[str, int] = {}
        # What does not survive a restart
        self.has_new_topics = True
        """There may be topics that no pattern was compared with."""
        self.matching_since_ms: int | None = None
        """When the search for topics that match began which is under way."""
        self.match_failed_at_ms: int | None = None
        """When the last search began, if it came to nothing."""

    # What a group of any type can be asked

    def is_subscribed_to(self, topic: str) -> bool:
        return self.subscriptions.include(topic)

    def owned(self, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        """Topics, and partitions that members have."""
        for topic_id, owners in list(self._owners.items()):
            topic = view.topic_names.get(topic_id)
            if topic is not None:
                yield topic, owners

    # More questions

    def owner_epoch_of(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that has a partition; -1 without one."""
        owners = self._owners.get(topic_id)
        member_id = None if owners is None else owners.get(partition)
        return -1 if member_id is None else self.members[member_id].current.member_epoch

    def supports_classic(self, protocols: Iterable[OfferedProtocol]) -> bool:
        """Whether all classic members know one of these: a member with them could go with them into a classic
        group."""
        count, counts = self.classic_member_count, self._classic_protocol_counts
        return any(counts.get(protocol.name, 0) == count for protocol in protocols)

    def assignor_counts(self) -> dict[str, int]:
        """How many members would like each assignor to be used."""
        return dict(self._assignor_counts)

    def is_incomplete(self, view: ClusterView) -> bool:
        """Whether the target leaves out partitions of topics that members subscribe to by name, or there is
        none yet: as a classic group's last leader may have left it."""
        given: dict[bytes, int] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                given[topic_id] = given.get(topic_id, 0) + len(partitions)
        topics = [view.topics[name] for name in self.subscriptions.name_counts if name in view.topics]
        return not self.assignment_epoch or any(
            given.get(topic.topic_id, 0) < len(topic.partitions) for topic in topics
        )

    # Durable state

    def _apply_partition_metadata(self, key: ConsumerGroupPartitionMetadataKey, value: Any) -> bool:
        self.has_partition_metadata = value is not None
        return True

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> bool:
        if value is not None:
            # Most members subscribe to the same, which may be ten thousand names: one list is enough.
            if value.subscribed_topic_names == self._shared_names:
                value.subscribed_topic_names = self._shared_names
            else:
                self._shared_names = value.subscribed_topic_names
            if value.instance_id is not None:
                self.static_members[value.instance_id] = key.member_id
        return super()._apply_member(key, value)

    def _apply_pattern(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> bool:
        if value is None:
            self.subscriptions.resolved.pop(key.regular_expression, None)
        else:
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
            self.subscriptions.resolved[key.regular_expression] = resolved
        return True

    # Inside

    def new_member(self, member_id: str) -> ConsumerMember:
        return ConsumerMember(member_id, NO_METADATA, MemberAssignment())

    def _more_keys(self) -> Iterable[Any]:
        for pattern in self.subscriptions.resolved:
            yield ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=pattern)
        # Also where there is no such record, as Kafka does.
        yield ConsumerGroupPartitionMetadataKey(group_id=self.group_id)

    def _removed(self, member: ConsumerMember) -> None:
        if self.static_members.get(member.instance_id or "") == member.member_id:
            del self.static_members[member.instance_id or ""]

    def _set_current(self, member: ConsumerMember, current: MemberAssignment) -> None:
        owners, member_id = self._owners, member.member_id
        before = member.current
        if before.assigned is not current.assigned or before.revoking is not current.revoking:
            for partitions_of in (before.assigned, before.revoking):
                for topic_id, partitions in partitions_of.items():
                    of_topic = owners.get(topic_id, {})
                    for partition in partitions:
                        # A compacted log may name the next owner first.
                        if of_topic.get(partition) == member_id:
                            del of_topic[partition]
                    if not of_topic:
                        owners.pop(topic_id, None)
            for partitions_of in (current.assigned, current.revoking):
                for topic_id, partitions in partitions_of.items():
                    owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))
        member.current = current

    def _count(self, member: ConsumerMember, change: int) -> None:
        """Add or take away what a member's metadata adds to the counts."""
        metadata = member.metadata
        self.subscriptions.count(metadata, change)
        if metadata.server_assignor is not None:
            add_to_count(self._assignor_counts, metadata.server_assignor, change)
        if metadata.classic_member_metadata is not None:
            self.classic_member_count += change
            for name in {protocol.name for protocol in metadata.classic_member_metadata.supported_protocols}:
                add_to_count(self._classic_protocol_counts, name, change)

    def _epochs_of(self, member: ConsumerMember, topic: Any) -> tuple[Mapping[int, int], Mapping[int, int]]:
        topics, topic_id = self._topics().topics, getattr(topic, "topic_id", ZERO_UUID)
        if topic_id == ZERO_UUID and topic.name in topics:
            topic_id = topics[topic.name].topic_id
        current = member.current
        return current.assigned.get(topic_id, NO_EPOCHS), current.revoking.get(topic_id, NO_EPOCHS)


# As the log knows it


def _current_value(current: MemberAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned_partitions=_with_epochs(current.assigned),
        partitions_pending_revocation=_with_epochs(current.revoking),
    )


def _target_value(target: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(target.items())
        ]
    )


def _target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberAssignment:
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    return MemberAssignment(
        state,
        value.member_epoch,
        value.previous_member_epoch,
        _without_records(value.assigned_partitions, value.member_epoch),
        _without_records(value.partitions_pending_revocation, value.member_epoch),
    )


def _with_epochs(epochs: AssignmentEpochs) -> list[TopicPartitions]:
    records = []
    for topic_id, partitions in sorted(epochs.items()):
        indexes = sorted(partitions)
        since = [partitions[index] for index in indexes]
        records.append(TopicPartitions(topic_id=topic_id, partitions=indexes, assignment_epochs=since))
    return records


def _without_records(records: Iterable[TopicPartitions], member_epoch: int) -> AssignmentEpochs:
    return {record.topic_id: epochs_of(record, member_epoch) for record in records}


ConsumerGroup.records = EpochRecords(
    epoch_key=ConsumerGroupMetadataKey,
    epoch_value=ConsumerGroupMetadataValue,
    member_key=ConsumerGroupMemberMetadataKey,
    target_epoch_key=ConsumerGroupTargetAssignmentMetadataKey,
    target_epoch_value=ConsumerGroupTargetAssignmentMetadataValue,
    target_key=ConsumerGroupTargetAssignmentMemberKey,
    target_value=_target_value,
    target_of=_target_of,
    current_key=ConsumerGroupCurrentMemberAssignmentKey,
    current_value=_current_value,
    current_of=_current_of,
)
ConsumerGroup.appliers = {
    **appliers_of(ConsumerGroup),
    ConsumerGroupPartitionMetadataKey: ConsumerGroup._apply_partition_metadata,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._apply_pattern,
}
