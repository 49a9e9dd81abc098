"""The decisions of a state machine, as values: a machine never does anything itself.

A machine is `handle(command, now_ms) -> list[Effect]`, `expire(timer_key, now_ms) -> list[Effect]` and
`replay(key, value)`; one whose log has records of transactions also has `replay_pending(key, value,
producer_id)` and `replay_marker(producer_id, commit)`. Its driver (`coordinator/runtime.py`, a test) carries
the effects out in order, each by its class: a driver has a table of them, and a machine may have effects of
its own (`WriteMarkers` is one of transactions, `MatchTopics` one of consumer groups). Effects that wait for
the log, such as a Reply, are held back until all records appended before them are in the log: so no client
learns, reads, or acts on records that may still be lost. When the log fails, replies that waited for it are
refused, other effects that waited for it are dropped (with a refusal of whoever waits for an `Asking`), and
the machine is loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from odradek.coordinator.asked import Ticket
from odradek.wire.end_marker import EndMarker

LogRecord = tuple[bytes, bytes | None, int]
"""Key, value (None is a tombstone) and timestamp in milliseconds of one record for the log."""


class TransactionalRecord(NamedTuple):
    """A record of a transaction that is read back: it counts once a marker commits it."""

    key: bytes
    value: bytes | None
    timestamp: int
    producer_id: int


class MarkerRecord(NamedTuple):
    """The end of a transaction that is read back."""

    producer_id: int
    commit: bool


LoggedRecord = LogRecord | TransactionalRecord | MarkerRecord
"""A record that is read back."""


class Effect:
    """A decision. Each class of effects but `Reply` has one entry in the table of the driver."""

    __slots__ = ()
    waits_for_log: ClassVar[bool] = False
    """Whether it is held back until the appends before it are in the log."""


@dataclass(slots=True)
class Append(Effect):
    """Write `records` as one batch. The machine has applied them to its state already."""

    records: list[LogRecord]
    producer: tuple[int, int] | None = None
    """Id and epoch of the producer whose transaction the records belong to: the batch is transactional."""


@dataclass(slots=True)
class AppendMarker(Effect):
    """Write a control batch. The machine has applied it to its state already."""

    marker: EndMarker


@dataclass(slots=True)
class Reply(Effect):
    """Give `response` to the ticket of a command."""

    waits_for_log: ClassVar[bool] = True
    ticket: Ticket[Any]
    response: Any


@dataclass(slots=True)
class Asking(Effect):
    """Ask somebody else, and submit `command` with the response. Whoever waits for that is refused when the
    effect is dropped."""

    waits_for_log: ClassVar[bool] = True
    command: Any
    """Not complete before the response is there."""


@dataclass(slots=True)
class WriteMarkers(Effect):
    """Write `marker` to these partitions, and submit a `MarkersWritten` with the code of each."""

    waits_for_log: ClassVar[bool] = True
    transactional_id: str
    marker: EndMarker
    partitions: Collection[tuple[str, int]]
    """(topic, partition); not to be changed."""


@dataclass(slots=True)
class MatchTopics(Effect):
    """Find the topics that match these regular expressions, away from the event loop, and submit a
    `TopicsMatched`. Nothing is lost with the machine: the next one searches again."""

    group_id: str
    patterns: Collection[str]
    """Valid ones."""
    version: int
    """Version of the view whose topics are searched."""
    hidden_names: Callable[[Collection[str]], Collection[str]] | None = None
    """Which of the topics are to be left out: those that the member may not describe that has asked."""


@dataclass(slots=True)
class SetTimer(Effect):
    """Call `expire(key, now_ms)` at `at_ms` or soon after; replaces the timer with the same key."""

    key: tuple[str, ...]
    at_ms: int


@dataclass(slots=True)
class CancelTimer(Effect):
    """Forget the timer; no harm when there is none."""

    key: tuple[str, ...]
