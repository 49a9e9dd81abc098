"""One group of the consumer protocol (KIP-848): members, epochs, target assignment, who owns what.

This is data with its invariants; who may do what, and when, is decided in
`coordinator/groups/consumer_membership.py`. What survives a restart is written by `ConsumerGroup.apply`
alone, from records that have just been appended or are read back. The values in it are shared with these
records and never changed in place. The rest (deadlines, flags for the next heartbeat) is only here.

Source: ConsumerGroup.java and ModernGroup.java of Kafka 4.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.classic_group import OfferedProtocol
from odradek.coordinator.groups.group import CONSUMER, CommitRequest, TypeOfGroup
from odradek.coordinator.groups.reconciliation import (
    Assignment,
    AssignmentEpochs,
    MemberAssignment,
    MemberState,
)
from odradek.coordinator.groups.sessions import Session
from odradek.coordinator.groups.subscriptions import ResolvedPattern, Subscriptions, add_to_count
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
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

NONE = ErrorCode.NONE
FIRST_EPOCH = 1
"""Of a new group, and of its first target assignment, which is empty."""
MEMBER_EPOCHS_SINCE = 9
"""OffsetCommit version that a member of this protocol has to use at least."""
_NO_ASSIGNMENT = MemberAssignment(member_epoch=-1, previous_member_epoch=-1)
"""Of a member whose assignment has a tombstone; its own follows."""
_NOTHING: Assignment = {}
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
"""Of a member whose metadata record has not been read yet."""


@dataclass(slots=True)
class ConsumerSession(Session):
    has_join_timer: bool = False
    """A classic member has to join again, in time."""
    has_sync_timer: bool = False
    """A classic member that has joined has so long to sync."""
    quick_response: ConsumerGroupHeartbeatResponse | None = None
    """The response to the last heartbeat that changed nothing; it is given out again, and not changed."""


@dataclass(slots=True)
class ConsumerMember:
    member_id: str
    metadata: ConsumerGroupMemberMetadataValue
    current: MemberAssignment = field(default_factory=MemberAssignment)
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
        """Whether it uses the classic protocol."""
        return self.metadata.classic_member_metadata is not None


class ConsumerGroup:
    """A `Group`. `topics` gives the newest view of the cluster."""

    group_type: ClassVar[TypeOfGroup] = CONSUMER
    protocol_type: ClassVar[str] = "consumer"
    may_expire: ClassVar[bool] = True
    offsets_may_expire: ClassVar[bool] = True
    """Of topics without subscribers: subscriptions are always known."""
    empty_since_ms: ClassVar[None] = None

    def __init__(self, group_id: str, topics: Callable[[], ClusterView]) -> None:
        self.group_id = group_id
        self._topics = topics
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """When the target assignment was made; 0 when an old record did not say."""
        self.members: dict[str, ConsumerMember] = {}
        """By member id, in the order of joining."""
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.target: dict[str, Assignment] = {}
        """By member id."""
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
        self.is_to_look = True
        """Topics may have changed since `metadata_hash`: the next heartbeat looks."""
        self.has_new_topics = True
        """There may be topics that no pattern was compared with."""
        self.matching_since_ms: int | None = None
        """When the search for topics that match began which is under way."""
        self.match_failed_at_ms: int | None = None
        """When the last search began, if it came to nothing."""

    # Of a group of any type

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        is_stable = all(member.current.is_reconciled_to(epoch) for member in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, and where the epoch is not that of the member
        STALE_MEMBER_EPOCH; of a classic member, and with a transaction (whose clients do not know that code),
        ILLEGAL_GENERATION. An older epoch may commit what the member has had since then (KIP-1251)."""
        epoch, in_transaction = generation, version is None
        if epoch < 0 and not self.members:
            return NONE
        if in_transaction and epoch == -1 and not request.member_id and request.group_instance_id is None:
            # Its producer knows no member.
            return NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version is not None and version < MEMBER_EPOCHS_SINCE and not member.is_classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.current.member_epoch:
            return NONE
        if epoch < member.current.member_epoch and self._had_since(member, epoch, request):
            return NONE
        is_generation = member.is_classic or in_transaction
        return ErrorCode.ILLEGAL_GENERATION if is_generation else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """As for a commit; an administrator names no member."""
        if member_id is None and member_epoch < 0:
            return NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.current.member_epoch:
            return NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_deletion(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else NONE

    def check_offset_deletion(self) -> ErrorCode:
        return NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return self.subscriptions.include(topic)

    def keys(self) -> list[Any]:
        """In the order in which Kafka deletes them: what refers to something goes before it."""
        group_id = self.group_id
        keys: list[Any] = [
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            for member_id in self.members
        ]
        keys += [
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            for member_id in self.target
        ]
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
        keys += [
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            for member_id in self.members
        ]
        keys += [
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
            for pattern in self.subscriptions.resolved
        ]
        # Also where there is no such record, as Kafka does.
        keys.append(ConsumerGroupPartitionMetadataKey(group_id=group_id))
        keys.append(ConsumerGroupMetadataKey(group_id=group_id))
        return keys

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

    def target_of(self, member_id: str) -> Assignment:
        return self.target.get(member_id, _NOTHING)

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
        for target in self.target.values():
            for topic_id, partitions in target.items():
                given[topic_id] = given.get(topic_id, 0) + len(partitions)
        topics = [view.topics[name] for name in self.subscriptions.name_counts if name in view.topics]
        return not self.assignment_epoch or any(
            given.get(topic.topic_id, 0) < len(topic.partitions) for topic in topics
        )

    # Durable state

    def apply(self, key: Any, value: Any) -> bool:
        """Apply the record."""
        return _APPLY[key.__class__](self, key, value)

    def _apply_group(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> bool:
        if value is None:
            return False
        self.group_epoch = value.epoch
        self.metadata_hash = value.metadata_hash
        return True

    def _apply_partition_metadata(self, key: ConsumerGroupPartitionMetadataKey, value: Any) -> bool:
        self.has_partition_metadata = value is not None
        return True

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> bool:
        member = self.members.get(key.member_id)
        if member is not None:
            self._count(member, -1)
        if value is None:
            if member is not None:
                self._set_current(member, _NO_ASSIGNMENT)
                del self.members[key.member_id]
                self.target.pop(key.member_id, None)
                if self.static_members.get(member.instance_id or "") == key.member_id:
                    del self.static_members[member.instance_id or ""]
            return True
        # Most members subscribe to the same, which may be ten thousand names: one list is enough for them.
        if value.subscribed_topic_names == self._shared_names:
            value.subscribed_topic_names = self._shared_names
        else:
            self._shared_names = value.subscribed_topic_names
        if member is None:
            member = self.members[key.member_id] = ConsumerMember(key.member_id, value)
        else:
            member.metadata = value
        self._count(member, 1)
        if value.instance_id is not None:
            self.static_members[value.instance_id] = key.member_id
        return True

    def _apply_target_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> bool:
        self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
        self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
        return True

    def _apply_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> bool:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
            }
        return True

    def _apply_current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> bool:
        member = self.members.get(key.member_id)
        if member is None and value is not None:
            # Where the log has been compacted the member's own record may come later.
            member = self.members[key.member_id] = ConsumerMember(key.member_id, NO_METADATA)
        if member is not None:
            self._set_current(member, _NO_ASSIGNMENT if value is None else _current_of(value))
        return True

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

    def _had_since(self, member: ConsumerMember, epoch: int, request: CommitRequest) -> bool:
        """Whether the member has had all that is committed since that epoch, or before."""
        topics, current = self._topics().topics, member.current
        for topic in request.topics:
            topic_id = getattr(topic, "topic_id", ZERO_UUID)
            if topic_id == ZERO_UUID and topic.name in topics:
                topic_id = topics[topic.name].topic_id
            assigned, revoking = current.assigned.get(topic_id, {}), current.revoking.get(topic_id, {})
            for partition in topic.partitions:
                index = partition.partition_index
                since = assigned.get(index, revoking.get(index))
                if since is None or epoch < since:
                    return False
        return True


_APPLY: dict[type, Callable[[ConsumerGroup, Any, Any], bool]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._apply_group,
    ConsumerGroupPartitionMetadataKey: ConsumerGroup._apply_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._apply_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._apply_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._apply_pattern,
}


def current_assignment_value(current: MemberAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    """As the log knows it."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
        assigned_partitions=_with_epochs(current.assigned),
        partitions_pending_revocation=_with_epochs(current.revoking),
    )


def target_value(target: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    """As the log knows it."""
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(target.items())
        ]
    )


def metadata_hash(topics: Iterable[str], view: ClusterView) -> int:
    """A number that changes when one of these topics is created, deleted, or gets partitions.

    Signed, 64 bits, the same in every process; 0 when none of them exists.
    """
    digest, is_empty = hashlib.blake2b(digest_size=8), True
    for name in sorted(topics):
        topic = view.topics.get(name)
        if topic is not None:
            is_empty = False
            digest.update(topic.topic_id + len(topic.partitions).to_bytes(4, "big"))
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)


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
    epochs: dict[bytes, Mapping[int, int]] = {}
    for record in records:
        since = record.assignment_epochs
        if since is None or len(since) != len(record.partitions):
            # Brokers before 4.3 did not say; nothing older than the member's epoch is believed then.
            epochs[record.topic_id] = dict.fromkeys(record.partitions, member_epoch)
        else:
            epochs[record.topic_id] = dict(zip(record.partitions, since, strict=True))
    return epochs
