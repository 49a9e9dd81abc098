"""What a handler that stages records needs of the server: a commit at the end of the loop's turn.

All partitions that were appended to in one turn of the event loop are committed once, together. The bytes
that were staged stay untouched in the connection's receive buffer until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek.wire.errors import KafkaError
    from odradek.wire.work import Work


COMMITTED, FLUSHED, REPLICATED = 0, 1, 2
"""What an answer waits for, as bits: the commit, which is always waited for, the disk, and all replicas."""


class Committable(Protocol):
    """The part of a storage partition that a turn uses."""

    @property
    def log_end_offset(self) -> int: ...

    def when_high_watermark(self, offset: int, done: Callable[[KafkaError | None], None]) -> None:
        """Calls `done` once the high watermark is at `offset`, at once if it is."""

    @property
    def log(self) -> object:
        """What is committed to. Another one from when the disk has let it down and a rescan has cut off what
        never came there: what was committed before may be gone."""

    def commit(self) -> None: ...

    def flush(self) -> None: ...


class TimerHandle(Protocol):
    def cancel(self) -> None:
        """Harmless when it ran already."""


class Timers(Protocol):
    """The clock's other half: what a long poll asks to be woken by."""

    def after(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Calls `callback` once, `delay_ms` from now, from the event loop."""


class WorkQueue(Protocol):
    """Long work beside the serving of requests, one after the other."""

    def run(self, work: Work[Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Does the work in slices, at once if nothing is before it; then calls `done(result)`, or
        `failed(error)` with what it raised."""


class Turn(Protocol):
    """Gathers what was staged in one turn of the event loop."""

    def add(self, partition: Committable, done: Callable[[KafkaError | None], None], until: int) -> None:
        """Calls `done` after the commit of this turn, and after what else `until` names.

        `done(None)` when it went well, `done(error)` when nothing of it was stored, or when nobody knows
        whether the disk has it. Never called from within `add`; called in the order in which it was added
        per partition.
        """
