"""Stored state of one share partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.coordinator.shares.state.persister import NO_DELIVERY_COUNT, UNINITIALIZED_OFFSET
from odradek.wire.share_batches import Batch, combined

NO_EPOCH = -(2**31)
"""An epoch before all others."""


@dataclass(frozen=True, slots=True)
class Update:
    """Content of a record of type ShareUpdate."""

    snapshot_epoch: int
    leader_epoch: int
    """-1: as before."""
    start_offset: int
    """-1: as before."""
    delivery_complete_count: int
    batches: Sequence[Batch]


@dataclass(frozen=True, slots=True)
class State:
    """Content of a record of type ShareSnapshot."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int = UNINITIALIZED_OFFSET
    delivery_complete_count: int = NO_DELIVERY_COUNT
    batches: Sequence[Batch] = ()
    created_ms: int = 0
    written_ms: int = 0
    """Later than `created_ms`: written again without a change. 0: there was no snapshot."""

    @property
    def is_rewritten(self) -> bool:
        return self.created_ms != self.written_ms

    def updated(self, update: Update) -> State:
        start_offset = self.start_offset if update.start_offset == -1 else update.start_offset
        return State(
            self.snapshot_epoch,
            self.state_epoch,
            self.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
            start_offset,
            update.delivery_complete_count,
            combined(self.batches, update.batches, start_offset),
            self.created_ms,
            self.written_ms,
        )


@dataclass(slots=True)
class Kept:
    """A state, and what is known besides."""

    state: State
    position: int
    """Number of the last snapshot among the records of the log."""
    leader_epoch_max: int = NO_EPOCH
    """Older leaders are fenced."""
    state_epoch_max: int = NO_EPOCH
    """Older states are fenced."""
    update_count: int = 0
    """Updates since they were so many that a snapshot was written."""
    is_rewritten: bool = False
    """Whether its last record is a snapshot that was written again without a change."""
