"""The members of a consumer group and their assignments (KIP-848): heartbeats and time-outs.

There is one request: a heartbeat joins, stays, changes the subscription, reports the owned partitions, or
leaves, and its response has the assignment. The group's epoch counts changes of members and subscriptions;
the next heartbeat after a change computes the target assignment, no more often than
`consumer.assignment.interval.ms`; and each member comes to its target with its own heartbeats
(`reconciliation.py`).

Regular expressions are matched elsewhere (`MatchTopics`): after a new one a member gets its topics with a
later heartbeat.

Source: GroupMetadataManager.java and GroupCoordinatorService.java of Kafka 4.3; the texts that clients are
shown are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from odradek.coordinator.asked import Asked, Client
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import CancelTimer, Effect, MatchTopics, Reply
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.commands import TopicsMatched
from odradek.coordinator.groups.consumer_changes import (
    MemberChange,
    preferred_assignor,
    removal_of,
)
from odradek.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from odradek.coordinator.groups.epochs.fencing import check_epoch
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.group import (
    CONSUMER,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Group,
    GroupRecord,
    Store,
)
from odradek.coordinator.groups.reconciliation import (
    AssignmentEpochs,
    MemberAssignment,
    MemberState,
    OwnedPartitions,
)
from odradek.coordinator.groups.sessions import MemberTimers
from odradek.coordinator.groups.settings import GroupConfig, GroupSettings
from odradek.coordinator.groups.subscriptions import ResolvedPattern
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import consumer_group_describe
from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
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
    """Of a classic member that has to join again."""
    return (CLASSIC_JOIN, group_id, member_id)


def classic_sync_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    """Of a classic member that has joined and has to sync."""
    return (CLASSIC_SYNC, group_id, member_id)


class TypeChanges(Protocol):
    """What becomes of groups with members of both protocols: `coordinator/groups/migration.py`."""

    def upgrade(self, group: ClassicGroup) -> tuple[ConsumerGroup, list[GroupRecord]]: ...

    def upgraded(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None: ...

    def downgrade(
        self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], now_ms: int, out: list[Effect]
    ) -> bool: ...

    def expire(
        self, group: ConsumerGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]
    ) -> None: ...


class ConsumerMembership:
    """The consumer protocol over the groups of one machine. Each method adds its effects to `out`.

    `new_member_id` makes an id for a member that has none; `topics` gives the newest view of the cluster.
    """

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        new_member_id: Callable[[], str],
        topics: Callable[[], ClusterView],
        store: Store,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._new_member_id = new_member_id
        self._topics = topics
        self._store = store
        self.timers = MemberTimers(SESSION, REBALANCE)
        self.migration: TypeChanges
        """To be set before the first command."""

    # Heartbeat

    def beat(self, asked: AskedHeartbeat, now_ms: int) -> ConsumerGroupHeartbeatResponse | None:
        """The response to a heartbeat that moves a deadline and nothing else, as most do; None, and nothing
        done, where `heartbeat` has to judge it."""
        # This way does not pass the handler, which checks it for all others.
        if not self._settings.serves_consumer_groups:
            return None
        request = asked.request
        group = self._groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        member = group.members.get(request.member_id)
        if (
            member is None
            or not _changes_nothing(group, member, asked)
            or (group.subscriptions.has_patterns and self._is_match_due(group, False, now_ms))
        ):
            return None
        config, session = self._settings.of_group(request.group_id), member.session
        deadline_ms = now_ms + config.consumer_session_timeout_ms
        if session.timer_at_ms is None or deadline_ms < session.timer_at_ms:
            return None
        session.deadline_ms = deadline_ms
        response, interval_ms = session.quick_response, config.consumer_heartbeat_interval_ms
        if (
            response is None
            or response.member_epoch != request.member_epoch
            or response.heartbeat_interval_ms != interval_ms
        ):
            response = session.quick_response = _accepted(request, interval_ms)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def heartbeat(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> None:
        request, known = asked.request, self.beat(asked, now_ms)
        try:
            if known is not None:
                response = _accepted(request, known.heartbeat_interval_ms)
            elif request.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
                response = self._leave(request, now_ms, out)
            else:
                response = self._stay(request, asked.client, now_ms, out)
        except KafkaError as refusal:
            response = ConsumerGroupHeartbeatResponse(
                error_code=refusal.code, error_message=refusal.own_message
            )
        out.append(Reply(asked.ticket, response))

    def _stay(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, now_ms: int, out: list[Effect]
    ) -> ConsumerGroupHeartbeatResponse:
        group_id = request.group_id
        config, view = self._settings.of_group(group_id), self._topics()
        known = self._groups.get(group_id)
        group, records = self._group_for(request)
        change = self._change_for(group, request)
        is_reason = change.subscribe(_updated(change.metadata, request, client))
        # A new member that upgrades the group is a reason. A static member that comes back is none by itself,
        # but the last leader's assignment may lack the newest topics, and in the first rebalance of a
        # classic group the epoch is 0, which no member may have.
        if isinstance(known, ClassicGroup) and not known.is_empty:
            is_reason = is_reason or change.replaces is None or group.is_incomplete(view)
        if is_reason or group.topics_may_have_changed:
            change.look_at_topics(view, is_reason)
        if change.group_epoch > change.assignment_epoch and may_assign(group, config, now_ms):
            change.assign(view, self._settings.group_consumer_assignors, now_ms)
        change.reconcile(view, _owned(request))
        replaced = None if change.replaces is None else group.members[change.replaces]
        self._store_all(group_id, [*records, *change.records], now_ms, out)
        if replaced is not None:
            self.cancel_timers(group, replaced, out)
        self._after(change, config, client, now_ms, out)
        if isinstance(known, ClassicGroup):
            self.migration.upgraded(known, now_ms, out)
        current = change.current
        is_full_request = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        sends_assignment = (
            request.member_epoch == JOIN_EPOCH
            or is_full_request
            or current.assigned != change.current_before.assigned
        )
        return ConsumerGroupHeartbeatResponse(
            error_code=NONE,
            member_id=change.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
            assignment=_assignment(current.assigned) if sends_assignment else None,
        )

    def _group_for(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, list[GroupRecord]]:
        """The group, perhaps a new one, and what makes room for it. GROUP_ID_NOT_FOUND."""
        group_id = request.group_id
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        is_joining = request.member_epoch == JOIN_EPOCH
        if group is None:
            if is_joining:
                return ConsumerGroup(group_id, self._topics), []
            raise _not_found(f"Consumer group {group_id} not found.")
        if is_joining and isinstance(group, ClassicGroup):
            if not group.is_empty:
                return self.migration.upgrade(group)
            old_keys = group.keys()
            return ConsumerGroup(group_id, self._topics), [(key, None) for key in old_keys]
        raise _not_found(f"Group {group_id} is not a consumer group.")

    def _change_for(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> MemberChange:
        """The change for the member that sent the heartbeat.

        GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
        FENCED_INSTANCE_ID.
        """
        limit, member_id = self._settings.group_consumer_max_size, request.member_id
        instance_id, is_joining = request.instance_id, request.member_epoch == JOIN_EPOCH
        member = group.members.get(member_id)
        if member is None and len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )
        owner_id = None if instance_id is None else group.static_members.get(instance_id)
        if is_joining and owner_id is not None:
            owner = group.members[owner_id]
            # One of the classic protocol cannot say that it leaves for a while.
            if not owner.is_classic and owner.current.member_epoch != LEAVE_FOR_A_WHILE_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {instance_id} cannot join the group because "
                    f"the instance id is owned by {owner_id} member.",
                )
            return MemberChange(group, owner, member_id or self._new_member_id(), owner_id)
        if is_joining:
            return MemberChange(group, member, member_id or self._new_member_id())
        if instance_id is not None:
            member = _static_member(group, instance_id, member_id)
        elif member is None:
            raise _unknown_member(group, member_id)
        current = member.current
        check_epoch(
            CONSUMER, current, request.member_epoch, lambda: _is_subset(_owned(request), current.assigned)
        )
        return MemberChange(group, member, member_id)

    def _after(
        self, change: MemberChange, config: GroupConfig, client: Client, now_ms: int, out: list[Effect]
    ) -> None:
        """State that does not survive a restart: timers, and flags for the next heartbeat."""
        group_id, member_id = change.group.group_id, change.member_id
        group = self._consumer_group(group_id)
        member = group.members[member_id]
        if change.has_looked:
            group.topics_may_have_changed = False
        if change.current is not change.current_before:
            self._time_revocation(group, member, now_ms, out)
        self.timers.extend(group_id, member, now_ms + config.consumer_session_timeout_ms, out)
        if group.subscriptions.has_patterns and self._is_match_due(group, change.wants_match, now_ms):
            group.matching_since_ms = now_ms
            group.has_new_topics = False
            patterns = tuple(group.subscriptions.patterns)
            out.append(MatchTopics(group_id, patterns, self._topics().version, client.left_out))

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
            or group.subscriptions.resolved.keys() != group.subscriptions.patterns
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

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int, out: list[Effect]
    ) -> ConsumerGroupHeartbeatResponse:
        group_id, member_id, instance_id = request.group_id, request.member_id, request.instance_id
        group = self._groups.get(group_id)
        if group is None:
            raise _not_found(f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise _not_found(f"Group {group_id} is not a consumer group.")
        if instance_id is not None:
            member = _static_member(group, instance_id, member_id)
        elif member_id in group.members:
            member = group.members[member_id]
        else:
            raise _unknown_member(group, member_id)
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
            self._store_all(
                group_id,
                [group.records.current(group_id, member_id, _assignment_while_away(member))],
                now_ms,
                out,
            )
        else:
            self.remove(group, [member], now_ms, out)
        return _accepted(request, 0)

    def remove(
        self, group: ConsumerGroup, members: Sequence[ConsumerMember], now_ms: int, out: list[Effect]
    ) -> None:
        """Take members out: they have left, or their time is over. The rest may become a classic
        group."""
        if self.migration.downgrade(group, members, now_ms, out):
            return
        self._store_all(group.group_id, removal_of(group, members, self._topics()), now_ms, out)
        for member in members:
            self.cancel_timers(group, member, out)

    def cancel_timers(self, group: ConsumerGroup, member: ConsumerMember, out: list[Effect]) -> None:
        """The member is in the group no more, or the group is of another type."""
        group_id, member_id, session = group.group_id, member.member_id, member.session
        self.timers.cancel(group_id, member, out)
        if session.has_join_timer:
            out.append(CancelTimer(classic_join_key(group_id, member_id)))
        if session.has_sync_timer:
            out.append(CancelTimer(classic_sync_key(group_id, member_id)))

    # Time-outs

    def expire(
        self, group: ConsumerGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]
    ) -> None:
        """A timer of the group is due."""
        kind, _, member_id = timer_key
        if kind.startswith("classic-"):
            self.migration.expire(group, timer_key, now_ms, out)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        if kind == SESSION:
            is_gone = self.timers.has_ended(group.group_id, member, now_ms, out)
        else:
            assert kind == REBALANCE, timer_key
            is_gone = self.timers.has_not_revoked(member, member.current.member_epoch)
        if is_gone:
            self.remove(group, [member], now_ms, out)

    def keep_session(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: list[Effect]
    ) -> None:
        """Extend the session of a member; a classic member has its own session timeout."""
        classic = member.metadata.classic_member_metadata
        if classic is None:
            timeout_ms = self._settings.of_group(group.group_id).consumer_session_timeout_ms
        else:
            timeout_ms = classic.session_timeout_ms
        self.timers.extend(group.group_id, member, now_ms + timeout_ms, out)

    def _time_revocation(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: list[Effect]
    ) -> None:
        """A member that has to give up partitions has its rebalance timeout for that."""
        current = member.current
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            until_ms = now_ms + max(member.metadata.rebalance_timeout_ms, 0)
            self.timers.time_revocation(group.group_id, member, current.member_epoch, until_ms, out)
        else:
            self.timers.stop_revocation(group.group_id, member, out)

    # Questions

    def describe(
        self,
        asked: Asked[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Describe the group of a request that names one."""
        (group_id,) = asked.request.group_ids
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            described = DescribedGroup(
                error_code=NONE,
                group_id=group_id,
                group_state=group.state_name,
                group_epoch=group.group_epoch,
                assignment_epoch=group.assignment_epoch,
                assignor_name=preferred_assignor(group, self._settings.group_consumer_assignors),
                members=[_described(group, member, self._topics()) for member in group.members.values()],
            )
        else:
            problem = "not found" if group is None else "is not a consumer group"
            described = DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} {problem}.",
                group_id=group_id,
            )
        out.append(Reply(asked.ticket, ConsumerGroupDescribeResponse(groups=[described])))

    # Start and end

    def start(self, group: ConsumerGroup, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: its members may still be there; their sessions begin now."""
        for member in group.members.values():
            self.keep_session(group, member, now_ms, out)
            if not member.is_classic:
                self._time_revocation(group, member, now_ms, out)

    def topics_changed(
        self, group: ConsumerGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        """The next heartbeat looks at them."""
        if group.subscriptions.may_include(names):
            group.topics_may_have_changed = True
        if group.subscriptions.has_patterns and not names.isdisjoint(self._topics().topics.keys()):
            group.has_new_topics = True

    def offsets_committed(self, group: ConsumerGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """A session is kept by heartbeats alone."""

    def owned(self, group: ConsumerGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        return group.owned(view)

    def refuse_waiting(self, group: ConsumerGroup, code: ErrorCode, out: list[Effect]) -> None:
        """No ticket waits: every heartbeat is answered at once."""

    # Inside

    def _store_all(self, group_id: str, records: list[GroupRecord], now_ms: int, out: list[Effect]) -> None:
        """UNKNOWN_SERVER_ERROR when they are too much for the log, as in Kafka."""
        if records and not self._store(group_id, records, now_ms, out):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group


def _accepted(
    request: ConsumerGroupHeartbeatRequest, heartbeat_interval_ms: int
) -> ConsumerGroupHeartbeatResponse:
    """The member has what it had, or nothing any more."""
    return ConsumerGroupHeartbeatResponse(
        error_code=NONE,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
    )


def _changes_nothing(group: ConsumerGroup, member: ConsumerMember, asked: AskedHeartbeat) -> bool:
    """Whether this is the plain heartbeat of a member that has its target assignment.

    False means "perhaps not": the full check follows. The owned partitions do not matter then.
    """
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
    )


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


def may_assign(group: ConsumerGroup, config: GroupConfig, now_ms: int) -> bool:
    """Whether enough time has passed since the last assignment."""
    interval_ms = config.consumer_assignment_interval_ms
    return not group.assigned_at_ms or not interval_ms or now_ms >= group.assigned_at_ms + interval_ms


def _owned(request: ConsumerGroupHeartbeatRequest) -> OwnedPartitions | None:
    owned = request.topic_partitions
    return None if owned is None else [(topic.topic_id, topic.partitions) for topic in owned]


def _is_subset(owned: OwnedPartitions | None, assigned: AssignmentEpochs) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and assigned[topic_id].keys() >= set(partitions)
        for topic_id, partitions in owned
    )


def _static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    owner_id = group.static_members.get(instance_id)
    if owner_id is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if owner_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {owner_id}.",
        )
    return group.members[owner_id]


def _assignment_while_away(member: ConsumerMember) -> MemberAssignment:
    """Of a static member that left for a while: it keeps its partitions, without their epochs."""
    current = member.current
    assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in current.assigned.items()}
    return MemberAssignment(
        current.state, LEAVE_FOR_A_WHILE_EPOCH, current.previous_member_epoch, assigned, {}
    )


def _described(group: ConsumerGroup, member: ConsumerMember, view: ClusterView) -> Member:
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


def _not_found(message: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _unknown_member(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    )
