"""The server's commit at the end of the loop's turn, for handlers that stage records.

All partitions with appends in one turn of the event loop are committed once, together. The staged bytes stay
unchanged in the connection's receive buffer until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek.wire.errors import KafkaError
    from odradek.wire.work import Work


COMMITTED, FLUSHED, REPLICATED = 0, 1, 2
"""What an answer waits for, as bits: the commit, which is always waited for, the disk, and all replicas."""
PATIENCE_BITS = 2
"""Above these bits: for how many milliseconds it waits for the replicas, 0 for ever."""
PATIENCE_MS_MAX = 2**29 - 1


def replicated_within(timeout_ms: int) -> int:
    """Wait for the replicas for so long; then the answer is REQUEST_TIMED_OUT, and the records stay."""
    return REPLICATED | min(max(timeout_ms, 1), PATIENCE_MS_MAX) << PATIENCE_BITS


class Committable(Protocol):
    """The part of a storage partition that a turn uses."""

    @property
    def log_end_offset(self) -> int: ...

    def when_high_watermark(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Calls `done` once the high watermark is at `offset`, at once if it is."""

    def forget_high_watermark(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Whoever asked so waits no more."""

    @property
    def log(self) -> object:
        """The log to commit to. It is replaced after a failed sync and a rescan: records committed to the old
        one may be lost."""

    def commit(self) -> None: ...

    def flush(self) -> None: ...


class TimerHandle(Protocol):
    def cancel(self) -> None:
        """No effect if it has run."""


class Timers(Protocol):
    """Timers of the event loop, for long polls and retries."""

    def after(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls `callback` once, `delay_ms` from now, from the event loop."""


class WorkQueue(Protocol):
    """Long work beside the serving of requests, one after the other."""

    def run(self, work: Work[Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Does the work step by step, at once if the queue is empty; then calls `done(result)`, or
        `failed(error)` with its exception."""


class Turn(Protocol):
    """Gathers the partitions that were staged in one turn of the event loop."""

    def add(self, partition: Committable, done: Callable[[KafkaError | None], None], until: int) -> None:
        """Calls `done` after the commit of this turn, and after what else `until` names.

        `done(None)` on success, `done(error)` if nothing was stored, or if it is unknown whether it was
        flushed. Never called from within `add`; for one partition called in the order of `add`.
        """
