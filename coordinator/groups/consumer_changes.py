"""The records of a consumer group when a member joins, changes its subscription, moves on or leaves.

A `MemberChange` gathers the records of one command and their values; nothing is in the group
before they are stored. So a refusal on the way leaves everything as it was. Each step reads the group as it
is and the change as far as it has got, in the order in which Kafka writes the records.

Source: GroupMetadataManager.java and TargetAssignmentBuilder.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.assignors import ASSIGNORS, AssignedMember, AssignmentSpec
from odradek.coordinator.groups.consumer_group import (
    NO_METADATA,
    ConsumerGroup,
    ConsumerMember,
)
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.group import GroupRecord
from odradek.coordinator.groups.reconciliation import (
    Assignment,
    MemberAssignment,
    MemberState,
    OwnedPartitions,
    reconcile,
    without_topics,
)
from odradek.coordinator.groups.regular_expression import RegularExpression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
)


class MemberChange:
    """What one command changes: about the member `member_id`, who may be new, or come in the place of the
    static member `replaces`."""

    __slots__ = (
        "assignment_epoch",
        "before",
        "current",
        "current_before",
        "group",
        "group_epoch",
        "has_looked",
        "is_new",
        "is_subscription_changed",
        "member_id",
        "metadata",
        "records",
        "replaces",
        "target",
        "wants_match",
    )

    def __init__(
        self, group: ConsumerGroup, member: ConsumerMember | None, member_id: str, replaces: str | None = None
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.replaces = replaces
        self.is_new = member is None
        self.records: list[GroupRecord] = []
        self.before = NO_METADATA if member is None else member.metadata
        """The member as the group's counts have it."""
        self.metadata = self.before
        self.current = MemberAssignment() if member is None else member.current
        self.target: Assignment = {} if member is None else group.target_of(member.member_id)
        self.group_epoch = group.group_epoch
        self.assignment_epoch = group.assignment_epoch
        self.is_subscription_changed = False
        self.wants_match = False
        """The member has a regular expression that is new in the group."""
        self.has_looked = False
        """The group's topics have been looked at."""
        if replaces is not None:
            assert member is not None
            self._replace(member)
        self.current_before = self.current

    # Steps, in the order in which they are taken

    def subscribe(self, metadata: ConsumerGroupMemberMetadataValue) -> bool:
        """The member says this of itself now. True when that is reason for a new assignment.

        Topics by name are; a regular expression only where it has been resolved: else its topics will be.
        INVALID_REGULAR_EXPRESSION.
        """
        if self.is_new or metadata != self.metadata:
            self.records.append(self.group.records.member(self.group.group_id, self.member_id, metadata))
        are_names_changed = metadata.subscribed_topic_names != self.metadata.subscribed_topic_names
        old, new = self.metadata.subscribed_topic_regex or "", metadata.subscribed_topic_regex or ""
        self.metadata = metadata
        self.is_subscription_changed = are_names_changed or old != new
        return are_names_changed if old == new else self._change_pattern(old, new) or are_names_changed

    def look_at_topics(self, view: ClusterView, is_reason: bool) -> None:
        """A new epoch of the group, if there `is_reason` for one or the topics have changed."""
        group = self.group
        topics = group.subscriptions.topics_with(self.before, self.metadata)
        found = metadata_hash(topics, view)
        if is_reason or found != group.metadata_hash:
            self.group_epoch += 1
            self.records.append(group.records.epoch(group.group_id, self.group_epoch, found))
        if group.has_partition_metadata:
            self.records.append((ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None))
        self.has_looked = True

    def assign(self, view: ClusterView, assignors: Sequence[str], now_ms: int) -> None:
        """A target for every member, for the group's epoch."""
        group, group_id = self.group, self.group.group_id
        name = preferred_assignor(group, assignors, self.before, self.metadata)
        spec = self._spec(view)
        assignments = ASSIGNORS[name](spec)
        for member_id in spec.members:
            target = assignments.get(member_id, {})
            known = group.targets.get(member_id)
            if known is not target and known != target:
                self.records.append(group.records.target(group_id, member_id, target))
        self.target = assignments.get(self.member_id, {})
        self.assignment_epoch = self.group_epoch
        self.records.append(group.records.target_epoch(group_id, self.group_epoch, now_ms))

    def reconcile(self, view: ClusterView, owned: OwnedPartitions | None) -> None:
        """The member's next step towards its target. FENCED_MEMBER_EPOCH."""
        current, epoch = self.current, self.assignment_epoch
        if current.is_reconciled_to(epoch) and not self.is_subscription_changed:
            return
        if current.state is MemberState.UNKNOWN and (owned is None or owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        subscribed = topic_ids(self.group, self.metadata, view)
        target = {
            topic_id: partitions for topic_id, partitions in self.target.items() if topic_id in subscribed
        }
        step = reconcile(current, target, epoch, self.group.owner_epoch_of, owned)
        if step is current and self.is_subscription_changed:
            step = without_topics(current, subscribed, owned)
        if step is not current:
            self.current = step
            self.records.append(self.group.records.current(self.group.group_id, self.member_id, step))

    # Inside

    def _replace(self, old: ConsumerMember) -> None:
        """A static member is back under a new id: it gets the place of the old one as it is."""
        group_id, member_id, records = self.group.group_id, self.member_id, self.group.records
        current = old.current
        self.current = MemberAssignment(current.state, 0, 0, current.assigned, current.revoking)
        self.records += [
            *records.tombstones(group_id, old.member_id),
            records.member(group_id, member_id, old.metadata),
            records.target(group_id, member_id, self.target),
            records.current(group_id, member_id, self.current),
        ]

    def _change_pattern(self, old: str, new: str) -> bool:
        group = self.group
        if old and group.subscriptions.count_of(old) == 1:
            self.records.append(pattern_tombstone(group.group_id, old))
        if not new:
            return True
        if group.subscriptions.count_of(new):
            return new in group.subscriptions.resolved
        _check_pattern(new)
        self.wants_match = True
        return False

    def _spec(self, view: ClusterView) -> AssignmentSpec:
        group = self.group
        ids_of: dict[tuple[int, str | None], frozenset[bytes]] = {}
        """By the list of names (those who subscribe to the same have the same one) and the pattern."""
        metadata_of = {member_id: member.metadata for member_id, member in group.members.items()}
        if self.replaces is not None:
            del metadata_of[self.replaces]
        metadata_of[self.member_id] = self.metadata
        members: dict[str, AssignedMember] = {}
        for member_id, metadata in metadata_of.items():
            key = id(metadata.subscribed_topic_names), metadata.subscribed_topic_regex
            ids = ids_of.get(key)
            if ids is None:
                ids = ids_of[key] = topic_ids(group, metadata, view)
            members[member_id] = AssignedMember(ids, group.target_of(member_id), metadata.instance_id)
        members[self.member_id] = members[self.member_id]._replace(assignment=self.target)
        counts = {
            topic_id: len(view.topics[view.topic_names[topic_id]].partitions)
            for topic_id in frozenset().union(*ids_of.values())
        }
        return AssignmentSpec(members, counts)


def removal_of(
    group: ConsumerGroup, members: Sequence[ConsumerMember], view: ClusterView
) -> list[GroupRecord]:
    """The records that take members out."""
    group_id = group.group_id
    records: list[GroupRecord] = []
    removed: dict[str, int] = {}
    for member in members:
        records += group.records.tombstones(group_id, member.member_id)
        if member.pattern:
            removed[member.pattern] = removed.get(member.pattern, 0) + 1
    records += [
        pattern_tombstone(group_id, pattern)
        for pattern, count in removed.items()
        if group.subscriptions.count_of(pattern) == count
    ]
    topics = group.subscriptions.topics_without(member.metadata for member in members)
    records.append(group.records.epoch(group_id, group.group_epoch + 1, metadata_hash(topics, view)))
    return records


def preferred_assignor(
    group: ConsumerGroup,
    assignors: Sequence[str],
    before: ConsumerGroupMemberMetadataValue = NO_METADATA,
    after: ConsumerGroupMemberMetadataValue = NO_METADATA,
) -> str:
    """The one of `assignors` that most members name, the first if none does; `before` becomes `after`."""
    counts = group.assignor_counts()
    if before.server_assignor != after.server_assignor:
        for name, change in ((before.server_assignor, -1), (after.server_assignor, 1)):
            if name is not None:
                counts[name] = counts.get(name, 0) + change
    # An assignor that the broker no longer has does not count.
    wanted = {name: count for name, count in counts.items() if count and name in assignors}
    return max(wanted, key=wanted.__getitem__, default=assignors[0])


def topic_ids(
    group: ConsumerGroup, metadata: ConsumerGroupMemberMetadataValue, view: ClusterView
) -> frozenset[bytes]:
    """Of the topics that a member with this metadata subscribes to and that exist."""
    topics = view.topics
    return frozenset(
        topics[name].topic_id for name in group.subscriptions.topics_of(metadata) if name in topics
    )


def pattern_tombstone(group_id: str, pattern: str) -> GroupRecord:
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None


def _check_pattern(pattern: str) -> None:
    try:
        RegularExpression(pattern)
    except KafkaError as error:
        _, _, reason = (error.message or "").partition(": ")
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
        ) from error
