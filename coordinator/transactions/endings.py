"""The ends of transactions that are under way: which markers are missing, and when they are tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.coordinator.asked import NOBODY, Ticket
from odradek.coordinator.effects import Effect, SetTimer
from odradek.coordinator.transactions.state import TopicPartition
from odradek.wire.errors import ErrorCode

TimerKey = tuple[str, ...]
RETRY_MARKERS: TimerKey = ("retry_markers",)

RETRY_MS = 100
"""Until markers that could not be written are tried again for the first time; then twice as long."""
RETRY_MS_MAX = 5_000


@dataclass(slots=True)
class MarkersWritten:
    """Result of a `WriteMarkers`: the runtime's own command. Producer id and epoch are the marker's."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    results: Mapping[TopicPartition, ErrorCode]
    """NONE also for a partition whose topic is deleted: there is nothing left to end."""
    ticket: Ticket[ErrorCode] = NOBODY


class Ending:
    """The end of one transaction that is under way."""

    __slots__ = ("attempts", "remaining")

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        self.remaining = set(partitions)
        """Partitions whose marker is not known to be written."""
        self.attempts = 0


class MarkerRetries:
    """The transactions whose markers could not all be written, and the one timer for them."""

    def __init__(self) -> None:
        self._at_ms: dict[str, int] = {}
        """By transactional id, when its markers are to be tried again."""
        self._timer_at_ms: int | None = None

    def add(self, transactional_id: str, ending: Ending, now_ms: int) -> None:
        """Try the missing markers again, each time a little later."""
        self._at_ms[transactional_id] = now_ms + retry_delay_ms(ending.attempts)
        ending.attempts += 1

    def forget(self, transactional_id: str) -> None:
        self._at_ms.pop(transactional_id, None)

    def set_timer(self, out: list[Effect]) -> None:
        """Set the timer for the first of them, unless it is due sooner."""
        at_ms = min(self._at_ms.values(), default=None)
        if at_ms is not None and (self._timer_at_ms is None or at_ms < self._timer_at_ms):
            self._timer_at_ms = at_ms
            out.append(SetTimer(RETRY_MARKERS, at_ms))

    def take_due(self, now_ms: int) -> list[str]:
        """The timer is due: the transactions to try again now."""
        self._timer_at_ms = None
        due = [transactional_id for transactional_id, at_ms in self._at_ms.items() if at_ms <= now_ms]
        for transactional_id in due:
            del self._at_ms[transactional_id]
        return due


def retry_delay_ms(attempts: int) -> int:
    """How long to wait before markers are tried again that have failed so many times before."""
    return min(RETRY_MS << min(attempts, 10), RETRY_MS_MAX)
