"""Consumer groups as groups with epochs (KIP-848): subscriptions by name and by pattern, static members,
members of the classic protocol.

A member gives up what it shall not have any more before another gets it (`reconciliation.py`). Regular
expressions are matched elsewhere (`MatchTopics`): after a new one a member gets its topics with a later
heartbeat.

Source: GroupMetadataManager.java and GroupCoordinatorService.java of Kafka 4.3; the texts that clients are
shown are Kafka's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from odradek.coordinator.asked import Asked, Client
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import CancelTimer, Effect, MatchTopics, Reply
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.commands import TopicsMatched
from odradek.coordinator.groups.consumer_changes import ConsumerChange, preferred_assignor, records_without
from odradek.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.epochs.membership import Messages
from odradek.coordinator.groups.epochs.static_members import StaticMembership
from odradek.coordinator.groups.group import (
    CONSUMER,
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    GroupRecord,
)
from odradek.coordinator.groups.group_type import MachineParts
from odradek.coordinator.groups.reconciliation import (
    AssignmentEpochs,
    MemberAssignment,
    MemberState,
    OwnedPartitions,
)
from odradek.coordinator.groups.subscriptions import ResolvedPattern
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_group_describe
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from odradek.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.wire.messages.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)

NONE = ErrorCode.NONE
SESSION, REBALANCE, CLASSIC_JOIN, CLASSIC_SYNC = TIMERS = (
    "consumer-session",
    "consumer-rebalance",
    "classic-join",
    "classic-sync",
)
"""The first parts of the keys of timers, before the group and the member."""
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""Values of `Member.member_type`."""
MATCH_AGAIN_AFTER_MS = 10_000
"""How long a group waits at least before its patterns are matched again (Kafka's constant)."""

AskedHeartbeat = Asked[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]


def classic_join_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Key of the timer of a classic member that has to join again."""
    return (CLASSIC_JOIN, group_id, member_id)


def classic_sync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Key of the timer of a classic member that has joined and has to sync."""
    return (CLASSIC_SYNC, group_id, member_id)


class TypeChanges(Protocol):
    """Changes of groups with members of both protocols: `coordinator/groups/migration.py`."""

    def upgrade(self, group: ClassicGroup) -> tuple[ConsumerGroup, list[GroupRecord]]: ...

    def upgraded(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None: ...

    def downgrade(
        self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], now_ms: int, out: list[Effect]
    ) -> bool: ...

    def expire(
        self, group: ConsumerGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]
    ) -> None: ...


