"""The members of groups with epochs (KIP-848): heartbeats, time-outs, the description.

There is one request: a heartbeat joins, stays, changes the subscription, reports what the member has, or
leaves, and its response has the assignment. The group's epoch counts changes of members, subscriptions and
topics; the next heartbeat after a change computes the target assignment, no more often than the assignment
interval says; and each member comes to its target with its own heartbeats. All changes of one heartbeat are
written as one batch.

No ticket waits: every heartbeat is answered at once. The types of groups are policies: what is subscribed to,
the assignor, how a member moves, what the group has beside its members, and what the response says.

Source: GroupMetadataManager.java of Kafka 4.3; the texts that clients are shown are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from odradek.coordinator.asked import Asked
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.groups.epochs.change import AnyGroup, MemberChange
from odradek.coordinator.groups.epochs.fencing import check_epoch
from odradek.coordinator.groups.epochs.group import AnyMember
from odradek.coordinator.groups.group import (
    CLASSIC,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    GroupRecord,
    TypeOfGroup,
)
from odradek.coordinator.groups.group_type import MachineParts
from odradek.coordinator.groups.sessions import MemberTimers
from odradek.coordinator.groups.settings import Intervals
from odradek.wire.errors import ErrorCode, KafkaError

NONE = ErrorCode.NONE
AnyChange = TypeVar("AnyChange", bound=MemberChange[Any])


class Messages(NamedTuple):
    """The classes of the responses of one type, and of a group in a description."""

    heartbeat: Callable[..., Any]
    describe: Callable[..., Any]
    described_group: Callable[..., Any]


class EpochMembership(Generic[AnyGroup, AnyMember, AnyChange]):
    """The protocol over the groups of one machine. Each method adds its effects to `out`."""

    group_class: type[AnyGroup]
    kind: ClassVar[TypeOfGroup]
    change_class: type[AnyChange]
    messages: ClassVar[Messages]
    session: ClassVar[str]
    rebalance: ClassVar[str] = ""
    """First parts of the keys of timers."""
    replaces_empty_classic_groups: ClassVar[bool] = True
    maximum: ClassVar[str] = "its maximum of"
    too_large: ClassVar[str | None] = "The group has become too large."
    """Parts of refusals, for the size of a group and for that of its records."""

    def __init__(self, parts: MachineParts) -> None:
        self._groups = parts.groups
        self._settings = parts.settings
        self._topics = parts.topics
        self._store = parts.store
        self.timers = MemberTimers(self.session, self.rebalance)

    # Heartbeat

    def quick_heartbeat(self, asked: Asked[Any, Any], now_ms: int) -> Any:
        """The response to a heartbeat that moves a deadline and nothing else, as most do; None, and nothing
        done, where `heartbeat` has to judge it."""
        request = asked.request
        group = self._groups.get(request.group_id)
        if not isinstance(group, self.group_class):
            return None
        member = group.members.get(request.member_id)
        if member is None or not self._changes_nothing(group, member, asked, now_ms):
            return None
        session = member.session
        timeout_ms, interval_ms, _ = self._settings.of_group(request.group_id).intervals[self.kind]
        deadline_ms = now_ms + timeout_ms
        if session.timer_at_ms is None or deadline_ms < session.timer_at_ms:
            return None
        session.deadline_ms = deadline_ms
        response = session.quick_response
        if (
            response is None
            or response.member_epoch != request.member_epoch
            or response.heartbeat_interval_ms != interval_ms
        ):
            response = session.quick_response = self._accepted(request, interval_ms)
        return response

    def heartbeat(self, asked: Asked[Any, Any], now_ms: int, out: list[Effect]) -> None:
        known = self.quick_heartbeat(asked, now_ms)
        try:
            if known is not None:
                response = self._accepted(asked.request, known.heartbeat_interval_ms)
            elif asked.request.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
                response = self._leave(asked.request, now_ms, out)
            else:
                response = self._stay(asked, now_ms, out)
        except KafkaError as refusal:
            response = self.messages.heartbeat(error_code=refusal.code, error_message=refusal.own_message)
        out.append(Reply(asked.ticket, response))

    def _leave(self, request: Any, now_ms: int, out: list[Effect]) -> Any:
        group = self._existing(request.group_id)
        self._end(group, self._member_of(group, request), request, now_ms, out)
        return self._accepted(request, 0)

    def _stay(self, asked: Asked[Any, Any], now_ms: int, out: list[Effect]) -> Any:
        owned = self._owned(asked.request)
        change = self._change_of(asked.request, owned)
        self._update(change, asked, owned)
        self.advance(change, owned, now_ms, out)
        group: Any = self._groups[change.group.group_id]
        self._settle(change, group, group.members[change.member_id], asked, now_ms, out)
        return self._response(change, group, asked, owned)

    def advance(self, change: AnyChange, owned: Any, now_ms: int, out: list[Effect]) -> None:
        """The member as it now is, on its way to its target; and all records of the change."""
        if self._is_assignment_due(change, now_ms):
            change.assign(self._targets(change), now_ms)
        change.move(self._next_step(change, owned))
        self._complete(change, now_ms)
        self._store_all(change.group.group_id, change.records, now_ms, out)

    # Checks

    def _change_of(self, request: Any, owned: Any) -> AnyChange:
        """The change for the member that sent the heartbeat."""
        records: list[GroupRecord] = []
        if request.member_epoch == JOIN_EPOCH:
            group = self._group_to_join(request.group_id, records)
        else:
            group = self._existing(request.group_id, is_told_of_type=True)
        self._check_admission(group, request)
        change = self._change_for(group, request, owned)
        if records:
            change.records = [*records, *change.records]
        return change

    def _change_for(self, group: AnyGroup, request: Any, owned: Any) -> AnyChange:
        """UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
        if request.member_epoch == JOIN_EPOCH:
            member = group.members.get(request.member_id)
        else:
            member = self._member_of(group, request)
            current = member.current
            check_epoch(
                group.group_type, current, request.member_epoch, lambda: self._has_no_more(current, owned)
            )
        return self.change_class(group, member, request.member_id)

    def _existing(self, group_id: str, is_told_of_type: bool = False) -> AnyGroup:
        """GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            noun = f"{self.kind.capitalize()} group" if is_told_of_type else "Group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{noun} {group_id} not found.")
        if not isinstance(group, self.group_class):
            kind = self.kind
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
        return group

    def _group_to_join(self, group_id: str, records: list[GroupRecord]) -> AnyGroup:
        """The group of a member that joins; a new one where there is none, or an empty one of the classic
        protocol."""
        group = self._groups.get(group_id)
        if group is None:
            return self.new_group(group_id)
        if self.replaces_empty_classic_groups and group.group_type == CLASSIC and group.is_empty:
            keys = group.keys()
            records += [(key, None) for key in keys]
            return self.new_group(group_id)
        return self._existing(group_id)

    def _check_admission(self, group: AnyGroup, request: Any) -> None:
        """GROUP_MAX_SIZE_REACHED."""
        if request.member_id not in group.members:
            self._check_size(group)

    def _check_size(self, group: AnyGroup) -> None:
        limit = self._max_size()
        if len(group.members) >= limit:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The {group.group_type} group has {self.maximum} {limit} members.",
            )

    def _member_of(self, group: AnyGroup, request: Any) -> AnyMember:
        """UNKNOWN_MEMBER_ID."""
        member: AnyMember | None = group.members.get(request.member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {group.group_id}.",
            )
        return member

    # Target assignment

    def _is_assignment_due(self, change: AnyChange, now_ms: int) -> bool:
        return change.group_epoch > change.assignment_epoch and self.may_assign(change.group, now_ms)

    def may_assign(self, group: AnyGroup, now_ms: int) -> bool:
        """Whether enough time has passed since the last assignment."""
        interval_ms = self._intervals(group.group_id).assignment_interval_ms
        return not group.assigned_at_ms or not interval_ms or now_ms >= group.assigned_at_ms + interval_ms

    # After the records are written

    def _settle(
        self,
        change: AnyChange,
        group: AnyGroup,
        member: AnyMember,
        asked: Asked[Any, Any],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """State that does not survive a restart: timers, and flags for the next heartbeat."""
        if change.topics_compared:
            group.topics_may_have_changed = False
        if change.current is not change.current_before:
            self._time_revocation(group, member, now_ms, out)
        self.keep_session(group, member, now_ms, out)

    # Removal

    def remove(self, group: AnyGroup, members: Sequence[AnyMember], now_ms: int, out: list[Effect]) -> None:
        """Take members out: they have left, or their time is over."""
        group_id = group.group_id
        records: list[GroupRecord] = []
        for member in members:
            records += group.records.tombstones(group_id, member.member_id)
        records += self._records_without(group, members)
        if len(members) == len(group.members):
            # An emptied group has nothing to assign: it is up to date, and the next member waits for nothing.
            records.append(group.records.target_epoch(group_id, group.group_epoch + 1))
        self._store_all(group_id, records, now_ms, out)
        for member in members:
            self.cancel_timers(group, member, out)

    def cancel_timers(self, group: AnyGroup, member: AnyMember, out: list[Effect]) -> None:
        """The member is in the group no more, or the group is of another type."""
        self.timers.cancel(group.group_id, member, out)

    # Time-outs

    def start(self, group: AnyGroup, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: its members may still be there; their sessions begin now."""
        for member in group.members.values():
            self.keep_session(group, member, now_ms, out)
            if not member.is_classic:
                self._time_revocation(group, member, now_ms, out)

    def expire(self, group: AnyGroup, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]) -> None:
        """A timer of the group is due."""
        kind, _, member_id = timer_key
        member = group.members.get(member_id)
        if member is None:
            return
        if kind == self.session:
            is_gone = self.timers.has_ended(group.group_id, member, now_ms, out)
        else:
            assert kind == self.rebalance, timer_key
            is_gone = self.timers.has_not_revoked(member, member.current.member_epoch)
        if is_gone:
            self.remove(group, [member], now_ms, out)

    def keep_session(self, group: AnyGroup, member: AnyMember, now_ms: int, out: list[Effect]) -> None:
        """Extend the session of a member."""
        timeout_ms = self._intervals(group.group_id).session_timeout_ms
        self.timers.extend(group.group_id, member, now_ms + timeout_ms, out)

    def _time_revocation(self, group: AnyGroup, member: AnyMember, now_ms: int, out: list[Effect]) -> None:
        """A member that has to give something up has its rebalance timeout for that."""
        if member.current.is_revoking:
            epoch, until_ms = (
                member.current.member_epoch,
                now_ms + max(member.metadata.rebalance_timeout_ms, 0),
            )
            self.timers.time_revocation(group.group_id, member, epoch, until_ms, out)
        else:
            self.timers.stop_revocation(group.group_id, member, out)

    # Questions

    def describe(self, asked: Asked[Any, Any], now_ms: int, out: list[Effect]) -> None:
        """Describe the group of a request that names one. GROUP_ID_NOT_FOUND."""
        (group_id,) = asked.request.group_ids
        described = self.messages.described_group
        try:
            group = self._existing(group_id)
            found = described(
                error_code=NONE,
                group_id=group_id,
                group_state=group.state_name,
                group_epoch=group.group_epoch,
                assignment_epoch=group.assignment_epoch,
                **self._described(group, asked.request),
            )
        except KafkaError as refusal:
            found = described(error_code=refusal.code, error_message=refusal.own_message, group_id=group_id)
        out.append(Reply(asked.ticket, self.messages.describe(groups=[found])))

    def topics_changed(self, group: AnyGroup, names: frozenset[str], now_ms: int, out: list[Effect]) -> None:
        """The next heartbeat compares them."""
        raise NotImplementedError

    def offsets_committed(self, group: AnyGroup, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """A session is kept by heartbeats alone."""

    def owned(self, group: AnyGroup, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        raise NotImplementedError

    def refuse_waiting(self, group: AnyGroup, code: ErrorCode, out: list[Effect]) -> None:
        """No ticket waits."""

    # Inside

    def _store_all(self, group_id: str, records: list[GroupRecord], now_ms: int, out: list[Effect]) -> None:
        """UNKNOWN_SERVER_ERROR when they are too much for the log, as in Kafka."""
        if records and not self._store(group_id, records, now_ms, out):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, self.too_large)

    def _intervals(self, group_id: str) -> Intervals:
        return self._settings.of_group(group_id).intervals[self.kind]

    # The policy

    def new_group(self, group_id: str) -> AnyGroup:
        return self.group_class(group_id)

    def _max_size(self) -> int:
        raise NotImplementedError

    def _changes_nothing(
        self, group: AnyGroup, member: AnyMember, asked: Asked[Any, Any], now_ms: int
    ) -> bool:
        """Whether this is the plain heartbeat of a member that has its target assignment. False means
        "perhaps not": the full check follows."""
        return False

    def _owned(self, request: Any) -> Any:
        """Parts that the member reports to have; None: as before."""
        return None

    def _has_no_more(self, current: Any, owned: Any) -> bool:
        """Whether a member whose last response was lost has only what it was given."""
        raise NotImplementedError

    def _update(self, change: AnyChange, asked: Asked[Any, Any], owned: Any) -> None:
        """The member and the topics as they now are, and what follows for the group's epoch."""
        raise NotImplementedError

    def _targets(self, change: AnyChange) -> Mapping[str, Any]:
        """A new target assignment, by member id."""
        raise NotImplementedError

    def _next_step(self, change: AnyChange, owned: Any) -> Any:
        """The next step of the member. FENCED_MEMBER_EPOCH."""
        raise NotImplementedError

    def _complete(self, change: AnyChange, now_ms: int) -> None:
        """Add the records of what only this type has."""

    def _response(self, change: AnyChange, group: AnyGroup, asked: Asked[Any, Any], owned: Any) -> Any:
        raise NotImplementedError

    def _end(self, group: AnyGroup, member: AnyMember, request: Any, now_ms: int, out: list[Effect]) -> None:
        """A member says that it leaves."""
        self.remove(group, [member], now_ms, out)

    def _accepted(self, request: Any, heartbeat_interval_ms: int) -> Any:
        """The member has what it had, or nothing any more."""
        return self.messages.heartbeat(
            error_code=NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=heartbeat_interval_ms,
        )

    def _records_without(self, group: AnyGroup, members: Sequence[AnyMember]) -> list[GroupRecord]:
        """The records of a group that loses these members, after their own."""
        raise NotImplementedError

    def _described(self, group: AnyGroup, request: Any) -> dict[str, Any]:
        """The members in a description, and what this type tells beside them."""
        raise NotImplementedError
