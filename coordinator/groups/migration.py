"""Members of one protocol in a group of the other, and the change of the type of a group that has members.

A rolling upgrade: the first member of the consumer protocol makes a classic group of consumers a consumer
group (`upgrade`). Its classic members stay: they join, sync and send heartbeats, and get by these three what
a member of the consumer protocol gets in one response. A heartbeat gets REBALANCE_IN_PROGRESS when partitions
are to be taken or given up; a join names what the member has and gets its epoch as generation; a sync brings
the partitions. No request waits, as there is no leader to wait for. When the last
member of the consumer protocol leaves (`downgrade`), or a static one is back with the classic protocol, the
rest is a classic group again.

Both directions can be forbidden (`group.consumer.migration.policy`). Where both are, no member of the classic
protocol gets into a consumer group, nor back into one. A group without members takes the type of the first
that joins, whatever the policy.

Source: GroupMetadataManager.java of Kafka 4.3 (validateOnlineUpgrade, convertToConsumerGroup,
classicGroupJoinToConsumerGroup, consumerGroupFenceMembers and what they call).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek.coordinator.effects import CancelTimer, Effect, Reply, SetTimer
from odradek.coordinator.groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from odradek.coordinator.groups.classic_members import refused_join
from odradek.coordinator.groups.classic_membership import (
    MEMBER_ID_REQUIRED_SINCE,
    AskedHeartbeat,
    AskedJoin,
    AskedLeave,
    AskedSync,
    Membership,
    fits_join,
    offered_protocols,
    rebalance_timeout_ms,
)
from odradek.coordinator.groups.consumer_changes import ConsumerChange
from odradek.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from odradek.coordinator.groups.consumer_membership import (
    CLASSIC_JOIN,
    ConsumerMembership,
    classic_join_key,
    classic_sync_key,
)
from odradek.coordinator.groups.conversion import (
    CannotConvert,
    ClassicConsumer,
    as_classic_group,
    as_consumer_group,
    classic_assignment,
    classic_metadata,
    owned_partitions,
)
from odradek.coordinator.groups.group import GroupRecord
from odradek.coordinator.groups.group_type import MachineParts
from odradek.coordinator.groups.reconciliation import Assignment, MemberState
from odradek.coordinator.groups.record_codec import fits_record
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from odradek.wire.messages.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
)
from odradek.wire.messages.heartbeat import HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NONE = ErrorCode.NONE
UPGRADE = frozenset({"upgrade", "bidirectional"})
DOWNGRADE = frozenset({"downgrade", "bidirectional"})
MIXED = UPGRADE | DOWNGRADE
"""Values of `group.consumer.migration.policy`: with those in none, no group has members of both protocols."""


class Migration:
    """The classic protocol for groups of any type, and the changes of type of groups that have members. Each
    method adds its effects to `out`."""

    def __init__(self, parts: MachineParts, classic: Membership, consumers: ConsumerMembership) -> None:
        self._groups = parts.groups
        self._settings = parts.settings
        self._new_member_id = parts.new_member_id
        self._topics = parts.topics
        self._store = parts.store
        self._classic = classic
        self._consumers = consumers

    # Join

    def join(self, asked: AskedJoin, now_ms: int, out: list[Effect]) -> None:
        group = self._groups.get(asked.request.group_id)
        if not isinstance(group, ConsumerGroup) or group.is_empty:
            return self._classic.join(asked, now_ms, out)
        if not fits_join(asked):
            response = refused_join(ErrorCode.UNKNOWN_SERVER_ERROR, asked.request.member_id)
        else:
            try:
                response = self._join(group, asked, now_ms, out)
            except KafkaError as refusal:
                # Without the member's id, as Kafka refuses these.
                response = refused_join(refusal.code)
        out.append(Reply(asked.ticket, response))

    def _join(
        self, group: ConsumerGroup, asked: AskedJoin, now_ms: int, out: list[Effect]
    ) -> JoinGroupResponse:
        """INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, and
        INCONSISTENT_GROUP_PROTOCOL for a subscription that cannot be read, UNKNOWN_SERVER_ERROR for one that
        cannot be recorded."""
        if not self._may_mix():
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        request, protocols = asked.request, offered_protocols(asked.request)
        member_id, instance_id = request.member_id or self._new_member_id(), request.group_instance_id
        owner = _owner(group, instance_id)
        is_new = member_id not in group.members and owner is None
        if is_new and len(group.members) >= self._settings.group_consumer_max_size:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.supports_classic(protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        needs_id = instance_id is None and asked.client.version >= MEMBER_ID_REQUIRED_SINCE
        if not request.member_id and needs_id:
            # Not remembered: a member may join with any id.
            return refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if request.member_id and instance_id is not None:
            _member(group, request.member_id, instance_id)
        try:
            subscription = decode_subscription(protocols[0].metadata)
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
        if not fits_record(member_id, subscription.rack_id, *subscription.topics):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if owner is not None and self._may_downgrade(group, [owner], 1):
            return self._join_as_classic_group(group, owner, member_id, asked, subscription, now_ms, out)
        if owner is not None and not request.member_id:
            change = ConsumerChange(group, None, member_id, owner)
        else:
            change = ConsumerChange(group, group.members.get(member_id), member_id)
        return self._join_consumers(change, asked, subscription, now_ms, out)

    def _join_consumers(
        self,
        change: ConsumerChange,
        asked: AskedJoin,
        subscription: ConsumerProtocolSubscription,
        now_ms: int,
        out: list[Effect],
    ) -> JoinGroupResponse:
        """Step of a classic member, as by the heartbeat of a member of the consumer protocol."""
        group, view = change.group, self._topics()
        is_reason = change.subscribe(_metadata(change.metadata, asked, subscription))
        change.compare_subscribed_topics(view, is_reason)
        self._consumers.advance(change, owned_partitions(subscription, view), now_ms, out)
        member = group.members[change.member_id]
        if change.topics_compared:
            group.topics_may_have_changed = False
        if change.replaced is not None:
            self._consumers.cancel_timers(group, change.replaced, out)
        # It has to join in time instead.
        self._consumers.timers.stop_revocation(group.group_id, member, out)
        self._cancel_join_timer(group, member, out)
        self._consumers.keep_session(group, member, now_ms, out)
        member.session.has_sync_timer = True
        wait_ms = max(rebalance_timeout_ms(asked.request), 0)
        out.append(SetTimer(classic_sync_key(group.group_id, member.member_id), now_ms + wait_ms))
        protocol = asked.request.protocols[0].name
        return _joined(member.member_id, change.current.member_epoch, protocol)

    def _join_as_classic_group(
        self,
        group: ConsumerGroup,
        owner: ConsumerMember,
        member_id: str,
        asked: AskedJoin,
        subscription: ConsumerProtocolSubscription,
        now_ms: int,
        out: list[Effect],
    ) -> JoinGroupResponse:
        """The last member of the consumer protocol is static, and back with the classic one: it has what it
        had, and there is no rebalance unless it subscribes to other topics or others were on their way.

        The generation is the group's epoch, in Kafka the member's: so a member that has to join again learns
        it from its sync.
        """
        metadata = _metadata(owner.metadata, asked, subscription)
        others = [member for member in group.members.values() if member is not owner]
        epoch, has = group.group_epoch, _has(owner)
        is_settled = (
            epoch == group.assignment_epoch
            and all(member.current.is_reconciled_to(epoch) for member in others)
            and metadata.subscribed_topic_names == owner.metadata.subscribed_topic_names
            and not owner.pattern
            and has == group.target_of(owner.member_id)
        )
        members = [*_classic_consumers(others), ClassicConsumer(member_id, metadata, has)]
        protocol = self._become_classic(group, members, not is_settled, now_ms, out)
        if protocol is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _joined(member_id, epoch, protocol)

    def _may_mix(self) -> bool:
        """Whether members of the classic protocol may join a consumer group."""
        return self._settings.group_consumer_migration_policy in MIXED

    # Sync

    def sync(self, asked: AskedSync, now_ms: int, out: list[Effect]) -> None:
        group = self._groups.get(asked.request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._classic.sync(asked, now_ms, out)
        try:
            response = self._sync(group, asked.request, now_ms, out)
        except KafkaError as refusal:
            response = SyncGroupResponse(error_code=refusal.code)
        out.append(Reply(asked.ticket, response))

    def _sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int, out: list[Effect]
    ) -> SyncGroupResponse:
        """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS."""
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        current, chosen = member.current, classic.supported_protocols[0]
        if request.generation_id != current.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if (request.protocol_type or CONSUMER_PROTOCOL_TYPE) != CONSUMER_PROTOCOL_TYPE or (
            request.protocol_name or chosen.name
        ) != chosen.name:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            current.member_epoch < group.assignment_epoch
            and current.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            # A member that has to give up partitions gets first the partitions that it keeps.
            self._require_join(group, member, now_ms, out)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        if member.session.has_sync_timer:
            member.session.has_sync_timer = False
            out.append(CancelTimer(classic_sync_key(group.group_id, member.member_id)))
        self._consumers.keep_session(group, member, now_ms, out)
        assigned = {topic_id: frozenset(partitions) for topic_id, partitions in current.assigned.items()}
        assignment = classic_assignment(assigned, chosen.metadata, self._topics())
        return SyncGroupResponse(
            error_code=NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        )

    # Heartbeat

    def heartbeat(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> None:
        request = asked.request
        group = self._groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._classic.heartbeat(asked, now_ms, out)
        code = NONE
        try:
            member, _ = _classic_member(group, request.member_id, request.group_instance_id)
            if request.generation_id != member.current.member_epoch:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            self._consumers.keep_session(group, member, now_ms, out)
            if _has_to_join(group, member) or self._needs_join_to_assign(group, now_ms):
                self._require_join(group, member, now_ms, out)
                code = ErrorCode.REBALANCE_IN_PROGRESS
        except KafkaError as refusal:
            code = refusal.code
        out.append(Reply(asked.ticket, HeartbeatResponse(error_code=code)))

    def _needs_join_to_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether a join has to compute an assignment, as all members are classic: none sends heartbeats of
        the consumer protocol. (In Kafka 4.3 such a group, which exists where a downgrade is forbidden, waits
        for ever.) False where the join would be refused: for a group that is older than the policy."""
        if group.classic_member_count < len(group.members) or not self._may_mix():
            return False
        return group.topics_may_have_changed or (
            group.group_epoch > group.assignment_epoch and self._consumers.may_assign(group, now_ms)
        )

    def _require_join(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, out: list[Effect]
    ) -> None:
        """Within its rebalance timeout, from the first call on."""
        if not member.session.has_join_timer:
            member.session.has_join_timer = True
            wait_ms = max(member.metadata.rebalance_timeout_ms, 0)
            out.append(SetTimer(classic_join_key(group.group_id, member.member_id), now_ms + wait_ms))

    def _cancel_join_timer(self, group: ConsumerGroup, member: ConsumerMember, out: list[Effect]) -> None:
        if member.session.has_join_timer:
            member.session.has_join_timer = False
            out.append(CancelTimer(classic_join_key(group.group_id, member.member_id)))

    def expire(
        self, group: ConsumerGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]
    ) -> None:
        """A classic member has not joined, or not synced, in time: it loses its place."""
        kind, _, member_id = timer_key
        member = group.members.get(member_id)
        if member is None or not member.is_classic:
            return
        session = member.session
        is_due = session.has_join_timer if kind == CLASSIC_JOIN else session.has_sync_timer
        if is_due:
            self._consumers.remove(group, [member], now_ms, out)

    # Leave

    def leave(self, asked: AskedLeave, now_ms: int, out: list[Effect]) -> None:
        group = self._groups.get(asked.request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self._classic.leave(asked, now_ms, out)
        left: list[MemberResponse] = []
        leaving: dict[str, ConsumerMember] = {}
        for one in asked.request.members:
            code = NONE
            try:
                member = _leaving_member(group, one)
                leaving[member.member_id] = member
            except KafkaError as refusal:
                code = refusal.code
            left.append(
                MemberResponse(
                    member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=code
                )
            )
        response = LeaveGroupResponse(error_code=NONE, members=left)
        try:
            if leaving:
                self._consumers.remove(group, list(leaving.values()), now_ms, out)
        except KafkaError as refusal:
            response = LeaveGroupResponse(error_code=refusal.code)
        out.append(Reply(asked.ticket, response))

    # From classic to consumer

    def upgrade(self, group: ClassicGroup) -> tuple[ConsumerGroup, list[GroupRecord]]:
        """A classic group with members as a consumer group, and the records that make it one; when
        they are stored, `upgraded` has to follow. GROUP_ID_NOT_FOUND when it cannot become one."""
        size, limit = len(group.members), self._settings.group_consumer_max_size
        if self._settings.group_consumer_migration_policy not in UPGRADE:
            raise _no_upgrade(group, "online upgrade is disabled")
        if not group.uses_consumer_protocol:
            raise _no_upgrade(group, "the group does not use the consumer embedded protocol")
        if size > limit:
            raise _no_upgrade(group, "the group size exceeds the consumer group maximum size")
        try:
            records = as_consumer_group(group, self._topics())
        except CannotConvert as problem:
            raise _no_upgrade(group, str(problem)) from problem
        converted = ConsumerGroup(group.group_id, self._topics)
        for key, value in records:
            if not isinstance(key, GroupMetadataKey):
                converted.apply(key, value)
        return converted, records

    def upgraded(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        """The group is a consumer group now: members whose requests wait have to join again."""
        self._classic.give_up(group, out)
        converted = self._groups[group.group_id]
        assert isinstance(converted, ConsumerGroup)
        for member_id in group.members:
            member = converted.members.get(member_id)
            # A static one may have been replaced in the same breath.
            if member is not None and member.is_classic:
                self._consumers.keep_session(converted, member, now_ms, out)

    # From consumer to classic

    def downgrade(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember], now_ms: int, out: list[Effect]
    ) -> bool:
        """Make what remains without these members a classic group, which rebalances, if all who remain use
        the classic protocol. False, and nothing done, if not."""
        if not self._may_downgrade(group, leaving, 0):
            return False
        gone = {member.member_id for member in leaving}
        staying = [member for member in group.members.values() if member.member_id not in gone]
        protocol = self._become_classic(group, _classic_consumers(staying), True, now_ms, out)
        return protocol is not None

    def _may_downgrade(
        self, group: ConsumerGroup, leaving: Collection[ConsumerMember], coming_count: int
    ) -> bool:
        staying_count = len(group.members) - len(leaving)
        classic_count = group.classic_member_count - sum(member.is_classic for member in leaving)
        if coming_count and any(member.is_classic for member in leaving):
            # A classic member that takes its own place changes nothing.
            return False
        size = staying_count + coming_count
        return (
            classic_count == staying_count
            and 0 < size <= self._settings.group_max_size
            and self._settings.group_consumer_migration_policy in DOWNGRADE
        )

    def _become_classic(
        self,
        group: ConsumerGroup,
        members: Iterable[ClassicConsumer],
        rebalances: bool,
        now_ms: int,
        out: list[Effect],
    ) -> str | None:
        """The protocol of the classic group; None, and nothing done, when it is too large for its record."""
        group_id, old_members = group.group_id, list(group.members.values())
        draft = as_classic_group(group_id, group.group_epoch, members, self._topics())
        if rebalances:
            # After a restart it must rebalance: the partitions of the members that left have no owner.
            draft.leader = None
        records: list[GroupRecord] = [(key, None) for key in group.keys()]  # noqa: SIM118
        records.append((GroupMetadataKey(group=group_id), draft.record(now_ms)))
        if not self._store(group_id, records, now_ms, out):
            return None
        for member in old_members:
            self._consumers.cancel_timers(group, member, out)
        self._classic.take_over(draft, rebalances, now_ms, out)
        return draft.protocol


def _owner(group: ConsumerGroup, instance_id: str | None) -> ConsumerMember | None:
    owner_id = None if instance_id is None else group.static_members.get(instance_id)
    return None if owner_id is None else group.members[owner_id]


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.members.get(member_id) if instance_id is None else _owner(group, instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.member_id != member_id:
        raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    """UNKNOWN_MEMBER_ID, also for a member of the other protocol, and FENCED_INSTANCE_ID."""
    member = _member(group, member_id, instance_id)
    classic = member.metadata.classic_member_metadata
    if classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, classic


def _leaving_member(group: ConsumerGroup, leaving: MemberIdentity) -> ConsumerMember:
    """The member, of any protocol; an administrator names the instance alone.

    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    owner = _owner(group, instance_id)
    if owner is not None and not member_id:
        return owner
    return _member(group, member_id, instance_id)


def _has_to_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether there is a new assignment, or something to give up, or something to have that was not free."""
    current = member.current
    if current.member_epoch < group.assignment_epoch:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return current.state is MemberState.UNREVOKED_PARTITIONS
    return not any(
        partition not in current.assigned.get(topic_id, ())
        and group.owner_epoch_of(topic_id, partition) != -1
        for topic_id, partitions in group.target_of(member.member_id).items()
        for partition in partitions
    )


def _metadata(
    known: ConsumerGroupMemberMetadataValue, asked: AskedJoin, subscription: ConsumerProtocolSubscription
) -> ConsumerGroupMemberMetadataValue:
    """The member's metadata, changed by its join. It cannot subscribe by pattern, nor name an assignor."""
    request = asked.request
    metadata = classic_metadata(
        subscription,
        instance_id=known.instance_id if request.group_instance_id is None else request.group_instance_id,
        client_id=asked.client.client_id,
        client_host=asked.client.host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=offered_protocols(request),
    )
    metadata.rack_id = metadata.rack_id or known.rack_id
    metadata.server_assignor = known.server_assignor
    return metadata


def _classic_consumers(members: Iterable[ConsumerMember]) -> list[ClassicConsumer]:
    """With what they have, where Kafka takes what they shall have: if the group is upgraded again before
    they have joined, no other member gets the partitions that they still use."""
    return [ClassicConsumer(member.member_id, member.metadata, _has(member)) for member in members]


def _has(member: ConsumerMember) -> Assignment:
    """All partitions that it may use."""
    has: dict[bytes, frozenset[int]] = {}
    for epochs in (member.current.assigned, member.current.revoking):
        for topic_id, partitions in epochs.items():
            has[topic_id] = has.get(topic_id, frozenset()) | partitions.keys()
    return has


def _joined(member_id: str, generation: int, protocol: str) -> JoinGroupResponse:
    """Without a leader."""
    return JoinGroupResponse(
        error_code=NONE,
        member_id=member_id,
        generation_id=generation,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol,
    )


def _no_upgrade(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )
