"""One member of a classic group: its session, and the responses to its join and sync.

Session deadlines move with every heartbeat, timers do not: a timer that rings too early is set again to the
deadline, so that a heartbeat costs an assignment. Each function adds its effects to `out`.
"""

from __future__ import annotations

from odradek.coordinator.effects import CancelTimer, Effect, Reply, SetTimer
from odradek.coordinator.groups.classic_group import ClassicGroup, Member
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.wire.messages.sync_group import SyncGroupResponse

NONE = ErrorCode.NONE
SESSION = "session"
"""The first part of the keys of its timers, before the group and the member."""


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return (SESSION, group_id, member_id)


# Session


def extend_session(
    group: ClassicGroup, member: Member, now_ms: int, out: list[Effect], timeout_ms: int | None = None
) -> None:
    """The session lasts this long from now; by default for the session timeout of the member."""
    deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
    member.deadline_ms = deadline_ms
    timer_at_ms = member.timer_at_ms
    if timer_at_ms is None or deadline_ms < timer_at_ms:
        _set_session_timer(group, member, out)


def has_session_ended(group: ClassicGroup, member: Member, now_ms: int, out: list[Effect]) -> bool:
    """The timer of the session is due: whether the deadline is reached. If not, the timer is set again."""
    member.timer_at_ms = None
    if now_ms < member.deadline_ms:
        _set_session_timer(group, member, out)
        return False
    return True


def cancel_session(group: ClassicGroup, member: Member, out: list[Effect]) -> None:
    if member.timer_at_ms is not None:
        member.timer_at_ms = None
        out.append(CancelTimer(session_key(group.group_id, member.member_id)))


def _set_session_timer(group: ClassicGroup, member: Member, out: list[Effect]) -> None:
    member.timer_at_ms = member.deadline_ms
    out.append(SetTimer(session_key(group.group_id, member.member_id), member.deadline_ms))


def remove_member(group: ClassicGroup, member_id: str, out: list[Effect]) -> None:
    """Also a pending member. One that waits for a response is refused, and may join as a new member."""
    if member_id in group.pending_members:
        out.append(CancelTimer(session_key(group.group_id, member_id)))
    elif (member := group.members.get(member_id)) is not None:
        respond_to_join(group, member, refused_join(ErrorCode.UNKNOWN_MEMBER_ID), out)
        respond_to_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), out)
        cancel_session(group, member, out)
    group.remove(member_id)


# Responses


def respond_to_join(
    group: ClassicGroup, member: Member, response: JoinGroupResponse, out: list[Effect]
) -> None:
    """To the join that waits, if there is one."""
    ticket = group.take_join_ticket(member)
    if ticket is not None:
        out.append(Reply(ticket, response))


def respond_to_sync(member: Member, response: SyncGroupResponse, out: list[Effect]) -> bool:
    """To the sync that waits; False if there is none."""
    ticket = member.sync_ticket
    if ticket is None:
        return False
    member.sync_ticket = None
    out.append(Reply(ticket, response))
    return True


def join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """Only the leader gets the members and their metadata: it makes the assignment."""
    members = group.members.values() if group.leader == member_id else ()
    return JoinGroupResponse(
        error_code=NONE,
        member_id=member_id,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(group.protocol),
            )
            for member in members
        ],
    )


def refused_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
