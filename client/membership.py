"""Interface of a member's side of the two group protocols: a machine without connection and clock.

`GroupMember` sends the requests of a machine one by one, hands it the responses, and gives up or takes the
partitions that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from odradek.wire.errors import ErrorCode
from odradek.wire.schema import Message

Partitions = frozenset[tuple[str, int]]
PartitionCounts = Callable[[Collection[str]], Mapping[str, int]]
"""The numbers of partitions of those topics that exist."""

ASSIGNED_MAX = 1_000_000
"""Partitions that an assignment may name."""
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH})
"""The group goes on without the member, and others may have its partitions already."""


class Membership(Protocol):
    """The member's side of a protocol."""

    member_id: str
    epoch: int
    """Generation or member epoch, for commits; below 0 while it is no member."""
    target: Partitions | None
    """Partitions that the member should have; None: those that it has."""
    is_lost: bool
    """Whether the member has lost its partitions, and must not commit their offsets."""

    @property
    def is_settled(self) -> bool:
        """Whether it has what it is to have, as far as it knows."""

    def request(self, now_ms: int) -> Message | None:
        """The request that is due, if there is one."""

    def wait_ms(self, now_ms: int) -> int:
        """How long no request is due; 0 or less: one is."""

    def response_ms(self, request: Message) -> int | None:
        """How long the response may take; None: as long as any other."""

    def take(self, response: Any, now_ms: int) -> None:
        """Takes a response without an error that is retriable; ClientError for what is final."""

    def failed(self) -> None:
        """The last request has no response, or a retriable error."""

    def lose(self, code: ErrorCode) -> None:
        """A commit was told that the group goes on without the member."""

    def acknowledge(self, assigned: Partitions) -> None:
        """The member has these partitions now, and no others."""

    def leaving(self, version_of: Callable[[type[Message]], int]) -> Message | None:
        """The request that ends the membership, for the version that is told; None: there is none to end."""
