"""What happened: transactions, reads, what is in the log at the end. Plain values; `checker.py` judges them.

All times are ticks of one clock, of which nothing is asked but that a later look shows more. A value is sent
once in the whole history, so it names its send.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Partition = tuple[str, int]
"""Topic and partition number."""


class Outcome(enum.Enum):
    """What the process that ran a transaction knows of its end."""

    COMMITTED = "committed"
    """The commit was acknowledged."""
    ABORTED = "aborted"
    """Nobody ever asked for a commit, or the library gave it up and its abort was acknowledged."""
    UNKNOWN = "unknown"
    """A commit was asked for, and no answer tells what became of it."""


@dataclass(frozen=True, slots=True)
class Send:
    """One value to one partition; `offset` is what the broker acknowledged, None if it did not."""

    partition: Partition
    value: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Consumed:
    """Offsets sent to the transaction: the group has read from `start` up to, not including, `end`."""

    group: str
    partition: Partition
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction of one process, whose transactions follow one another."""

    process: str
    outcome: Outcome
    began: int
    ended: int
    """When the process knew that it had ended, or gave up."""
    commit_asked: int | None = None
    """When the commit was called for; None if it never was."""
    sends: tuple[Send, ...] = ()
    consumed: tuple[Consumed, ...] = ()

    def __str__(self) -> str:
        return f"{self.process} [{self.began}, {self.ended}] {self.outcome.value}"


Records = Sequence[tuple[int, int]]
"""(offset, value) in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Read:
    """What one poll brought of one partition, at isolation level read_committed unless it says otherwise.

    Reads of the same `session` follow one another without a seek.
    """

    session: str
    tick: int
    """When the poll had returned."""
    partition: Partition
    records: Records
    is_committed: bool = True
    """False: at read_uncommitted."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a partition ends for either kind of reader."""

    last_stable_offset: int
    high_watermark: int


@dataclass(slots=True)
class History:
    """Everything that is known. `log` is what read_committed finds from the first offset to the last stable
    one after all transactions have ended, `everything` what read_uncommitted finds.
    """

    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    log: Mapping[Partition, Records] = field(default_factory=dict)
    everything: Mapping[Partition, Records] = field(default_factory=dict)
    ends: Mapping[Partition, Ends] = field(default_factory=dict)
    committed: Mapping[tuple[str, Partition], int] = field(default_factory=dict)
    """(group, partition) -> the offset that the group has at the end."""
