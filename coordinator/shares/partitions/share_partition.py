"""A share partition on the node that leads it: which member of the group has which records.

A pure machine: it decides, and the caller reads the log, keeps the time, and has changes stored. A change of
state is either told to the client when it is stored (`acknowledge`, `release`: the caller calls `stored` or
`undo`), or need not be (`expire`: a lock that has run out is free at once). Locks are as long as the settings
say when records are acquired; the caller calls `expire` at `next_deadline_ms`.

`start` is the first offset that is not done, `fresh` the first one that was never acquired.

Where the group has a dead letter queue, what is rejected or was delivered too often is ARCHIVING first, and
stored as that. Then the caller has its dead letter written (`Change.dead_letters`), and calls `archive` when
that has ended, well or not. What a leader finds as ARCHIVING is `unfinished`.

Source: SharePartition of Kafka 4.4. Other than there, runs of equal records have one state instead of one for
each offset, and records of aborted transactions let the start move at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from odradek.coordinator.shares.dead_letters.letters import Cause, DeadLetter
from odradek.coordinator.shares.partitions.window import DONE, NOBODY, Batch, Change, Hole, Run, Window
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from odradek.wire.messages.write_share_group_state import StateBatch

ISOLATED_FROM = 2
"""With a higher limit of deliveries the last delivery of a record is of this record alone."""
FIRST_DELIVERY = 1


class AcknowledgeType(IntEnum):
    GAP = 0
    """The log has no such record, or the client may not see it."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_STATE_AFTER = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
}


class LogBatch(NamedTuple):
    """A batch that was read from the log."""

    base_offset: int
    last_offset: int


class Acquired(NamedTuple):
    """Records that a member has now. Both offsets belong to it."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """Both offsets belong to it."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    """One for each offset, or one for all. They have been checked."""


class Demand(NamedTuple):
    """Records that a member wants."""

    member: str
    records_max: int
    """A limit of records; a batch of the log may go beyond it, unless `is_strict`."""
    batch_size: int
    """About so many records are acquired, and acknowledged, together."""
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The settings of the group."""

    lock_ms: int
    deliveries_max: int
    locks_max: int
    """Records between `start` and `fresh`."""
    may_renew: bool = True
    has_dead_letters: bool = False
    """Whether what the group gives up goes into a dead letter queue."""

    @property
    def given_up(self) -> DeliveryState:
        """State of what is rejected, or was delivered too often."""
        return DeliveryState.ARCHIVING if self.has_dead_letters else DeliveryState.ARCHIVED


