"""When a member of a consumer, share or streams group is removed: at the end of its session, or of the time
that it has to give up partitions.

Session deadlines move with every heartbeat, timers do not: a timer that rings too early is set again to the
deadline, so that a heartbeat that changes nothing costs an assignment and a response. None of this survives a
restart; then all of it begins again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from odradek.coordinator.effects import CancelTimer, Effect, SetTimer


@dataclass(slots=True)
class Session:
    deadline_ms: int = 0
    """When the session ends, unless the member sends a heartbeat."""
    timer_at_ms: int | None = None
    """When the session's timer will ring; heartbeats move only the deadline."""
    revoking_epoch: int | None = None
    """The epoch that the member has to leave in time, by giving something up: it has a timer for that."""
    quick_response: Any = None
    """The response to the last heartbeat that changed nothing; it is given out again, and not changed."""


class _Member(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def session(self) -> Session: ...


class MemberTimers:
    """Sets and cancels the timers of members. The two names are the first parts of their keys, before the
    group and the member; where nothing is ever given up there is only the first."""

    __slots__ = ("_rebalance", "_session")

    def __init__(self, session: str, rebalance: str = "") -> None:
        self._session = session
        self._rebalance = rebalance

    def extend(self, group_id: str, member: _Member, deadline_ms: int, out: list[Effect]) -> None:
        """The next heartbeat is due by `deadline_ms`."""
        session = member.session
        session.deadline_ms = deadline_ms
        if session.timer_at_ms is None or deadline_ms < session.timer_at_ms:
            self._set(group_id, member, out)

    def has_ended(self, group_id: str, member: _Member, now_ms: int, out: list[Effect]) -> bool:
        """The session's timer is due: whether the member is to be removed. If not, the timer is set."""
        session = member.session
        session.timer_at_ms = None
        if now_ms < session.deadline_ms:
            self._set(group_id, member, out)
            return False
        return True

    def time_revocation(
        self, group_id: str, member: _Member, epoch: int, at_ms: int, out: list[Effect]
    ) -> None:
        """The member has until `at_ms` to give something up, which takes it out of this epoch."""
        member.session.revoking_epoch = epoch
        out.append(SetTimer((self._rebalance, group_id, member.member_id), at_ms))

    def stop_revocation(self, group_id: str, member: _Member, out: list[Effect]) -> None:
        """There is nothing to give up, or no time to do it in."""
        if member.session.revoking_epoch is not None:
            member.session.revoking_epoch = None
            out.append(CancelTimer((self._rebalance, group_id, member.member_id)))

    def has_not_revoked(self, member: _Member, epoch: int) -> bool:
        """The timer of a revocation is due: whether the member, in this epoch now, is to be removed."""
        revoking_epoch, member.session.revoking_epoch = member.session.revoking_epoch, None
        return revoking_epoch == epoch

    def cancel(self, group_id: str, member: _Member, out: list[Effect]) -> None:
        """The member is in the group no more."""
        if member.session.timer_at_ms is not None:
            member.session.timer_at_ms = None
            out.append(CancelTimer((self._session, group_id, member.member_id)))
        self.stop_revocation(group_id, member, out)

    def _set(self, group_id: str, member: _Member, out: list[Effect]) -> None:
        session = member.session
        session.timer_at_ms = session.deadline_ms
        out.append(SetTimer((self._session, group_id, member.member_id), session.deadline_ms))
