"""The rebalance of a classic group: how it begins, and completes, if need be without members that are late.

A join waits until all members have joined, or the time to join is over. Then a generation begins, and a sync
waits until the leader has sent the assignment.
"""

from __future__ import annotations

from odradek.coordinator.effects import CancelTimer, Effect, SetTimer
from odradek.coordinator.groups.classic_group import RULES, ClassicGroup, GroupState, Member
from odradek.coordinator.groups.classic_members import (
    extend_session,
    join_response,
    remove_member,
    respond_to_join,
    respond_to_sync,
    sync_response,
)
from odradek.coordinator.groups.group import Store
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from odradek.wire.messages.sync_group import SyncGroupResponse

JOIN_AGAIN_AFTER_MS = 1_000
"""How often, at most, to look whether a static member is back: members choose their rebalance timeout."""
JOIN, SYNC = "join", "sync"
"""The first parts of the keys of its timers, before the group."""


def join_key(group_id: str) -> tuple[str, str]:
    return (JOIN, group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return (SYNC, group_id)


class Rebalance:
    """Each method adds its effects to `out`."""

    def __init__(self, settings: GroupSettings, store: Store) -> None:
        self._settings = settings
        self._store = store

    def store(self, group: ClassicGroup, record: GroupMetadataValue, now_ms: int, out: list[Effect]) -> bool:
        """False if the record is too large; then nothing is written."""
        reached = GroupState.STABLE if record.members else GroupState.EMPTY
        key = GroupMetadataKey(group=group.group_id)
        comes_from = group.state
        is_stored = self._store(group.group_id, [(key, record)], now_ms, out)
        assert not is_stored or comes_from is reached or comes_from in RULES[reached].comes_from
        return is_stored

    # Join

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        if group.state in RULES[GroupState.PREPARING_REBALANCE].comes_from:
            self.prepare(group, now_ms, out)
        else:
            self.complete_if_all_joined(group, now_ms, out)

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        """Not the first rebalance of a group, which waits for the end of its delay."""
        preparing = group.state is GroupState.PREPARING_REBALANCE
        if preparing and not group.is_initial_rebalance and group.has_all_members_joined:
            self.complete_join(group, now_ms, out)

    def prepare(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                # Only DescribeGroups shows it: the next generation has another assignment.
                member.assignment = b""
                again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
                _respond_to_sync(group, member, again, now_ms, out)
        if group.pending_sync or group.state is GroupState.COMPLETING_REBALANCE:
            group.pending_sync.clear()
            out.append(CancelTimer(sync_key(group.group_id)))
        is_initial = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE)
        if is_initial:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            group.new_member_added = False
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            out.append(SetTimer(join_key(group.group_id), now_ms + delay_ms))
        elif group.has_all_members_joined:
            self.complete_join(group, now_ms, out)
        else:
            out.append(SetTimer(join_key(group.group_id), now_ms + group.rebalance_timeout_ms))

    def expire_join(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        """The time to join is over, or the initial delay: then it may be extended."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        remaining_ms = group.initial_remaining_ms
        if group.new_member_added and remaining_ms:
            delay_ms = min(self._settings.group_initial_rebalance_delay_ms, remaining_ms)
            group.new_member_added = False
            group.initial_remaining_ms = max(remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            out.append(SetTimer(join_key(group.group_id), now_ms + delay_ms))
        else:
            self.complete_join(group, now_ms, out)

    def complete_join(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        """A generation of the members that have joined. Late members are removed, except static ones."""
        group_id = group.group_id
        out.append(CancelTimer(join_key(group_id)))
        late = [
            member
            for member in group.members.values()
            if member.join_ticket is None and member.group_instance_id is None
        ]
        for member in late:
            remove_member(group, member.member_id, out)
        if not group.members:
            group.generation += 1
            group.protocol = None
            self.store(group, group.record(now_ms), now_ms, out)
        elif not group.elect_joined_leader():
            # Static members only, and none has joined: wait until their sessions end.
            group.initial_remaining_ms = None
            wait_ms = max(group.rebalance_timeout_ms, JOIN_AGAIN_AFTER_MS)
            out.append(SetTimer(join_key(group_id), now_ms + wait_ms))
        else:
            group.begin_generation()
            for member in group.members.values():
                respond_to_join(group, member, join_response(group, member.member_id), out)
                extend_session(group, member, now_ms, out)
                member.is_new = False
            out.append(SetTimer(sync_key(group_id), now_ms + group.rebalance_timeout_ms))

    # Sync

    def assign(
        self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int, out: list[Effect]
    ) -> None:
        """Store the leader's assignment, and answer the syncs that wait."""
        record = group.record(now_ms, assignments)
        if self.store(group, record, now_ms, out):
            for member in group.members.values():
                _respond_to_sync(group, member, sync_response(group, member), now_ms, out)
        else:
            for member in group.members.values():
                too_large = SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                _respond_to_sync(group, member, too_large, now_ms, out)
            self.prepare(group, now_ms, out)

    def expire_sync(self, group: ClassicGroup, now_ms: int, out: list[Effect]) -> None:
        """Remove the members that joined and sent no sync."""
        if not group.pending_sync or group.state is GroupState.PREPARING_REBALANCE:
            return
        for member_id in sorted(group.pending_sync):
            remove_member(group, member_id, out)
        self.prepare(group, now_ms, out)


def _respond_to_sync(
    group: ClassicGroup, member: Member, response: SyncGroupResponse, now_ms: int, out: list[Effect]
) -> None:
    """The session of a member whose sync waits does not end: it begins again with the response."""
    if respond_to_sync(member, response, out):
        extend_session(group, member, now_ms, out)
