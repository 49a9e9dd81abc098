"""The records of a share partition that are in flight, as a window over its offsets.

Before the window all records are done, behind it none was delivered. In it are batches, as they were acquired
from the log: the members of the group get them again as a whole where that is possible. A batch is a list of
runs of offsets that have the same state; as long as all its records have the same one, it has a single run.
Between two batches there may be offsets that the log has no records for. A `Hole` is different: nobody knows
what became of its offsets, since only what came behind them was stored before the leader changed.

A run whose state is being stored is `pending`: it has its new state already, and nobody may change it until
the change is stored, or undone.

Memory: a batch or a run has about 200 bytes, however many records it has.

Source: SharePartition, InFlightBatch and InFlightState of Kafka 4.3, which keep a state for each offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from odradek.coordinator.shares.dead_letters.letters import DeadLetter
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.wire.messages.write_share_group_state import StateBatch

NOBODY = ""
"""The member of records that nobody has."""
DONE = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
_FIRST = attrgetter("first")


class Change:
    """A change that is being stored: the runs that are pending for it know it."""

    __slots__ = ("batches", "dead_letters")

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self.dead_letters: list[DeadLetter] = []
        """To be written as soon as the change is stored."""


@dataclass(slots=True, eq=False)
class Run:
    """Offsets of one batch that have the same state; both offsets belong to it."""

    first: int
    last: int
    state: DeliveryState
    count: int
    """How often they were delivered."""
    member: str = NOBODY
    """Member that has acquired them."""
    deadline_ms: int = 0
    """When the member loses them, if they are acquired."""
    pending: Change | None = None
    member_before: str = NOBODY
    """Member that had acquired them before the pending change."""

    def part(self, first: int, last: int) -> Run:
        """Some of its offsets, in the same state."""
        return Run(
            first,
            # Of a single record the number is kept once.
            first if first == last else last,
            self.state,
            self.count,
            self.member,
            self.deadline_ms,
            self.pending,
            self.member_before,
        )

    def is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.count == other.count
            and self.member == other.member
            and self.deadline_ms == other.deadline_ms
            and self.pending is other.pending
            and self.member_before == other.member_before
        )

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire them."""
        return self.state is DeliveryState.AVAILABLE and self.pending is None

    @property
    def is_done(self) -> bool:
        """Whether the window need not have them any longer."""
        return self.state in DONE and self.pending is None


class Batch:
    """See the module. Its runs cover it, in the order of their offsets."""

    __slots__ = ("runs",)

    def __init__(self, run: Run) -> None:
        self.runs = [run]

    @property
    def first(self) -> int:
        return self.runs[0].first

    @property
    def last(self) -> int:
        return self.runs[-1].last

    def having(self, first: int, last: int) -> list[Run]:
        """The runs that have any of these offsets, as they are."""
        runs = self.runs
        begin = max(bisect_right(runs, first, key=_FIRST) - 1, 0)
        found = runs[begin : bisect_right(runs, last, key=_FIRST)]
        if found and found[0].last < first:
            del found[0]
        return found

    def within(self, first: int, last: int) -> list[Run]:
        """The runs of these offsets: runs that have others, too, are cut."""
        runs = self.runs
        if first <= runs[0].first and runs[-1].last <= last:
            return list(runs)
        if first > last or last < runs[0].first or first > runs[-1].last:
            return []
        begin = max(bisect_right(runs, first, key=_FIRST) - 1, 0)
        run = runs[begin]
        if run.first < first:
            runs.insert(begin, run.part(run.first, first - 1))
            run.first = run.last if run.last == first else first
            begin += 1
        end = bisect_right(runs, last, key=_FIRST, lo=begin)
        run = runs[end - 1]
        if run.last > last:
            runs.insert(end, run.part(last + 1, run.last))
            run.last = run.first if run.first == last else last
        return runs[begin:end]

    def join(self, first: int, last: int) -> None:
        """Runs of these offsets, and those next to them, become one again where they are alike."""
        runs = self.runs
        if len(runs) == 1:
            return
        begin = max(bisect_right(runs, first, key=_FIRST) - 2, 0)
        end = bisect_right(runs, last, key=_FIRST) + 1
        some = runs[begin:end]
        joined = some[:1]
        for run in some[1:]:
            if joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        if len(joined) < len(some):
            runs[begin:end] = joined


@dataclass(slots=True, eq=False)
class Hole:
    """Offsets that may have been delivered before this leader, or not: they have to be read again."""

    first: int
    last: int


class Window:
    """The batches and holes, in the order of their offsets."""

    __slots__ = ("_firsts", "_parts")

    def __init__(self) -> None:
        self._parts: list[Batch | Hole] = []
        self._firsts: list[int] = []

    def __iter__(self) -> Iterator[Batch | Hole]:
        return iter(self._parts)

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def first(self) -> int:
        """The first offset of all; -1 without any."""
        return self._firsts[0] if self._firsts else -1

    @property
    def last(self) -> int:
        """The last offset of all; -1 without any."""
        return self._parts[-1].last if self._parts else -1

    def at(self, offset: int) -> Batch | Hole | None:
        """The part that has the offset."""
        found = self.before(offset)
        return found if found is not None and offset <= found.last else None

    def before(self, offset: int) -> Batch | Hole | None:
        """The last part that begins at or before the offset."""
        index = bisect_right(self._firsts, offset) - 1
        return self._parts[index] if index >= 0 else None

    def between(self, first: int, last: int) -> list[Batch | Hole]:
        """The parts that have any of these offsets."""
        begin = max(bisect_right(self._firsts, first) - 1, 0)
        end = bisect_right(self._firsts, last)
        found = self._parts[begin:end]
        if found and found[0].last < first:
            del found[0]
        return found

    def add(self, part: Batch | Hole) -> None:
        """One that overlaps no other."""
        first = part.first
        if not self._firsts or first > self._firsts[-1]:
            self._firsts.append(first)
            self._parts.append(part)
            return
        index = bisect_right(self._firsts, first)
        assert self._parts[index - 1].last < first if index else True
        self._firsts.insert(index, first)
        self._parts.insert(index, part)

    def remove(self, part: Batch | Hole) -> None:
        index = bisect_right(self._firsts, part.first) - 1
        assert self._parts[index] is part
        del self._firsts[index]
        del self._parts[index]

    def fill(self, hole: Hole, last: int) -> None:
        """The hole ends: its offsets up to `last` are known now, or the log has none of them."""
        self.remove(hole)
        if last < hole.last:
            self.add(Hole(last + 1, hole.last))

    def remove_done(self) -> int | None:
        """Drops the batches at the front that are done. The first offset that is not done; None where all
        were, and there were any: then nothing is left."""
        for index, part in enumerate(self._parts):
            if isinstance(part, Hole):
                begin = part.first
            else:
                left = next((run for run in part.runs if not run.is_done), None)
                if left is None:
                    continue
                begin = left.first
            del self._parts[:index]
            del self._firsts[:index]
            return begin
        self._parts.clear()
        self._firsts.clear()
        return None
