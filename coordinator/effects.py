"""What a state machine decides, as values: the machine never does anything itself.

A machine is `handle(command, now_ms) -> list[Effect]`, `expire(timer_key, now_ms) -> list[Effect]` and
`replay(key, value)`. Whoever runs it (`coordinator/driver.py`, a test) carries the effects out in order, and
holds every Reply back until all records appended before it are in the log: so nobody is told, or reads, what
may still be lost. When the log fails, the replies that waited for it are refused and the machine is loaded
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

from odradek.wire.errors import ErrorCode

__all__ = ["Answer", "Append", "CancelTimer", "Effect", "LogRecord", "Reply", "SetTimer"]

LogRecord = tuple[bytes, bytes | None, int]
"""Key, value (None is a tombstone) and timestamp in milliseconds of one record for the log."""


class Answer(Protocol):
    """The value of a Reply. It can turn itself into the refusal of the same shape."""

    def refused(self, code: ErrorCode) -> Self:
        """The answer that the caller gets instead when the machine's log failed with `code`."""


@dataclass(slots=True)
class Append:
    """Write `records` as one batch. The machine has applied them to its state already."""

    records: list[LogRecord]


@dataclass(slots=True)
class Reply:
    """Answer the command that carried `ticket`."""

    ticket: Any
    value: Any
    """An `Answer`."""


@dataclass(slots=True)
class SetTimer:
    """Call `expire(key, now_ms)` at `at_ms` or soon after; replaces the timer with the same key."""

    key: tuple[str, ...]
    at_ms: int


@dataclass(slots=True)
class CancelTimer:
    """Forget the timer; no harm when there is none."""

    key: tuple[str, ...]


Effect = Append | Reply | SetTimer | CancelTimer
