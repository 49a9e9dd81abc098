"""A group of any type, as the rest of the machine uses it: offsets, listings, deletions.

Each type has a class of its own (`classic_group.py`, `consumer_group.py`, `streams/group.py`) and beside it a
membership, the rules for its members (`classic_membership.py`, `consumer_membership.py`, ...).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

TypeOfGroup = str
CLASSIC: TypeOfGroup = "classic"
CONSUMER: TypeOfGroup = "consumer"
SHARE: TypeOfGroup = "share"
STREAMS: TypeOfGroup = "streams"
"""Kafka's types, as ListGroups names them."""
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_FOR_A_WHILE_EPOCH = -2
"""The epoch of a static member that is to be back before its session ends."""

CommitRequest = OffsetCommitRequest | TxnOffsetCommitRequest
EPOCHS_IN_TRANSACTION_SINCE = 6
"""TxnOffsetCommit version from which clients know the errors of a missing group and of a member's epoch."""

GroupRecord = tuple[Any, Any]
"""Key and value (None: a tombstone) of a record of `__consumer_offsets`, as `wire/messages/group_records.py`
declares them."""


class Store(Protocol):
    """How durable state is written: applies a group's records one by one and appends them as one batch.

    False, and nothing done, when they are more than the log takes in one batch. None records: nothing done.
    """

    def __call__(
        self, group_id: str, records: Iterable[GroupRecord], now_ms: int, out: list[Effect]
    ) -> bool: ...


class Group(Protocol):
    """A group with its durable state, which `apply` alone writes."""

    group_id: str

    @property
    def group_type(self) -> TypeOfGroup: ...

    @property
    def protocol_type(self) -> str | None:
        """None for a group that only keeps offsets."""

    @property
    def state_name(self) -> str:
        """State as ListGroups names it."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    def empty_since_ms(self) -> int | None:
        """The start of the retention of its offsets; None: the commit of each."""

    @property
    def offsets_may_expire(self) -> bool:
        """Whether offsets of topics without subscribers may expire."""

    @property
    def may_expire(self) -> bool:
        """Whether it is deleted when it is empty and has no offsets."""

    def check_commit(self, request: CommitRequest, generation: int, version: int | None) -> ErrorCode:
        """`generation` is below 0 for a consumer that manages its own partitions; `version` is that of an
        OffsetCommit, None with a transaction."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode: ...

    def check_deletion(self) -> ErrorCode:
        """Checks of the group."""

    def check_offset_deletion(self) -> ErrorCode:
        """Check of offsets of any topic; `is_subscribed_to` knows which are in use."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def keys(self) -> list[Any]:
        """Keys of its records, in the order in which a deletion writes tombstones."""

    def apply(self, key: Any, value: Any) -> bool:
        """Apply a record that has just been appended or is read back. False: the group is deleted."""


class Membership(Protocol):
    """The members of the groups of one type in one machine. Each method adds its effects to `out`."""

    def start(self, group: Any, now_ms: int, out: list[Effect]) -> None:
        """The group has been read from the log: the sessions of its members begin."""

    def expire(self, group: Any, timer_key: tuple[str, ...], now_ms: int, out: list[Effect]) -> None:
        """A timer that this membership has set for the group is due."""

    def topics_changed(self, group: Any, names: frozenset[str], now_ms: int, out: list[Effect]) -> None:
        """Topics were created, deleted, or got partitions."""

    def offsets_committed(self, group: Any, member_id: str, now_ms: int, out: list[Effect]) -> None:
        """A member has committed offsets, which may extend its session."""

    def owned(self, group: Any, view: ClusterView) -> Iterator[tuple[str, Collection[int]]]:
        """Assignments of members: a topic and partitions of it. A topic may come several times, and it or a
        partition may exist no more."""

    def refuse_waiting(self, group: Any, code: ErrorCode, out: list[Effect]) -> None:
        """Refuse all tickets that wait: the machine is given up."""


def known_in_transaction(code: ErrorCode, version: int) -> ErrorCode:
    """The error of a commit with a transaction as clients of this version of TxnOffsetCommit know it."""
    is_unknown = code is ErrorCode.STALE_MEMBER_EPOCH and version < EPOCHS_IN_TRANSACTION_SINCE
    return ErrorCode.ILLEGAL_GENERATION if is_unknown else code
