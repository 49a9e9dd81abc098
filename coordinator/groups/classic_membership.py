"""The requests of members of a classic group: join, sync, heartbeat, leave; and their time-outs.

The rules are those of Kafka's GroupMetadataManager.java (classic groups). A closed connection changes
nothing: a member leaves with its own request, or when its session times out. What follows for the group is
decided in `classic_rebalance.py`; sessions and responses of one member are in `classic_members.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from odradek.coordinator.asked import Asked
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import CancelTimer, Effect, Reply, SetTimer
from odradek.coordinator.groups.classic_group import ClassicGroup, GroupState, Member, OfferedProtocol
from odradek.coordinator.groups.classic_members import (
    SESSION,
    cancel_session,
    extend_session,
    has_session_ended,
    join_response,
    refused_join,
    remove_member,
    respond_to_join,
    respond_to_sync,
    session_key,
    sync_response,
)
from odradek.coordinator.groups.classic_rebalance import JOIN, SYNC, Rebalance, join_key, sync_key
from odradek.coordinator.groups.group import Group, Store
from odradek.coordinator.groups.record_codec import assigned_partitions, fits_record
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import GroupMetadataKey
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

NONE = ErrorCode.NONE
NEW_MEMBER_TIMEOUT_MS = 5 * 60_000
"""How long a member may wait for its first join, without heartbeats (Kafka's constant)."""
MEMBER_ID_PREFIX_LENGTH_MAX = 8_000
PENDING_MEMBERS_MAX = 10_000
"""Ids of one group that have not joined yet; the oldest is removed first. Kafka keeps any number for as long
as a session, so a client that never joins could fill the memory."""
MEMBER_ID_REQUIRED_SINCE = 4
"""JoinGroup version from which a new member is given an id first (KIP-394)."""
SKIP_ASSIGNMENT_SINCE = 9
"""JoinGroup version whose response lets a returning static leader skip the assignment (KIP-814)."""

_HEARTBEAT_RESPONSES = {code: HeartbeatResponse(error_code=code) for code in ErrorCode}
AskedJoin = Asked[JoinGroupRequest, JoinGroupResponse]
AskedSync = Asked[SyncGroupRequest, SyncGroupResponse]
AskedHeartbeat = Asked[HeartbeatRequest, HeartbeatResponse]
AskedLeave = Asked[LeaveGroupRequest, LeaveGroupResponse]
TIMERS = (SESSION, JOIN, SYNC)
"""The first parts of the keys of timers, before the group and the member."""


class Membership:
    """The classic protocol over the groups of one machine. Each method adds its effects to `out`."""

    def __init__(
        self,
        groups: dict[str, Group],
        settings: GroupSettings,
        new_member_suffix: Callable[[], str],
        store: Store,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._new_member_suffix = new_member_suffix
        self._store = store
        self._rebalance = Rebalance(settings, store)

    # Join

    def join(self, asked: AskedJoin, now_ms: int, out: list[Effect]) -> None:
        """To a group that is classic, or empty, or not there; `migration.py` joins others."""
        request, member_id = asked.request, asked.request.member_id
        if not fits_join(asked):
            return _refuse_join(asked, ErrorCode.UNKNOWN_SERVER_ERROR, member_id, out)
        known = self._groups.get(request.group_id)
        if isinstance(known, ClassicGroup):
            group = known
        elif known is not None and not known.is_empty:
            return _refuse_join(asked, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", out)
        elif member_id:
            return _refuse_join(asked, ErrorCode.UNKNOWN_MEMBER_ID, member_id, out)
        else:
            group = self._create(request.group_id, known, now_ms, out)
        if not self._has_room(group, member_id):
            remove_member(group, member_id, out)
            _refuse_join(asked, ErrorCode.GROUP_MAX_SIZE_REACHED, "", out)
        elif not group.supports(request.protocol_type, offered_protocols(request)):
            _refuse_join(asked, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id, out)
        elif member_id:
            self._join_known(group, asked, now_ms, out)
        else:
            self._join_new(group, asked, now_ms, out)

    def _create(self, group_id: str, replaced: Group | None, now_ms: int, out: list[Effect]) -> ClassicGroup:
        """A new group, perhaps in the place of an empty one of another type."""
        key, record = GroupMetadataKey(group=group_id), ClassicGroup(group_id).record(now_ms)
        old_keys = [] if replaced is None else replaced.keys()
        tombstones = [(old_key, None) for old_key in old_keys]
        self._store(group_id, [*tombstones, (key, record)], now_ms, out)
        group = self._groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._settings.group_max_size
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Only members that have joined count: after a lower limit the last to join again are refused.
            return group.awaiting_join_count < limit or (
                member is not None and member.join_ticket is not None
            )
        return member is not None or len(group.members) < limit

    def _join_new(self, group: ClassicGroup, asked: AskedJoin, now_ms: int, out: list[Effect]) -> None:
        instance_id = asked.request.group_instance_id
        prefix = asked.client.client_id if instance_id is None else instance_id
        # Cut, so that the id fits into a record, too; ids are opaque.
        member_id = f"{prefix[:MEMBER_ID_PREFIX_LENGTH_MAX]}-{self._new_member_suffix()}"
        if instance_id in group.static_members:
            self._replace_static_member(group, member_id, asked, now_ms, out)
        elif instance_id is None and asked.client.version >= MEMBER_ID_REQUIRED_SINCE:
            if len(group.pending_members) >= PENDING_MEMBERS_MAX:
                remove_member(group, next(iter(group.pending_members)), out)
            lapses_at_ms = now_ms + asked.request.session_timeout_ms
            group.pending_members[member_id] = lapses_at_ms
            out.append(SetTimer(session_key(group.group_id, member_id), lapses_at_ms))
            _refuse_join(asked, ErrorCode.MEMBER_ID_REQUIRED, member_id, out)
        else:
            self._add_member(group, member_id, asked, now_ms, out)

    def _join_known(self, group: ClassicGroup, asked: AskedJoin, now_ms: int, out: list[Effect]) -> None:
        member_id, instance_id = asked.request.member_id, asked.request.group_instance_id
        if member_id in group.pending_members:
            if instance_id is not None:
                # Only dynamic members are pending; in Kafka this raises.
                return _refuse_join(asked, ErrorCode.UNKNOWN_SERVER_ERROR, "", out)
            return self._add_member(group, member_id, asked, now_ms, out)
        code = group.check_member(member_id, instance_id)
        if code is not NONE:
            return _refuse_join(asked, code, member_id, out)
        member = group.members[member_id]
        is_leader = group.leader == member_id
        if group.state is GroupState.COMPLETING_REBALANCE:
            # A retry: the response to its join was lost.
            is_current = member.protocols == offered_protocols(asked.request)
        elif group.state is GroupState.STABLE:
            # A leader joins again for a new assignment, for example when a topic has new partitions.
            is_current = not is_leader and member.protocols == offered_protocols(asked.request)
        else:
            is_current = False
        if is_current:
            out.append(Reply(asked.ticket, join_response(group, member_id)))
        else:
            self._update_member(group, member, asked, out)
            self._rebalance.prepare_or_complete(group, now_ms, out)

    def _add_member(
        self, group: ClassicGroup, member_id: str, asked: AskedJoin, now_ms: int, out: list[Effect]
    ) -> None:
        request = asked.request
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=asked.client.client_id,
            client_host=asked.client.host,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=offered_protocols(request),
            is_new=True,
            join_ticket=asked.ticket,
        )
        if group.is_initial_rebalance:
            group.new_member_added = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        extend_session(group, member, now_ms, out, NEW_MEMBER_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(group, now_ms, out)

    def _update_member(
        self, group: ClassicGroup, member: Member, asked: AskedJoin, out: list[Effect]
    ) -> None:
        group.update(member, offered_protocols(asked.request))
        member.rebalance_timeout_ms = rebalance_timeout_ms(asked.request)
        member.session_timeout_ms = asked.request.session_timeout_ms
        earlier = group.set_join_ticket(member, asked.ticket)
        if earlier is not None:
            # Kafka forgets the earlier request; a client that reads this response joins again.
            out.append(Reply(earlier, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)))

    def _replace_static_member(
        self, group: ClassicGroup, member_id: str, asked: AskedJoin, now_ms: int, out: list[Effect]
    ) -> None:
        instance_id = asked.request.group_instance_id
        assert instance_id is not None
        old_member_id, old_leader = group.static_members[instance_id], group.leader
        old_member = group.members[old_member_id]
        respond_to_join(group, old_member, refused_join(ErrorCode.FENCED_INSTANCE_ID, old_member_id), out)
        respond_to_sync(old_member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID), out)
        cancel_session(group, old_member, out)
        member = group.replace_static_member(instance_id, member_id)
        extend_session(group, member, now_ms, out)
        self._update_member(group, member, asked, out)
        if (
            group.state is GroupState.STABLE
            and group.protocol_counts.select(group.members.values()) == group.protocol
        ):
            self._return_to_stable(group, member, old_leader, asked.client.version, now_ms, out)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._rebalance.complete_if_all_joined(group, now_ms, out)
        else:
            # The leader may have the old id: its assignment would not reach the new one.
            self._rebalance.prepare(group, now_ms, out)

    def _return_to_stable(
        self,
        group: ClassicGroup,
        member: Member,
        old_leader: str | None,
        version: int,
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """A static member is back and nothing changes for the others: no rebalance."""
        member_id = member.member_id
        # In the log before the response: a restart must not fence the new id.
        reached_at_ms = now_ms if group.state_timestamp_ms is None else group.state_timestamp_ms
        if not self._rebalance.store(group, group.record(reached_at_ms), now_ms, out):
            return self._rebalance.prepare(group, now_ms, out)
        response = join_response(group, member_id)
        if version >= SKIP_ASSIGNMENT_SINCE:
            response.skip_assignment = group.leader == member_id
        else:
            # With the old leader's id it does not act as the leader, and just syncs.
            response.leader, response.members = old_leader or "", []
        respond_to_join(group, group.members[member_id], response, out)

    # Sync

    def sync(self, asked: AskedSync, now_ms: int, out: list[Effect]) -> None:
        request, ticket, member_id = asked.request, asked.ticket, asked.request.member_id
        group = self._classic_group(request.group_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _check_sync(group, request)
        if group is None or code is not NONE:
            out.append(Reply(ticket, SyncGroupResponse(error_code=code)))
            return
        member = group.members[member_id]
        if member_id in group.pending_sync:
            group.pending_sync.remove(member_id)
            if not group.pending_sync:
                out.append(CancelTimer(sync_key(group.group_id)))
        if group.state is GroupState.STABLE:
            out.append(Reply(ticket, sync_response(group, member)))
            return
        earlier, member.sync_ticket = member.sync_ticket, ticket
        if earlier is not None:
            again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            out.append(Reply(earlier, again))
        if group.leader == member_id:
            assignments = {one.member_id: one.assignment for one in request.assignments}
            self._rebalance.assign(group, assignments, now_ms, out)

    # Heartbeat

    def quick_heartbeat(self, asked: AskedHeartbeat, now_ms: int) -> HeartbeatResponse | None:
        """The response to a heartbeat that moves a deadline and nothing else, as most do; not to be changed.
        None, and nothing done, for others: they go to `heartbeat`."""
        request = asked.request
        group = self._groups.get(request.group_id)
        if not isinstance(group, ClassicGroup) or request.generation_id != group.generation:
            return None
        member_id, instance_id = request.member_id, request.group_instance_id
        member = group.members.get(member_id)
        if member is None or (instance_id is not None and group.static_members.get(instance_id) != member_id):
            return None
        deadline_ms = now_ms + member.session_timeout_ms
        if member.timer_at_ms is None or deadline_ms < member.timer_at_ms:
            return None
        member.deadline_ms = deadline_ms
        return _HEARTBEAT_RESPONSES[group.rules.heartbeat]

    def heartbeat(self, asked: AskedHeartbeat, now_ms: int, out: list[Effect]) -> None:
        known = self.quick_heartbeat(asked, now_ms)
        code = self._check_heartbeat(asked.request, now_ms, out) if known is None else known.error_code
        out.append(Reply(asked.ticket, HeartbeatResponse(error_code=code)))

    def _check_heartbeat(self, request: HeartbeatRequest, now_ms: int, out: list[Effect]) -> ErrorCode:
        group = self._classic_group(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        code = group.check_member(request.member_id, request.group_instance_id)
        if code is not NONE:
            return code
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        extend_session(group, group.members[request.member_id], now_ms, out)
        return group.rules.heartbeat

    def _expire_session(self, group: ClassicGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """Remove the member, unless its deadline moved or it waits for a response."""
        lapses_at_ms = group.pending_members.get(member_id)
        if lapses_at_ms is not None:
            assert now_ms >= lapses_at_ms
            group.remove(member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
                self._rebalance.complete_join(group, now_ms, out)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        waits = not member.is_new and (member.join_ticket is not None or member.sync_ticket is not None)
        if has_session_ended(group, member, now_ms, out) and not waits:
            remove_member(group, member_id, out)
            if group.state is not GroupState.PREPARING_REBALANCE:
                self._rebalance.prepare_or_complete(group, now_ms, out)
            elif group.has_all_members_joined:
                self._rebalance.complete_join(group, now_ms, out)

    # Leave

    def leave(self, asked: AskedLeave, now_ms: int, out: list[Effect]) -> None:
        group = self._classic_group(asked.request.group_id)
        left = [self._leave_one(group, leaving, out) for leaving in asked.request.members]
        if group is not None and any(member.error_code is NONE for member in left):
            if group.state is GroupState.PREPARING_REBALANCE:
                self._rebalance.complete_if_all_joined(group, now_ms, out)
            elif group.state is not GroupState.EMPTY:
                self._rebalance.prepare(group, now_ms, out)
        out.append(Reply(asked.ticket, LeaveGroupResponse(error_code=NONE, members=left)))

    def _leave_one(
        self, group: ClassicGroup | None, leaving: MemberIdentity, out: list[Effect]
    ) -> MemberResponse:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_members:
            remove_member(group, member_id, out)
            code = NONE
        else:
            # An administrator names the instance alone.
            target = member_id or group.static_members.get(instance_id or "", "")
            code = group.check_member(target, instance_id)
            if code is NONE:
                remove_member(group, target, out)
        return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)

    # Start and end

    def start(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: the sessions of its members begin now."""
        for member in group.members.values():
            extend_session(group, member, now_ms, out)
        if group.is_unled or len(group.members) > self._settings.group_max_size:
            self._rebalance.prepare(group, now_ms, out)

    def owned(self, group: ClassicGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        """Nothing of a member whose assignment is not one of consumers."""
        for member in list(group.members.values()) if group.uses_consumer_protocol else []:
            yield from assigned_partitions(member.assignment)

    def refuse_waiting(self, group: ClassicGroup, code: ErrorCode, out: list[Effect]) -> None:
        """Refuse all joins and syncs that wait: the machine is given up."""
        for member in group.members.values():
            respond_to_join(group, member, refused_join(code, member.member_id), out)
            respond_to_sync(member, SyncGroupResponse(error_code=code), out)

    def expire(self, group: ClassicGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]) -> None:
        """A timer of the group is due."""
        kind = timer_key[0]
        if kind == SESSION:
            self._expire_session(group, timer_key[2], now_ms, out)
        elif kind == JOIN:
            self._rebalance.expire_join(group, now_ms, out)
        else:
            assert kind == SYNC, timer_key
            self._rebalance.expire_sync(group, now_ms, out)

    def topics_changed(
        self, group: ClassicGroup, names: frozenset[str], now_ms: int, out: list[Effect]
    ) -> None:
        """Classic members watch their topics themselves."""

    def offsets_committed(self, group: ClassicGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """In most states a commit extends the session, as a heartbeat does."""
        if group.rules.commit_keeps_session:
            extend_session(group, group.members[member_id], now_ms, out)

    # Changes of type

    def give_up(self, group: ClassicGroup, out: list[Effect]) -> None:
        """The group is of another type now: joins and syncs that wait are refused, timers cancelled."""
        self.refuse_waiting(group, ErrorCode.REBALANCE_IN_PROGRESS, out)
        for member in group.members.values():
            cancel_session(group, member, out)
        out += [CancelTimer(session_key(group.group_id, member_id)) for member_id in group.pending_members]
        out += [CancelTimer(join_key(group.group_id)), CancelTimer(sync_key(group.group_id))]

    def take_over(self, draft: ClassicGroup, rebalances: bool, now_ms: int, out: list[Effect]) -> None:
        """A group of another type has just become `draft`: stable, unless it is to rebalance."""
        group = self._groups[draft.group_id]
        assert isinstance(group, ClassicGroup)
        for member_id, member in group.members.items():
            group.update(member, draft.members[member_id].protocols)
            extend_session(group, member, now_ms, out)
        if rebalances:
            self._rebalance.prepare(group, now_ms, out)

    # Inside

    def _classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None


def offered_protocols(request: JoinGroupRequest) -> list[OfferedProtocol]:
    return [OfferedProtocol(one.name, one.metadata) for one in request.protocols]


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """-1 (version 0 has none) stands for the session timeout."""
    timeout_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout_ms == -1 else timeout_ms


def fits_join(asked: AskedJoin) -> bool:
    """Whether a record has room for what is said of a member."""
    request = asked.request
    names = [one.name for one in request.protocols]
    return fits_record(
        request.group_id, asked.client.client_id, request.group_instance_id, request.protocol_type, *names
    )


def _refuse_join(asked: AskedJoin, code: ErrorCode, member_id: str, out: list[Effect]) -> None:
    out.append(Reply(asked.ticket, refused_join(code, member_id)))


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    code = group.check_member(request.member_id, request.group_instance_id)
    if code is not NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for given, expected in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol),
    ):
        # A member that was in a group of another type names the protocol of that group.
        if given is not None and expected is not None and given != expected and not group.is_unled:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return group.rules.sync