def _invalid_state(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _to_store(run: Run) -> StateBatch:
    return StateBatch(
        first_offset=run.first, last_offset=run.last, delivery_state=run.state, delivery_count=run.count
    )


class SharePartition:
    """See the module. `state` is what was stored; `start` its start offset, if need be by the settings of
    the group. Raises ValueError for a state that contradicts itself."""

    __slots__ = ("_free_from", "_window", "fresh", "start", "state_epoch")

    def __init__(self, state: ShareState, start: int) -> None:
        self.state_epoch = state.state_epoch
        self.start = start
        self.fresh = start
        self._window = Window()
        self._free_from: int | None = None
        """No offset of the window before this one may be acquired; None: no offset at all."""
        for stored in state.state_batches:
            first, last = stored.first_offset, stored.last_offset
            if first < self.fresh or last < first:
                raise ValueError(f"a state of offsets {first} to {last} behind {self.fresh}")
            if first > self.fresh:
                self._window.add(Hole(self.fresh, first - 1))
            run = Run(first, last, DeliveryState(stored.delivery_state), stored.delivery_count)
            self._window.add(Batch(run))
            self.fresh = last + 1
        if self._window:
            self.has_free(start)
        self._advance()

    # What the caller asks

    @property
    def in_flight(self) -> int:
        return self.fresh - self.start if self._window else 0

    @property
    def done_count(self) -> int:
        """Number of records from the start on that are acknowledged or archived, stored or not."""
        return sum(
            run.last - max(run.first, self.start) + 1
            for run in self._runs()
            if run.state in DONE and run.last >= self.start
        )

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first lock runs out."""
        deadlines = (run.deadline_ms for run in self._runs() if run.member != NOBODY)
        return min(deadlines, default=None)

    def next_offset(self) -> int:
        """From where the log is to be read."""
        if self._free_from is not None:
            self._free_from = self._first_free(self._free_from)
        return self.fresh if self._free_from is None else self._free_from

    def _first_free(self, begin: int) -> int | None:
        for part in self._window.between(begin, self._window.last):
            if isinstance(part, Hole):
                return part.first
            for run in part.having(begin, part.last):
                if run.is_free:
                    return run.first
        return None

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Whether there is room, or something that may be delivered again."""
        return self.in_flight < limits.locks_max or self.next_offset() != self.fresh

    def scan_end(self, demand: Demand) -> int:
        """No batch of the log that begins at this offset or later can be acquired by the demand."""
        return max(self.fresh, self.next_offset()) + demand.records_max

    # Acquiring

    def acquire(
        self,
        demand: Demand,
        read_from: int,
        batches: Sequence[LogBatch],
        aborted: Sequence[LogBatch],
        limits: ShareLimits,
        now_ms: int,
    ) -> list[Acquired]:
        """Acquires records of `batches`, which the log has from the offset `read_from` on. `aborted` are
        those that a reader of committed records does not get: they count as done."""
        if not batches or batches[-1].last_offset < self.start:
            return []
        last = batches[-1].last_offset
        records_max = min(demand.records_max, limits.locks_max - self.in_flight)
        if records_max <= 0:
            # All locks are taken: only what was delivered before may be delivered again.
            if read_from >= self.fresh:
                return []
            records_max = min(demand.records_max, self.fresh - read_from)
            last = min(last, self.fresh - 1)
        self._archive_missing(read_from, batches[0].base_offset)
        acquiring = _Acquiring(self, demand, batches, records_max, limits, now_ms)
        acquiring.run(last)
        found = acquiring.found
        if aborted and found:
            for one in aborted:
                self._archive_aborted(one)
            found = _without(found, aborted)
            self._advance()
        return found

    def _archive_missing(self, read_from: int, base_offset: int) -> None:
        """The log was read from an offset on, and has nothing before `base_offset`: compaction has removed
        records that were to be delivered again."""
        if read_from >= base_offset:
            return
        for part in self._window.between(read_from, base_offset - 1):
            if isinstance(part, Hole):
                self._window.fill(part, min(part.last, base_offset - 1))
                continue
            for run in part.within(read_from, base_offset - 1):
                if run.state is DeliveryState.AVAILABLE:
                    _archive(run)
            part.join(read_from, base_offset - 1)
        self._advance()

    def _archive_aborted(self, batch: LogBatch) -> None:
        for part in self._window.between(*batch):
            if isinstance(part, Batch):
                for run in part.within(*batch):
                    if run.state is DeliveryState.ACQUIRED:
                        _archive(run)
                part.join(*batch)

    # Acknowledging

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement], limits: ShareLimits, now_ms: int
    ) -> Change:
        """The change that is to be stored; without batches there is nothing to store. INVALID_RECORD_STATE,
        INVALID_REQUEST: nothing is changed, but for renewed locks."""
        change = Change()
        seen: list[Acknowledgement] = []
        try:
            for one in acknowledgements:
                if one.last_offset >= self.start:
                    seen.append(one)
                    self._acknowledge(member, one, limits, now_ms, change)
        except KafkaError:
            self.undo(change, limits, now_ms)
            raise
        finally:
            self._join(seen)
        return change

    def _acknowledge(
        self, member: str, one: Acknowledgement, limits: ShareLimits, now_ms: int, change: Change
    ) -> None:
        for part in self._acknowledged_parts(one):
            if part.last < self.start:
                continue
            if isinstance(part, Hole):
                raise _invalid_state("The offsets have not been acquired since the leader has changed.")
            for first, last, kind in _by_type(one, max(part.first, self.start), part.last):
                for run in part.within(first, last):
                    self._settle(run, member, kind, limits, now_ms, change)

    def _acknowledged_parts(self, one: Acknowledgement) -> list[Batch | Hole]:
        first = one.first_offset
        if self._window.before(first) is None:
            if not one.first_offset < self.start <= one.last_offset:
                raise _invalid_state("The offsets are not in flight.")
            first = self.start
        parts = self._window.between(first, one.last_offset)
        if not parts or one.last_offset > parts[-1].last:
            raise _invalid_request("The offsets are behind those that were acquired.")
        return parts

    def _settle(
        self, run: Run, member: str, kind: AcknowledgeType, limits: ShareLimits, now_ms: int, change: Change
    ) -> None:
        if run.pending is not None:
            raise _invalid_state("An earlier change of the records is not stored yet.")
        if run.state is not DeliveryState.ACQUIRED:
            raise _invalid_state("The records are not acquired.")
        if run.member != member:
            raise _invalid_state("Another member has acquired the records.")
        if kind is AcknowledgeType.RENEW:
            if not limits.may_renew:
                raise _invalid_state("The group may not renew locks (share.renew.acknowledge.enable).")
            run.deadline_ms = now_ms + limits.lock_ms
            return
        if kind is AcknowledgeType.REJECT:
            self._change(run, limits.given_up, limits, change, Cause.REJECTED)
        else:
            self._change(run, _STATE_AFTER[kind], limits, change)

    def release(self, member: str, limits: ShareLimits) -> Change:
        """Gives back the records that the member has acquired; to be stored."""
        change = Change()
        for part in self._window:
            if isinstance(part, Hole):
                continue
            if part.first < self.start <= part.last:
                part.within(self.start, part.last)
            for run in part.runs:
                if run.member == member and run.state is DeliveryState.ACQUIRED:
                    self._change(run, self._after_loss(run, limits), limits, change)
            part.join(part.first, part.last)
        return change

    def _after_loss(self, run: Run, limits: ShareLimits) -> DeliveryState:
        if run.last < self.start:
            return DeliveryState.ARCHIVED
        return limits.given_up if run.count >= limits.deliveries_max else DeliveryState.AVAILABLE

    def _change(
        self,
        run: Run,
        state: DeliveryState,
        limits: ShareLimits,
        change: Change,
        cause: Cause = Cause.DELIVERED_TOO_OFTEN,
    ) -> None:
        if state is DeliveryState.AVAILABLE and run.count >= limits.deliveries_max:
            state = limits.given_up
        run.pending, run.member_before = change, run.member
        run.state, run.member = state, NOBODY
        _note(change, run, cause)

    # Afterwards

    def stored(self, change: Change) -> bool:
        """The change is stored. Whether there may be more to acquire now."""
        for run in self._pending(change):
            run.pending, run.member_before, run.deadline_ms = None, NOBODY, 0
        self._join(change.batches)
        for batch in change.batches:
            if batch.delivery_state is DeliveryState.AVAILABLE:
                self.has_free(batch.first_offset)
        self._advance()
        return bool(change.batches)

    def undo(self, change: Change, limits: ShareLimits, now_ms: int) -> None:
        """The change could not be stored, or was refused: the member has the records as before, unless the
        lock has run out meanwhile."""
        for run in self._pending(change):
            member, run.pending, run.member_before = run.member_before, None, NOBODY
            state = self._after_loss(run, limits)
            if run.deadline_ms > now_ms or state is DeliveryState.ARCHIVING:
                # The loss of what gets a dead letter has to be stored: `expire` says so.
                run.state, run.member = DeliveryState.ACQUIRED, member
            else:
                run.state, run.deadline_ms = state, 0
                self.has_free(run.first)
        self._join(change.batches)

    def expire(self, limits: ShareLimits, now_ms: int) -> Change:
        """Takes the records whose locks have run out away from their members. What is to be stored; whether
        that goes well makes no difference here, and nothing is pending for it."""
        lost = Change()
        for part in self._window:
            if isinstance(part, Hole):
                continue
            if part.first < self.start <= part.last:
                part.within(self.start, part.last)
            for run in part.runs:
                if run.member != NOBODY and run.deadline_ms <= now_ms:
                    run.state, run.member, run.deadline_ms = self._after_loss(run, limits), NOBODY, 0
                    _note(lost, run, Cause.DELIVERED_TOO_OFTEN)
            part.join(part.first, part.last)
        if lost.batches:
            self.has_free(lost.batches[0].first_offset)
            self._advance()
        return lost

    def unfinished(self, limits: ShareLimits) -> list[DeadLetter]:
        """The dead letters that the leader before this one may not have written."""
        return [
            _letter(run, Cause.DELIVERED_TOO_OFTEN if run.count >= limits.deliveries_max else Cause.REJECTED)
            for run in self._runs()
            if run.state is DeliveryState.ARCHIVING
        ]

    def archive(self, letter: DeadLetter) -> Change:
        """There will be no more attempt to write the dead letter. The change is to be stored; the caller
        calls `stored` whether that went well or not: if it did not, the next leader writes it again."""
        change = Change()
        first, last = letter.first_offset, letter.last_offset
        for part in self._window.between(first, last):
            if isinstance(part, Batch):
                for run in part.within(first, last):
                    if run.state is DeliveryState.ARCHIVING:
                        run.state, run.pending = DeliveryState.ARCHIVED, change
                        change.batches.append(_to_store(run))
        return change

    def move_start(self, log_start: int) -> None:
        """The log has lost the records before an offset. Who has acquired one of them keeps it until the
        lock runs out."""
        if log_start <= self.start:
            return
        for part in self._window.between(0, log_start - 1):
            if isinstance(part, Hole):
                self._window.fill(part, min(part.last, log_start - 1))
                continue
            for run in part.within(part.first, log_start - 1):
                if run.state is DeliveryState.AVAILABLE:
                    _archive(run)
            part.join(part.first, log_start - 1)
        self.start = log_start
        self.fresh = max(self.fresh, log_start)
        self._advance()

    def _advance(self) -> None:
        """The start moves behind what is done."""
        if self._window:
            begin = self._window.remove_done()
            self.start = max(self.start, self.fresh if begin is None else begin)

    def _runs(self) -> Iterator[Run]:
        for part in self._window:
            if isinstance(part, Batch):
                yield from part.runs

    def _pending(self, change: Change) -> Iterator[Run]:
        for batch, first, last in self._having(change.batches):
            yield from (run for run in batch.having(first, last) if run.pending is change)

    def _join(self, ranges: Iterable[StateBatch | Acknowledgement]) -> None:
        for batch, first, last in self._having(ranges):
            batch.join(first, last)

    def _having(self, ranges: Iterable[StateBatch | Acknowledgement]) -> list[tuple[Batch, int, int]]:
        """The batches that have any of these offsets, each once for ranges that follow each other, with the
        first and the last of them: there may be a range for each record."""
        found: list[tuple[Batch, int, int]] = []
        for one in ranges:
            first, last = one.first_offset, one.last_offset
            if found:
                batch, lowest, highest = found[-1]
                if batch.first <= first and last <= batch.last:
                    found[-1] = batch, min(first, lowest), max(last, highest)
                    continue
            found += (
                (part, first, last) for part in self._window.between(first, last) if isinstance(part, Batch)
            )
        return found

    # For `_Acquiring`

    @property
    def window(self) -> Window:
        return self._window

    def has_free(self, offset: int) -> None:
        """This offset of the window may be acquired, and perhaps later ones."""
        if self._free_from is None or offset < self._free_from:
            self._free_from = offset

    def take_new(self, first: int, last: int) -> None:
        """Offsets up to `last` are in the window now."""
        if self._window.first == first:
            self.start = first
        self.fresh = max(self.fresh, last + 1)


