"""The server's commit at the end of the loop's turn, for handlers that stage records.

All partitions with appends in one turn of the event loop are committed once, together. The staged bytes stay
unchanged in the connection's receive buffer until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from odradek.wire.errors import KafkaError
    from odradek.wire.work import Work


class Until(NamedTuple):
    """Conditions of the response to an append; the commit is always one of them."""

    flushed: bool = False
    """The disk has the records."""
    replicated: bool = False
    """All replicas in sync have them."""
    patience_ms: int = 0
    """Longest wait for the replicas, 0 for ever. Then the response is REQUEST_TIMED_OUT, and the records
    stay."""


COMMITTED = Until()
FLUSHED = Until(flushed=True)


def until(flushed: bool, replicated: bool = False) -> Until:
    """The conditions; without replicas one of the two constants: the turn tells COMMITTED by identity."""
    if replicated:
        return Until(flushed, replicated)
    return FLUSHED if flushed else COMMITTED


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

    def add(self, partition: Committable, done: Callable[[KafkaError | None], None], until: Until) -> None:
        """Calls `done` after the commit of this turn, and after what else `until` names.

        `done(None)` on success, `done(error)` if nothing was stored, or if it is unknown whether it was
        flushed. Never called from within `add`; for one partition and equal conditions called in the order of
        `add`.
        """
