"""The commands of the share coordinator's machine and its replies: plain values, one pair per operation.

As in `coordinator/groups/commands.py`: every command gets exactly one answer, at its `ticket`, and
`refused(code)` makes the answer of the same shape that says only `code`.

Besides the codes that are named here: INVALID_REQUEST for a partition number below 0, and
UNKNOWN_TOPIC_OR_PARTITION where the topic is not in the cluster or has fewer partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

from odradek.coordinator.share_state.batches import Batch
from odradek.coordinator.share_state.persister import (
    NO_DELIVERY_COUNT,
    UNINITIALIZED_OFFSET,
    SharePartitionKey,
)
from odradek.wire.errors import ErrorCode, error_message

__all__ = [
    "DeleteState",
    "DoneReply",
    "InitializeState",
    "ReadState",
    "RemoveTopics",
    "ShareCommand",
    "StateReply",
    "SummarizeState",
    "SummaryReply",
    "WriteState",
]


@dataclass(slots=True, kw_only=True)
class DoneReply:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None

    def refused(self, code: ErrorCode) -> Self:
        return type(self)(error_code=code, error_message=error_message(code))


@dataclass(slots=True, kw_only=True)
class StateReply(DoneReply):
    state_epoch: int = 0
    start_offset: int = 0
    batches: Sequence[Batch] = ()


@dataclass(slots=True, kw_only=True)
class SummaryReply(DoneReply):
    """Of an error the fields are zero, as in Kafka."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = NO_DELIVERY_COUNT


@dataclass(slots=True)
class ShareCommand:
    """How every command begins that is about one share partition."""

    ticket: Any
    key: SharePartitionKey

    def refused(self, code: ErrorCode) -> DoneReply:
        return DoneReply().refused(code)


@dataclass(slots=True)
class InitializeState(ShareCommand):
    """Begin anew. FENCED_STATE_EPOCH; UNKNOWN_SERVER_ERROR for a group's id that no record can hold."""

    state_epoch: int
    """-1 is not compared."""
    start_offset: int = UNINITIALIZED_OFFSET


@dataclass(slots=True)
class ReadState(ShareCommand):
    """What is kept, for the leader with this epoch: earlier ones are fenced from now on. INVALID_REQUEST for
    a state that was not initialized, FENCED_LEADER_EPOCH."""

    leader_epoch: int
    """-1 is not compared, and fences nobody."""

    def refused(self, code: ErrorCode) -> StateReply:
        return StateReply().refused(code)


@dataclass(slots=True)
class WriteState(ShareCommand):
    """Keep changes. INVALID_REQUEST for a state that was not initialized, and for a batch that ends before it
    begins; FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH; UNKNOWN_SERVER_ERROR if the state would be more than one
    record can hold."""

    state_epoch: int
    """-1 is not compared, and so the next one."""
    leader_epoch: int
    start_offset: int
    """-1: as before."""
    delivery_complete_count: int
    batches: Sequence[Batch]


@dataclass(slots=True)
class DeleteState(ShareCommand):
    """Forget it; also done where there is none."""


@dataclass(slots=True)
class SummarizeState(ShareCommand):
    """What is kept, without the batches; where there is none, a start offset of -1."""

    def refused(self, code: ErrorCode) -> SummaryReply:
        return SummaryReply().refused(code)


@dataclass(slots=True)
class RemoveTopics:
    """Forget the states of topics that were deleted, some in each turn."""

    ticket: Any
    topic_ids: Collection[bytes]

    def refused(self, code: ErrorCode) -> DoneReply:
        return DoneReply().refused(code)