def _letter(run: Run, cause: Cause) -> DeadLetter:
    return DeadLetter(run.first, run.last, run.count, cause)


def _note(change: Change, run: Run, cause: Cause) -> None:
    """The new state of the run belongs to the change."""
    change.batches.append(_to_store(run))
    if run.state is DeliveryState.ARCHIVING:
        change.dead_letters.append(_letter(run, cause))


class _Acquiring:
    """One call of `acquire`."""

    def __init__(
        self,
        partition: SharePartition,
        demand: Demand,
        batches: Sequence[LogBatch],
        records_max: int,
        limits: ShareLimits,
        now_ms: int,
    ) -> None:
        self._partition = partition
        self._window = partition.window
        self._demand = demand
        self._batches = batches
        self._left = records_max
        self._limits = limits
        self._deadline_ms = now_ms + limits.lock_ms
        # From this number of deliveries on, what comes together gets smaller: one record that no member can
        # process may not take the whole batch with it.
        self._small_from = max(ISOLATED_FROM, -(-limits.deliveries_max // 2))
        self.found: list[Acquired] = []

    def run(self, last: int) -> None:
        base = self._batches[0].base_offset
        before = self._window.before(base)
        first = base
        if before is None:
            first = max(base, self._partition.start)
        for part in self._window.between(min(base, first), last):
            if self._left <= 0:
                return
            if isinstance(part, Hole):
                self._fill(part, last)
            elif not self._take_again(part, base, last):
                return
        behind = max(first, self._window.last + 1) if self._window else first
        if self._left > 0 and behind <= last:
            self._take_new(behind, last)

    # What was never acquired

    def _fill(self, hole: Hole, last: int) -> None:
        first, last = max(hole.first, self._batches[0].base_offset), min(hole.last, last)
        taken = self._end_of_new(first, last)
        self._window.fill(hole, taken)
        self._add(first, taken)

    def _take_new(self, first: int, last: int) -> None:
        if not self._window:
            first = max(first, self._partition.fresh)
            if first > last:
                return
        taken = self._end_of_new(first, last)
        self._add(first, taken)
        self._partition.take_new(first, taken)

    def _end_of_new(self, first: int, last: int) -> int:
        """At most `last`; whole batches of the log, up to the limit of records or just beyond it."""
        if last - first < self._left:
            return last
        wanted = first + self._left - 1
        for batch in self._batches:
            if batch.base_offset <= wanted <= batch.last_offset:
                return min(batch.last_offset, last)
        return wanted

    def _add(self, first: int, last: int) -> None:
        demand = self._demand
        if demand.is_strict:
            acquired = min(last, first + self._left - 1)
            batch = Batch(self._acquired_run(first, acquired))
            if acquired < last:
                batch.runs.append(Run(acquired + 1, last, DeliveryState.AVAILABLE, 0))
                self._partition.has_free(acquired + 1)
            self._window.add(batch)
            self._tell(first, acquired, FIRST_DELIVERY)
            return
        begin = first
        if last - first >= demand.batch_size:
            for base, _ in self._batches:
                if base > last:
                    break
                if base - begin >= demand.batch_size:
                    self._window.add(Batch(self._acquired_run(begin, base - 1)))
                    self._tell(begin, base - 1, FIRST_DELIVERY)
                    begin = base
        self._window.add(Batch(self._acquired_run(begin, last)))
        self._tell(begin, last, FIRST_DELIVERY)

    def _acquired_run(self, first: int, last: int) -> Run:
        return Run(
            first, last, DeliveryState.ACQUIRED, FIRST_DELIVERY, self._demand.member, self._deadline_ms
        )

    def _tell(self, first: int, last: int, count: int) -> None:
        self.found.append(Acquired(first, last, count))
        self._left -= last - first + 1

    # What was acquired before

    def _take_again(self, batch: Batch, base: int, last: int) -> bool:
        """False: nothing else may come with what was acquired."""
        is_small = self._is_small(batch, base, last)
        if is_small and self.found:
            return False
        is_whole = base <= batch.first and batch.last <= last
        (run, *more) = batch.runs
        is_over = self._demand.is_strict and batch.last - batch.first + 1 > self._left
        if is_whole and not more and not is_small and not is_over:
            if run.is_free:
                self._acquire(run)
                self._tell(run.first, run.last, run.count)
            return True
        if not more and not run.is_free:
            return True
        taken = self._take_part(batch, base, last)
        return not (is_small and taken)

    def _is_small(self, batch: Batch, base: int, last: int) -> bool:
        counts = (run.count for run in batch.runs if run.is_free and run.last >= base and run.first <= last)
        return max(counts, default=0) >= self._small_from

    def _take_part(self, batch: Batch, base: int, last: int) -> int:
        """How many records."""
        size = batch.last - batch.first + 1
        deliveries_max, is_strict = self._limits.deliveries_max, self._demand.is_strict
        isolates = deliveries_max > ISOLATED_FROM
        strict_left = self._left
        few_max: int | None = None
        taken = 0
        ranges: list[Acquired] = []
        for run in batch.within(base, last):
            if not run.is_free:
                continue
            if isolates and run.count == deliveries_max - 1 and taken:
                break
            wanted = run.last - run.first + 1
            if run.count >= self._small_from and few_max is None:
                few_max = max(1, size >> (run.count - self._small_from + 1))
            if isolates and run.count == deliveries_max - 1:
                wanted = 1
            if is_strict:
                wanted = min(wanted, strict_left - taken)
            if few_max is not None and taken < few_max:
                wanted = min(wanted, few_max - taken)
            (one,) = batch.within(run.first, run.first + wanted - 1)
            self._acquire(one)
            taken += wanted
            if ranges and ranges[-1][1] == one.first - 1 and ranges[-1][2] == one.count:
                ranges[-1] = ranges[-1]._replace(last_offset=one.last)
            else:
                ranges.append(Acquired(one.first, one.last, one.count))
            if (
                (isolates and one.count == deliveries_max)
                or (is_strict and taken == strict_left)
                or taken == few_max
            ):
                break
        batch.join(batch.first, batch.last)
        for acquired in ranges:
            self._tell(*acquired)
        return taken

    def _acquire(self, run: Run) -> None:
        run.state, run.member, run.deadline_ms = (
            DeliveryState.ACQUIRED,
            self._demand.member,
            self._deadline_ms,
        )
        run.count += 1


def _archive(run: Run) -> None:
    """For good: a change that is being stored makes no difference any more."""
    run.state, run.member, run.deadline_ms = DeliveryState.ARCHIVED, NOBODY, 0
    run.pending, run.member_before = None, NOBODY


def _by_type(one: Acknowledgement, first: int, last: int) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """The offsets of the acknowledgement from `first` to `last`, in stretches of one type."""
    first, last = max(first, one.first_offset), min(last, one.last_offset)
    if len(one.types) == 1:
        yield first, last, AcknowledgeType(one.types[0])
        return
    begin = first
    for kind, group in groupby(one.types[first - one.first_offset : last - one.first_offset + 1]):
        end = begin + sum(1 for _ in group) - 1
        yield begin, end, AcknowledgeType(kind)
        begin = end + 1


def _without(found: Iterable[Acquired], left_out: Sequence[LogBatch]) -> list[Acquired]:
    """Both are in the order of their offsets."""
    kept = []
    for first, last, count in found:
        begin = first
        for batch in left_out:
            if batch.last_offset < begin or batch.base_offset > last:
                continue
            if begin < batch.base_offset:
                kept.append(Acquired(begin, batch.base_offset - 1, count))
            begin = batch.last_offset + 1
        if begin <= last:
            kept.append(Acquired(begin, last, count))
    return kept
