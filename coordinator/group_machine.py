"""The state machine over one partition of `__consumer_offsets`: its groups of all types and their offsets.

Durable state changes in `_apply_group` and in four methods of `CommittedOffsets` only. `replay`,
`replay_pending` and `replay_marker` call them with the records of the log, and so does a command that appends
that very record: the state after loading a log is the state that wrote it.

The membership of its type has the rules for the members of a group. Types register their commands,
timers and records (`coordinator/groups/group_type.py`); here each of these finds its way to its type, and the
decisions of a membership are written (`store`). Records of other types are left alone in the log.

The log is compacted, so the last records of two keys may stand in another order than they were written: what
`apply` makes of a group must not depend on the order of records of different keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar

from odradek.coordinator.asked import Asked, Ticket
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Append, Effect, LogRecord, Reply, SetTimer
from odradek.coordinator.group_types import GROUP_TYPES
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import RULES, GroupState
from odradek.coordinator.groups.commands import TopicsChanged
from odradek.coordinator.groups.committed_offsets import CommittedOffsets
from odradek.coordinator.groups.group import Group, GroupRecord, Membership, TypeOfGroup
from odradek.coordinator.groups.group_type import DeleteFirst, GroupTypes, Handler, MachineParts, QuickHandler
from odradek.coordinator.groups.record_codec import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    Kind,
    encode_offset_key,
)
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_fetch import OffsetFetchRequest

NONE = ErrorCode.NONE
TimerKey = tuple[str, ...]
"""Purpose of a timer, then the group, then the member."""
EXPIRE_OFFSETS: TimerKey = ("expire_offsets",)
RECORDS_PER_APPEND = 1_000
"""Tombstones of one big deletion are spread over batches of this many."""


class GroupMachine:
    """See `coordinator/effects.py` for how to run it. Load: `replay` each record, then `start` once.

    `topics` gives the newest view of the cluster. `new_member_suffix` makes the random part of the id of a
    member of a classic group, `new_member_id` a whole id for a member of any other that has none (the same
    again where it is not given). `types` are the types of groups that it serves.
    """

    offsets_class: ClassVar[type[CommittedOffsets]] = CommittedOffsets

    def __init__(
        self,
        settings: GroupSettings,
        new_member_suffix: Callable[[], str],
        topics: Callable[[], ClusterView] = ClusterView,
        new_member_id: Callable[[], str] | None = None,
        types: GroupTypes = GROUP_TYPES,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._settings = settings
        self._types = types
        self._memberships: dict[TypeOfGroup, Membership] = {}
        self._new_group: dict[TypeOfGroup, Callable[[str], Group]] = {}
        self._delete_first: dict[TypeOfGroup, DeleteFirst] = {}
        self._committed = self.offsets_class(self.groups, settings, self._memberships, self._delete)
        self.offsets, self.pending = self._committed.table, self._committed.pending
        self._replayed = self._committed.replayed
        self._handlers: dict[type, Handler] = {
            **self._committed.handlers,
            TopicsChanged: self._topics_changed,
            ListGroupsRequest: self._list_groups,
            DeleteGroupsRequest: self._delete_groups,
        }
        self._quick_handlers: dict[type, QuickHandler] = {OffsetFetchRequest: self._committed.fetched}
        parts = MachineParts(
            groups=self.groups,
            settings=settings,
            new_member_suffix=new_member_suffix,
            new_member_id=new_member_suffix if new_member_id is None else new_member_id,
            topics=topics,
            store=self.store,
            memberships=self._memberships,
            handlers=self._handlers,
            delete_group=self._delete_group,
            has_offsets=self._has_offsets,
        )
        for one in types.types:
            handlers = one.start(parts)
            self._memberships[one.name] = handlers.membership
            self._new_group[one.name] = handlers.new_group
            self._handlers |= handlers.commands
            self._quick_handlers |= handlers.quick_commands
            if handlers.delete is not None:
                self._delete_first[one.name] = handlers.delete

    def handle(self, command: Any, now_ms: int) -> list[Effect]:
        kind = command.__class__  # as `kind_of`, whose call every heartbeat and commit would pay for
        if kind is Asked:
            kind = command.request.__class__
        check = self._types.checks.get(kind)
        if check is not None:
            refusal = check(command, self._settings)
            if refusal is not None:
                return [Reply(command.ticket, refusal)]
        out: list[Effect] = []
        self._handlers[kind](command, now_ms, out)
        return out

    def ask(self, command: Any, now_ms: int) -> Any:
        """The response to a quick command that has no effect but its response, not to be changed. None, and
        nothing done, where it may have another effect."""
        kind = command.__class__
        if kind is Asked:
            kind = command.request.__class__
        return self._quick_handlers[kind](command, now_ms)

    def expire(self, timer_key: TimerKey, now_ms: int) -> list[Effect]:
        """A timer is due, at its time or later."""
        out: list[Effect] = []
        if timer_key == EXPIRE_OFFSETS:
            self._committed.expire(now_ms, out)
            self._set_expiry(now_ms, out)
            return out
        group = self.groups.get(timer_key[1])
        group_type = self._types.type_of_timer[timer_key[0]]
        # It may have become a group of another type, which has timers of its own.
        if group is not None and group.group_type == group_type:
            self._memberships[group_type].expire(group, timer_key, now_ms, out)
        return out

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log; a value of None deletes. Raises MalformedMessage."""
        if value is not None:
            offsets = self._replayed.get(key[:-4])
            if offsets is not None:
                offsets[record_codec.partition_of_offset_key(key)] = record_codec.decode_offset(value)
                if self.pending.by_group:
                    self.pending.overtake(*record_codec.decode_key(key)[1])
                return
        kind, subject = record_codec.decode_key(key, self._types.records)
        if kind is Kind.OFFSET:
            if value is None:
                self._committed.remove(*subject)
            else:
                self._committed.replay_first(key, subject, record_codec.decode_offset(value))
        elif kind is Kind.GROUP:
            if value is None:
                self._apply_group(subject, None)
            else:
                decoded = record_codec.decode_group_value(subject, value, self._types.records)
                self._apply_group(subject, decoded)

    def replay_pending(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Take in one record that a transaction has written. Raises MalformedMessage.

        Only offsets wait for its end: whatever else stands in such a batch, deletions too, counts at once,
        as in Kafka.
        """
        kind, subject = record_codec.decode_key(key, self._types.records)
        if kind is Kind.OFFSET and value is not None:
            group_id, topic, partition = subject
            self._committed.put_pending(
                producer_id, group_id, topic, partition, record_codec.decode_offset(value)
            )
        else:
            self.replay(key, value)

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Take in the end of a producer's transaction."""
        self._committed.end_transaction(producer_id, commit)

    def start(self, now_ms: int) -> list[Effect]:
        """The log has been replayed: start the timers of its groups."""
        self._replayed.clear()
        out: list[Effect] = []
        for group in list(self.groups.values()):
            self._memberships[group.group_type].start(group, now_ms, out)
        self._set_expiry(now_ms, out)
        return out

    def topics(self) -> set[str]:
        """The topics of which there are offsets, pending ones too."""
        return self.offsets.topics() | self.pending.topics()

    def owned(self, group: Group, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        """Topics and partitions that the members of a group have."""
        return self._memberships[group.group_type].owned(group, view)

    def refuse_waiting(self, code: ErrorCode) -> list[Effect]:
        """Refuses all tickets that wait, for a machine that is given up."""
        out: list[Effect] = []
        for group in self.groups.values():
            self._memberships[group.group_type].refuse_waiting(group, code, out)
        return out

    # Durable state

    def store(self, group_id: str, records: Iterable[GroupRecord], now_ms: int, out: list[Effect]) -> bool:
        """Apply and append records of a group (`coordinator/groups/group.py`, `Store`). What makes it a group
        of another type begins with tombstones for the old one's keys."""
        pairs = list(records)
        encoded: list[LogRecord] = [
            (*record_codec.encode_group_record(key, value), now_ms) for key, value in pairs
        ]
        if _batch_size(encoded) > self._settings.append_max_bytes:
            return False
        for key, value in pairs:
            assert record_codec.group_of(key) == group_id
            self._apply_group(key, value)
        if encoded:
            out.append(Append(encoded))
        return True

    def _apply_group(self, key: Any, value: Any) -> None:
        group_id, group_type = record_codec.group_of(key), self._types.type_of_key[key.__class__]
        group = self.groups.get(group_id)
        if group is None or group.group_type != group_type:
            if value is None:
                return
            # Over a classic one there stood no tombstone if it only kept offsets.
            group = self.groups[group_id] = self._new_group[group_type](group_id)
        if not group.apply(key, value):
            self._replayed.clear()
            del self.groups[group_id]

    def _delete(
        self,
        offsets: Iterable[tuple[str, str, int]],
        group_ids: Iterable[str],
        now_ms: int,
        out: list[Effect],
    ) -> None:
        """Write tombstones for offsets (group, topic, partition), then for groups."""
        records: list[LogRecord] = []
        for group_id, topic, partition in offsets:
            records.append((encode_offset_key(group_id, topic, partition), None, now_ms))
            self._committed.remove(group_id, topic, partition)
        for group_id in group_ids:
            keys = self.groups[group_id].keys()
            for key in keys:
                records.append((*record_codec.encode_group_record(key, None), now_ms))
                self._apply_group(key, None)
        for first in range(0, len(records), RECORDS_PER_APPEND):
            out.append(Append(records[first : first + RECORDS_PER_APPEND]))

    def _set_expiry(self, now_ms: int, out: list[Effect]) -> None:
        out.append(SetTimer(EXPIRE_OFFSETS, now_ms + self._settings.offsets_retention_check_interval_ms))

    # Commands about groups of any type

    def _topics_changed(self, command: TopicsChanged, now_ms: int, out: list[Effect]) -> None:
        for group in list(self.groups.values()):
            self._memberships[group.group_type].topics_changed(group, command.names, now_ms, out)
        out.append(Reply(command.ticket, NONE))

    def _list_groups(
        self, asked: Asked[ListGroupsRequest, ListGroupsResponse], now_ms: int, out: list[Effect]
    ) -> None:
        """Lists groups in the wanted states and of the wanted types, in upper or lower case; none for all."""
        states = {state.strip().lower() for state in asked.request.states_filter}
        types = {group_type.lower() for group_type in asked.request.types_filter}
        listed = [
            ListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.group_type,
            )
            for group_id, group in self.groups.items()
            if (not types or group.group_type in types) and (not states or group.state_name.lower() in states)
        ]
        out.append(Reply(asked.ticket, ListGroupsResponse(error_code=NONE, groups=listed)))

    def _delete_groups(
        self, asked: Asked[DeleteGroupsRequest, DeleteGroupsResponse], now_ms: int, out: list[Effect]
    ) -> None:
        """Deletes the one group of a request."""
        (group_id,) = asked.request.groups_names
        group = self.groups.get(group_id)
        delete = None if group is None else self._delete_first.get(group.group_type)
        if delete is None:
            self._delete_group(group_id, asked.ticket, now_ms, out)
        else:
            delete(group, asked.ticket, now_ms, out)

    def _delete_group(self, group_id: str, ticket: Ticket[Any], now_ms: int, out: list[Effect]) -> None:
        group = self.groups.get(group_id)
        code = RULES[GroupState.DEAD].delete if group is None else group.check_deletion()
        if code is NONE:
            deleted = [
                (group_id, topic, partition)
                for topic, offsets in self.offsets.of_group(group_id).items()
                for partition in offsets
            ]
            deleted += [(group_id, *place) for place in self.pending.of_group(group_id)]
            self._delete(dict.fromkeys(deleted), (group_id,), now_ms, out)
        result = DeletableGroupResult(group_id=group_id, error_code=code)
        out.append(Reply(ticket, DeleteGroupsResponse(results=[result])))

    def _has_offsets(self, group_id: str) -> bool:
        return bool(self.offsets.of_group(group_id) or self.pending.of_group(group_id))


def _batch_size(records: list[LogRecord]) -> int:
    """The bytes of the records as one batch, at most."""
    size = BATCH_OVERHEAD_BYTES
    for key, value, _ in records:
        size += RECORD_OVERHEAD_BYTES + len(key) + (0 if value is None else len(value))
    return size
