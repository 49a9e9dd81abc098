"""The records of a consumer group when a member joins, changes its subscription, moves on or leaves: topics
by pattern, static members that come back, and the assignors that members name.

Source: GroupMetadataManager.java of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.assignors import ASSIGNORS, AssignedMember, AssignmentSpec
from odradek.coordinator.groups.consumer_group import (
    NO_METADATA,
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
)
from odradek.coordinator.groups.epochs.change import MemberChange
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.epochs.static_members import place_taken
from odradek.coordinator.groups.group import GroupRecord
from odradek.coordinator.groups.reconciliation import (
    Assignment,
    MemberAssignment,
    MemberState,
    OwnedPartitions,
    reconcile,
    without_topics,
)
from odradek.coordinator.groups.subscriptions import add_to_count
from odradek.coordinator.regular_expression import RegularExpression
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
)


class ConsumerChange(MemberChange[ConsumerGroup]):
    """A member that may also come in the place of the static member `replaced`."""

    def __init__(
        self,
        group: ConsumerGroup,
        member: ConsumerMember | None,
        member_id: str,
        replaced: ConsumerMember | None = None,
    ) -> None:
        super().__init__(group, member if replaced is None else replaced, member_id)
        self.replaced = replaced
        self.is_subscription_changed = False
        self.wants_match = False
        """The member has a regular expression that is new in the group."""
        if replaced is not None:
            self._replace(replaced)

    def subscribe(self, metadata: ConsumerGroupMemberMetadataValue) -> bool:
        """The member says this of itself now. True when that is reason for a new assignment.

        Topics by name are; a regular expression only where it has been resolved: else its topics will be.
        INVALID_REGULAR_EXPRESSION.
        """
        known = self.metadata
        self.update(metadata)
        are_names_changed = metadata.subscribed_topic_names != known.subscribed_topic_names
        old, new = known.subscribed_topic_regex or "", metadata.subscribed_topic_regex or ""
        self.is_subscription_changed = are_names_changed or old != new
        return are_names_changed if old == new else self._change_pattern(old, new) or are_names_changed

    def compare_subscribed_topics(self, view: ClusterView, is_reason: bool) -> None:
        """A new epoch of the group, if there `is_reason` for one or the topics may have changed and have."""
        group = self.group
        if is_reason or group.topics_may_have_changed:
            topics = group.subscriptions.topics_with(self.before, self.metadata)
            self.compare_topics(topics, view, is_reason)
            if group.has_partition_metadata:
                self.records.append((ConsumerGroupPartitionMetadataKey(group_id=group.group_id), None))

    def prefers_another(self, assignors: Sequence[str]) -> bool:
        """Whether most members now name another assignor."""
        before, after = self.before, self.metadata
        if before.server_assignor == after.server_assignor:
            return False
        group = self.group
        return preferred_assignor(group, assignors, before, after) != preferred_assignor(group, assignors)

    def targets(self, view: ClusterView, assignors: Sequence[str]) -> dict[str, Assignment]:
        """A target for every member, by the assignor that most of them name."""
        spec = self._spec(view)
        assignments = ASSIGNORS[preferred_assignor(self.group, assignors, self.before, self.metadata)](spec)
        return {member_id: assignments.get(member_id, NOTHING) for member_id in spec.members}

    def next_step(self, view: ClusterView, owned: OwnedPartitions | None) -> MemberAssignment:
        """The next step of the member on its way to its target. FENCED_MEMBER_EPOCH."""
        current: MemberAssignment = self.current
        epoch = self.assignment_epoch
        if current.is_reconciled_to(epoch) and not self.is_subscription_changed:
            return current
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
            return without_topics(current, subscribed, owned)
        return step

    # Inside

    def _replace(self, old: ConsumerMember) -> None:
        """A static member is back under a new id: it gets the place of the old one as it is."""
        current = old.current
        self.current = MemberAssignment(current.state, 0, 0, current.assigned, current.revoking)
        self.current_before = self.current
        self.records += place_taken(self.group, old, self.member_id, self.target, self.current)

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
        if self.replaced is not None:
            del metadata_of[self.replaced.member_id]
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


def records_without(
    group: ConsumerGroup, members: Sequence[ConsumerMember], view: ClusterView
) -> list[GroupRecord]:
    """The records of a group that loses these members, after their own."""
    removed: dict[str, int] = {}
    for member in members:
        if member.pattern:
            add_to_count(removed, member.pattern, 1)
    topics = group.subscriptions.topics_without(member.metadata for member in members)
    return [
        *(
            pattern_tombstone(group.group_id, pattern)
            for pattern, count in removed.items()
            if group.subscriptions.count_of(pattern) == count
        ),
        group.records.epoch(group.group_id, group.group_epoch + 1, metadata_hash(topics, view)),
    ]


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
    """Ids of the topics that exist and that a member with this metadata subscribes to."""
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