class ConsumerMembership(StaticMembership[ConsumerGroup, ConsumerMember, ConsumerChange]):
    """The consumer protocol over the groups of one machine. Each method adds its effects to `out`."""

    kind = CONSUMER
    group_class = ConsumerGroup
    change_class = ConsumerChange
    messages = Messages(ConsumerGroupHeartbeatResponse, ConsumerGroupDescribeResponse, DescribedGroup)
    session, rebalance = SESSION, REBALANCE
    maximum = "reached its maximum capacity of"
    too_large = None

    def __init__(self, parts: MachineParts) -> None:
        super().__init__(parts)
        self._new_member_id = parts.new_member_id
        self.migration: TypeChanges
        """To be set before the first command."""

    # Checks

    def new_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._topics)

    def _max_size(self) -> int:
        return self._settings.group_consumer_max_size

    def _changes_nothing(
        self, group: ConsumerGroup, member: ConsumerMember, asked: AskedHeartbeat, now_ms: int
    ) -> bool:
        """The owned partitions do not matter then."""
        metadata, current = member.metadata, member.current
        request, client = asked.request, asked.client
        return (
            request.member_epoch == current.member_epoch == group.assignment_epoch == group.group_epoch
            and current.state is MemberState.STABLE
            and not group.topics_may_have_changed
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.rebalance_timeout_ms == -1
            and request.server_assignor is None
            and request.rack_id is None
            and (request.instance_id is None or request.instance_id == metadata.instance_id)
            and client.host == metadata.client_host
            and client.client_id == metadata.client_id
            and metadata.classic_member_metadata is None
            # A quick command does not pass the handler, which checks it for all others.
            and self._settings.serves_consumer_groups
            and not (group.subscriptions.pattern_counts and self._is_match_due(group, False, now_ms))
        )

    def _group_to_join(self, group_id: str, records: list[GroupRecord]) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            return super()._group_to_join(group_id, records)
        upgraded, upgrade = self.migration.upgrade(group)
        records += upgrade
        return upgraded

    def _joining(
        self,
        group: ConsumerGroup,
        member: ConsumerMember | None,
        member_id: str,
        replaced: ConsumerMember | None,
    ) -> ConsumerChange:
        return ConsumerChange(group, member, member_id or self._new_member_id(), replaced)

    def _owned(self, request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
        owned = request.topic_partitions
        return None if owned is None else [(topic.topic_id, topic.partitions) for topic in owned]

    def _has_no_more(self, current: MemberAssignment, owned: OwnedPartitions | None) -> bool:
        assigned = current.assigned
        return owned is not None and all(
            topic_id in assigned and assigned[topic_id].keys() >= set(partitions)
            for topic_id, partitions in owned
        )

    # Heartbeat

    def _stay(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> ConsumerGroupHeartbeatResponse:
        known = self._groups.get(asked.request.group_id)
        response: ConsumerGroupHeartbeatResponse = super()._stay(asked, now_ms, out)
        if isinstance(known, ClassicGroup):
            self.migration.upgraded(known, now_ms, out)
        return response

    def _update(self, change: ConsumerChange, asked: AskedHeartbeat, owned: OwnedPartitions | None) -> None:
        group, view = change.group, self._topics()
        is_reason = change.subscribe(_updated(change.metadata, asked.request, asked.client))
        is_reason = change.prefers_another(self._settings.group_consumer_assignors) or is_reason
        # A new member that upgrades the group is a reason. A static member that comes back is none by itself,
        # but the last leader's assignment may lack the newest topics, and in the first rebalance of a
        # classic group the epoch is 0, which no member may have.
        known = self._groups.get(group.group_id)
        if isinstance(known, ClassicGroup) and not known.is_empty:
            is_reason = is_reason or change.replaced is None or group.is_incomplete(view)
        change.compare_subscribed_topics(view, is_reason)

    def _targets(self, change: ConsumerChange) -> Mapping[str, Mapping[bytes, frozenset[int]]]:
        return change.targets(self._topics(), self._settings.group_consumer_assignors)

    def _next_step(self, change: ConsumerChange, owned: OwnedPartitions | None) -> MemberAssignment:
        return change.next_step(self._topics(), owned)

    def _settle(
        self,
        change: ConsumerChange,
        group: ConsumerGroup,
        member: ConsumerMember,
        asked: AskedHeartbeat,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        if change.replaced is not None:
            self.cancel_timers(group, change.replaced, out)
        super()._settle(change, group, member, asked, now_ms, out)
        if group.subscriptions.pattern_counts and self._is_match_due(group, change.wants_match, now_ms):
            group.matching_since_ms = now_ms
            group.has_new_topics = False
            patterns = tuple(group.subscriptions.pattern_counts)
            hidden_names = asked.client.hidden_names
            out.append(MatchTopics(group.group_id, patterns, self._topics().version, hidden_names))

    def _response(
        self,
        change: ConsumerChange,
        group: ConsumerGroup,
        asked: AskedHeartbeat,
        owned: OwnedPartitions | None,
    ) -> ConsumerGroupHeartbeatResponse:
        request, current = asked.request, change.current
        is_full_request = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and owned is not None
        )
        is_told = (
            request.member_epoch == JOIN_EPOCH
            or is_full_request
            or current.assigned != change.current_before.assigned
        )
        return ConsumerGroupHeartbeatResponse(
            error_code=NONE,
            member_id=change.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._intervals(group.group_id).heartbeat_interval_ms,
            assignment=_assignment(current.assigned) if is_told else None,
        )

    # Topics by pattern

    def _is_match_due(self, group: ConsumerGroup, is_new: bool, now_ms: int) -> bool:
        """Whether topics are to be looked for: for a pattern that `is_new` or was never resolved, among new
        topics, or since the last time is long ago. All patterns together, for one rebalance."""
        if group.matching_since_ms is not None:
            return False
        resolved = next(iter(group.subscriptions.resolved.values()), None)
        if resolved is None and group.match_failed_at_ms is None:
            return True
        age_ms = now_ms - max(
            0 if resolved is None else resolved.resolved_at_ms, group.match_failed_at_ms or 0
        )
        return age_ms > MATCH_AGAIN_AFTER_MS and (
            is_new
            or group.has_new_topics
            or group.subscriptions.resolved.keys() != group.subscriptions.pattern_counts.keys()
            or age_ms > self._settings.group_consumer_regex_refresh_interval_ms
        )

    def topics_matched(self, command: TopicsMatched, now_ms: int, out: list[Effect]) -> None:
        group = self._groups.get(command.group_id)
        if isinstance(group, ConsumerGroup) and group.matching_since_ms is not None:
            requested_at_ms, group.matching_since_ms = group.matching_since_ms, None
            is_taken = command.topics is not None and self._take_matches(
                group, command.topics, command.version, requested_at_ms, now_ms, out
            )
            group.match_failed_at_ms = None if is_taken else requested_at_ms
            group.has_new_topics = group.has_new_topics or not is_taken
        out.append(Reply(command.ticket, NONE))

    def _take_matches(
        self,
        group: ConsumerGroup,
        topics: Mapping[str, frozenset[str]],
        version: int,
        requested_at_ms: int,
        now_ms: int,
        out: list[Effect],
    ) -> bool:
        """False when there are more topics than a batch of the log takes."""
        group_id = group.group_id
        records: list[GroupRecord] = []
        patterns = dict(group.subscriptions.resolved)
        is_reason = False
        for pattern, names in topics.items():
            if not group.subscriptions.count_of(pattern):
                continue
            known = group.subscriptions.resolved.get(pattern)
            is_reason = is_reason or names != (frozenset() if known is None else known.topics)
            patterns[pattern] = ResolvedPattern(names, version, requested_at_ms)
            key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
            value = ConsumerGroupRegularExpressionValue(
                topics=sorted(names), version=version, timestamp=requested_at_ms
            )
            records.append((key, value))
        found = metadata_hash(group.subscriptions.topics_by(patterns.values()), self._topics())
        if is_reason or found != group.metadata_hash:
            records.append(group.records.epoch(group_id, group.group_epoch + 1, found))
        return self._store(group_id, records, now_ms, out)

    # Leave

    def _while_away(self, member: ConsumerMember) -> MemberAssignment:
        current = member.current
        assigned = {
            topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in current.assigned.items()
        }
        return MemberAssignment(
            current.state, LEAVE_FOR_A_WHILE_EPOCH, current.previous_member_epoch, assigned, {}
        )

    def remove(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], now_ms: int, out: list[Effect]
    ) -> None:
        """Take members out. The rest may become a classic group."""
        if not self.migration.downgrade(group, members, now_ms, out):
            super().remove(group, members, now_ms, out)

    def _records_without(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> list[GroupRecord]:
        return records_without(group, members, self._topics())

    def cancel_timers(self, group: ConsumerGroup, member: ConsumerMember, out: list[Effect]) -> None:
        super().cancel_timers(group, member, out)
        group_id, member_id, session = group.group_id, member.member_id, member.session
        if session.has_join_timer:
            out.append(CancelTimer(classic_join_key(group_id, member_id)))
        if session.has_sync_timer:
            out.append(CancelTimer(classic_sync_key(group_id, member_id)))

    # Time-outs

    def expire(
        self, group: ConsumerGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]
    ) -> None:
        if timer_key[0].startswith("classic-"):
            self.migration.expire(group, timer_key, now_ms, out)
        else:
            super().expire(group, timer_key, now_ms, out)

    def keep_session(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: list[Effect]
    ) -> None:
        """Extend the session of a member; a classic member has its own session timeout."""
        classic = member.metadata.classic_member_metadata
        if classic is None:
            super().keep_session(group, member, now_ms, out)
        else:
            self.timers.extend(group.group_id, member, now_ms + classic.session_timeout_ms, out)

    # Questions

    def _described(self, group: ConsumerGroup, request: Any) -> dict[str, Any]:
        view = self._topics()
        return {
            "assignor_name": preferred_assignor(group, self._settings.group_consumer_assignors),
            "members": [_described_member(group, member, view) for member in group.members.values()],
        }

    def topics_changed(
        self, group: ConsumerGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        if group.subscriptions.may_include(names):
            group.topics_may_have_changed = True
        if group.subscriptions.pattern_counts and not names.isdisjoint(self._topics().topics.keys()):
            group.has_new_topics = True

    def owned(self, group: ConsumerGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        return group.owned(view)


def _updated(
    known: ConsumerGroupMemberMetadataValue, request: ConsumerGroupHeartbeatRequest, client: Client
) -> ConsumerGroupMemberMetadataValue:
    """The member's metadata, changed by its heartbeat."""
    names, pattern, timeout_ms = (
        request.subscribed_topic_names,
        request.subscribed_topic_regex,
        request.rebalance_timeout_ms,
    )
    return ConsumerGroupMemberMetadataValue(
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=client.client_id,
        client_host=client.host,
        subscribed_topic_names=known.subscribed_topic_names if names is None else sorted(set(names)),
        subscribed_topic_regex=known.subscribed_topic_regex if pattern is None else pattern,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=known.server_assignor if request.server_assignor is None else request.server_assignor,
        classic_member_metadata=None,
    )


def _described_member(group: ConsumerGroup, member: ConsumerMember, view: ClusterView) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed_topic_names,
        subscribed_topic_regex=member.pattern,
        assignment=_named(member.current.held(), view),
        target_assignment=_named(group.target_of(member.member_id), view),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _named(
    assignment: Mapping[bytes, Collection[int]], view: ClusterView
) -> consumer_group_describe.Assignment:
    """Without topics that do not exist any more."""
    return consumer_group_describe.Assignment(
        topic_partitions=[
            consumer_group_describe.TopicPartitions(
                topic_id=topic_id, topic_name=view.topic_names[topic_id], partitions=sorted(partitions)
            )
            for topic_id, partitions in assignment.items()
            if topic_id in view.topic_names
        ]
    )


def _assignment(assigned: AssignmentEpochs) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )
