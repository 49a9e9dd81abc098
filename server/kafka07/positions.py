"""The byte positions of one log for clients of Kafka 0.7.

The first position of a log is 0. Each data record takes the size of its message (`wire/kafka07/served.py`),
so a position is the sum of the sizes before it. `LogPositions` adds them up from the log, as far as somebody
asks, and puts sums into the store before it tells them.

- A log that is not compacted never changes but at its ends. An entry for each `ENTRY_BYTES` of messages is
  enough: what is between two entries is counted again where it is needed. The last entry is the end.
- In a compacted log each value's offset and size is kept, since its record may go.
- Records that were deleted from the front before they were counted were told to nobody. The position after
  them is one higher than what was counted: whoever is at the end of that learns that something is lost.
- A loss of power may cut the end of a log, and other records may take the place. The store has the checksum
  of the batch before an entry: after a start the entries that do not fit are dropped. As in 0.7, whose
  unflushed messages are lost too, the positions after that are given anew.
  If the front is deleted too before somebody asks, all positions are higher than those that were told:
  consumers are out of range, and read nothing wrong.
- A log that becomes compacted begins anew, one higher than its end: nobody knows which records had gone until
  the setting was seen. Its consumers are out of range once.

Not noticed: a log that was compacted for a while, with no request of 0.7 in that time; and in a compacted log
a lost end that has grown again with values of the same sizes and was compacted, before the first request.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from enum import Enum, auto
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from odradek.server.kafka07.position_store import Entry, LogKey, PositionStore
from odradek.storage.log.slices import WouldWait
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.kafka07.served import Form, served_bytes, served_bytes_of_batch, values_of
from odradek.wire.records import iter_whole_batches

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

ENTRY_BYTES = 65_536
"""Bytes of messages between two entries of a log that is not compacted."""
VALUES_OF_ENTRY_MAX = 1024
"""In an entry of a compacted log."""
READ_BYTES = 262_144
"""Size of one read of a log."""
QUICK_BYTES_MAX = 16_384
"""Up to this size batches without compression are read faster in the event loop than in another thread."""
WRITTEN_AT_ONCE_MAX = 256
"""Entries in one transaction: an interrupted count goes on from them."""
CHECKED_MAX = 8
"""Entries that are looked at where compaction has changed what they were made from."""
NO_VALUE = -1
LOADS_MAX = 8
"""Attempts to find a batch without a wait for the disk in the event loop."""


class Range(NamedTuple):
    """The positions of a log that can be read."""

    start: int
    end: int


class _Fit(Enum):
    """Fit of an entry to the log."""

    NOT = auto()
    MAYBE = auto()
    SURE = auto()


class _Counted(NamedTuple):
    """A batch."""

    next_offset: int
    served_bytes: int
    mark: int
    values: list[tuple[int, int]]
    """Only in the WRAPPED form."""


class LogPositions:
    """See the module. Its works must not overlap: whoever runs one holds `lock`."""

    def __init__(self, key: LogKey, log: Partition, store: PositionStore) -> None:
        self.lock = asyncio.Lock()
        self.log = log
        self.key = key
        self._store = store
        self.form = Form.MAGIC_0 if key[2] == 0 else Form.PLAIN
        self._end: Entry | None = None
        """None: not opened yet."""
        self._is_end_kept = True
        """Whether the last entry stays when later ones come."""
        self._kept_position = 0
        """Position of the last entry that stays."""
        self._told = 0
        """The highest position of what was lost."""
        self._start = (-1, 0)
        """The start of the log, as an offset and its position."""

    @property
    def end_offset(self) -> int:
        """Before it all records are counted; -1: not known yet."""
        return -1 if self._end is None else self._end.offset

    @property
    def end_position(self) -> int:
        """Position of `end_offset`."""
        return 0 if self._end is None else self._end.position

    # Counting

    def ready(self, target: int | None) -> Range | None:
        """The result of `preparing`, if there is nothing to do for it."""
        end, log = self._end, self.log
        if end is None or self._start[0] != log.log_start_offset or self.form is not self._wanted_form:
            return None
        if not log.log_start_offset <= end.offset <= log.high_watermark:
            return None
        is_enough = end.offset == log.high_watermark or (target is not None and end.position >= target)
        return Range(self._start[1], end.position) if is_enough else None

    def preparing(self, target: int | None) -> Work[Range]:
        """Counts until a position after `target` is known, or (None) to the end of what can be read. Refuses
        with KAFKA_STORAGE_ERROR, INVALID_CONFIG for a compacted log of 0.6, OFFSET_OUT_OF_RANGE if the log is
        cut at its front meanwhile, and for damaged batches as `values_of`."""
        if self.form is Form.MAGIC_0 and self.log.config.is_compacted:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"clients of Kafka 0.6 cannot read {self.log.name}, which is compacted: only a listener "
                "with the protocol KAFKA_07 has its messages",
            )
        end = self._end
        if end is None:
            end = yield from self._opening()
        if self.form is not self._wanted_form:
            end = yield from self._beginning_anew(end)
        if end.offset > self.log.log_end_offset:
            end = yield from self._cutting()
        start_offset = self.log.log_start_offset
        if end.offset < start_offset:
            end = Entry(start_offset, max(end.position, self._told) + 1)
            yield from self._writing([end], is_end_kept=True)
        while end.offset < self.log.high_watermark and (target is None or end.position < target):
            further = yield from self._counting(end, target)
            if further == end:
                break
            end = further
        yield from self._finding_start(end)
        return Range(self._start[1], end.position)

    @property
    def _wanted_form(self) -> Form:
        """Form of the log as it is configured now; a log that was compacted once keeps its form."""
        if self.form is Form.MAGIC_0:
            return self.form
        return Form.WRAPPED if self.log.config.is_compacted else self.form

    def _opening(self) -> Work[Entry]:
        found = self._store.log(self.key)
        if found is None:
            self.form = self._wanted_form
            first = Entry(self.log.log_start_offset, 0)
            yield from self._writing([first], is_end_kept=True)
            return first
        self.form, self._told = found
        return (yield from self._cutting())

    def _cutting(self) -> Work[Entry]:
        """Drops the entries at the end that do not fit the log."""
        dropped = False
        while entries := self._store.last(self.key, CHECKED_MAX + 1):
            misfit = yield from self._last_misfit(entries)
            if misfit is None:
                end = entries[0]
                before = entries[1].position if len(entries) > 1 else None
                self._end = end
                self._is_end_kept = before is None or end.position - before >= ENTRY_BYTES
                self._kept_position = end.position if before is None or self._is_end_kept else before
                break
            self._told = max(self._told, entries[0].position)
            yield from self._writing([], drop_from=misfit.offset)
            dropped = True
        else:
            end = Entry(self.log.log_start_offset, self._told + 1 if self._told else 0)
            yield from self._writing([end], is_end_kept=True)
        if dropped and self.form is Form.WRAPPED:
            end = yield from self._cutting_values(end)
        return end

    def _cutting_values(self, entry: Entry) -> Work[Entry]:
        """Drops values behind the last entry, but for those that the log has, or had before a compaction."""
        end_offset = yield from self._first_other(entry, self.log.log_end_offset)
        kept = tuple((at, size) for at, size in entry.values if at < end_offset)
        put = [entry._replace(values=kept)]
        if kept:
            size_bytes = sum(served_bytes(self.form, size) for _, size in kept)
            put.append(Entry(kept[-1][0] + 1, entry.position + size_bytes))
        yield from self._writing(put, is_end_kept=True)
        return put[-1]

    def _last_misfit(self, entries: list[Entry]) -> Work[Entry | None]:
        """The earliest entry that does not fit, of those from the latest one back to one that surely does."""
        misfit = None
        for entry, before in zip_longest(entries[:CHECKED_MAX], entries[1 : CHECKED_MAX + 1]):
            fit = yield from self._fit(entry, before)
            if fit is _Fit.SURE:
                break
            if fit is _Fit.NOT:
                misfit = entry
        return misfit

    def _fit(self, entry: Entry, before: Entry | None) -> Work[_Fit]:
        """Whether the log has what was counted between two entries."""
        log = self.log
        if entry.offset > log.log_end_offset:
            return _Fit.NOT
        if entry.offset <= log.log_start_offset or not (entry.mark or self.form is Form.WRAPPED):
            return _Fit.SURE
        data = yield from reading(log, entry.offset - 1)
        for _, header in iter_whole_batches(data):
            if header.last_offset + 1 == entry.offset and header.crc == entry.mark:
                return _Fit.SURE
            break
        if self.form is not Form.WRAPPED:
            return _Fit.NOT
        # Compaction writes batches anew: what it has left must be of the same sizes.
        if before is None or (yield from self._first_other(before, entry.offset)) == entry.offset:
            return _Fit.MAYBE
        return _Fit.NOT

    def _first_other(self, entry: Entry, end_offset: int) -> Work[int]:
        """The offset of the first record that was not counted behind an entry, or with another size; at most
        `end_offset`."""
        known, offset = dict(entry.values), max(entry.offset, self.log.log_start_offset)
        while offset < end_offset:
            data = yield from reading(self.log, offset)
            read = partial(_stored_sizes, data, offset)
            sizes, following = read() if is_quick(data) else (yield read)
            for at, size in sizes:
                if at >= end_offset:
                    return end_offset
                if known.get(at, NO_VALUE) != size:
                    return at
            if following <= offset:
                break
            offset = following
        return end_offset

    def _beginning_anew(self, end: Entry) -> Work[Entry]:
        self.form = Form.WRAPPED
        first = Entry(self.log.log_start_offset, end.position + 1)
        yield from self._writing([first], drop_from=0, is_end_kept=True)
        return first

    def _counting(self, end: Entry, target: int | None) -> Work[Entry]:
        """Counts some batches after the last entry; returns the new last one."""
        is_wrapped = self.form is Form.WRAPPED
        put: list[Entry] = []
        # Of a compacted log this entry gets the values that follow.
        begun, values = end._replace(values=()), list[tuple[int, int]]()
        kept_position, is_kept = self._kept_position, False
        last = end
        while last.offset < self.log.high_watermark and len(put) < WRITTEN_AT_ONCE_MAX:
            if target is not None and last.position >= target:
                break
            data = yield from reading(self.log, last.offset)
            count = partial(_count, data, last.offset, self.form)
            counted = count() if is_quick(data) else (yield count)
            if not counted:
                break
            for batch in counted:
                last = Entry(batch.next_offset, last.position + batch.served_bytes, batch.mark)
                values += batch.values
                if is_wrapped:
                    is_kept = len(values) >= VALUES_OF_ENTRY_MAX
                    if is_kept:
                        put.append(begun._replace(values=tuple(values)))
                        begun, values = last, []
                else:
                    is_kept = last.position - kept_position >= ENTRY_BYTES
                    if is_kept:
                        put.append(last)
                        kept_position = last.position
        if last.offset == end.offset:
            return end
        if values:
            put.append(begun._replace(values=tuple(values)))
        if is_wrapped or not is_kept:
            put.append(last)
        # The start of the log stays: nothing else may know its position.
        is_kept_before = is_wrapped or self._is_end_kept or end.offset <= self.log.log_start_offset
        drop = () if is_kept_before else (end.offset,)
        yield from self._writing(put, drop=drop, is_end_kept=is_kept)
        self._kept_position = kept_position
        return last

    def _writing(
        self,
        put: list[Entry],
        *,
        drop: tuple[int, ...] = (),
        drop_from: int | None = None,
        drop_before: int = 0,
        is_end_kept: bool | None = None,
    ) -> Work[None]:
        try:
            log = self.form, self._told
            yield partial(self._store.write, self.key, log, put, drop, drop_from, drop_before)
        except sqlite3.Error as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._store.path} cannot be written: {error}"
            ) from None
        if drop_from is not None:
            self._start = (-1, 0)
        if is_end_kept is not None:
            self._end, self._is_end_kept = put[-1], is_end_kept
            if is_end_kept:
                self._kept_position = put[-1].position

    def _finding_start(self, end: Entry) -> Work[None]:
        offset = self.log.log_start_offset
        if self._start[0] == offset:
            return
        put: list[Entry] = []
        if self.form is Form.WRAPPED:
            position, first = self._kept_of(offset), self.entry_before(offset=offset).offset
        else:
            # The entry before the start may be of records that have gone: count backwards.
            following, first = self._store.from_offset(self.key, offset) or end, offset
            position = following.position - (yield from self._between(offset, following.offset))
            if following.offset > offset:
                # What is behind may be lost, and the start must stay where it was told.
                put = [Entry(offset, position)]
        if put or self._store.at_offset(self.key, first - 1) is not None:
            yield from self._writing(put, drop_before=first)
        self._start = offset, position

    # Places

    def position_of(self, offset: int) -> Work[int]:
        """The position of the first message at or after `offset`, which is counted and not before the start
        of the log."""
        if self.form is Form.WRAPPED:
            return self._kept_of(offset)
        entry = self.entry_before(offset=offset)
        return entry.position + (yield from self._between(entry.offset, offset))

    def entry_before(self, *, position: int = -1, offset: int = -1) -> Entry:
        """The last entry at or before a position or an offset; of a log that is not compacted never one
        before the start of the log."""
        if offset >= 0:
            found = self._store.at_offset(self.key, offset)
        else:
            found = self._store.at_position(self.key, position)
        if self.form is Form.WRAPPED:
            assert found is not None
            return found
        if found is None or found.offset < self._start[0]:
            return Entry(*self._start)
        return found

    def entry_from(self, offset: int) -> Entry | None:
        """The first entry at or after an offset."""
        return self._store.from_offset(self.key, offset)

    def _kept_of(self, offset: int) -> int:
        entry = self.entry_before(offset=offset)
        before = (size for at, size in entry.values if at < offset)
        return entry.position + sum(served_bytes(Form.WRAPPED, size) for size in before)

    def _between(self, offset: int, end_offset: int) -> Work[int]:
        """The size of the messages from one offset to another one, which begins a batch or is within one."""
        total_bytes = 0
        while offset < end_offset:
            data = yield from reading(self.log, offset)
            count = partial(_sum, self.form, data, offset, end_offset)
            offset, size_bytes = count() if is_quick(data) else (yield count)
            total_bytes += size_bytes
        return total_bytes


def select(values: tuple[tuple[int, int], ...], position: int, first: int) -> Iterator[tuple[int, int, int]]:
    """(offset, size of the value, position) of the values of an entry at `first` whose messages end after
    `position`."""
    for offset, size in values:
        following = first + served_bytes(Form.WRAPPED, size)
        if following > position:
            yield offset, size, first
        first = following


def reading(log: Partition, offset: int) -> Work[memoryview]:
    """Batches from the one that holds `offset` on, the last of which may be cut; empty at the end. Refuses as
    `Partition.read`."""
    for attempt in range(LOADS_MAX + 1):
        try:
            records = log.read(offset, max_bytes=READ_BYTES, prompt=attempt < LOADS_MAX).records
        except WouldWait as miss:
            yield miss.load
        else:
            break
    try:
        if records.would_wait():
            yield records.load
        buffers = records.buffers()
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name} cannot be read: {error}") from error
    return buffers[0] if buffers else memoryview(b"")


def is_quick(data: memoryview) -> bool:
    """Whether batches are read faster in the event loop than in another thread."""
    return len(data) <= QUICK_BYTES_MAX and not any(one.compression for _, one in iter_whole_batches(data))


def _count(data: memoryview, first_offset: int, form: Form) -> list[_Counted]:
    """May run in a worker thread."""
    found = []
    for position, header in iter_whole_batches(data):
        next_offset = header.last_offset + 1
        if next_offset <= first_offset:
            continue
        batch = data[position : position + header.size_bytes]
        if form is not Form.WRAPPED:
            size_bytes = served_bytes_of_batch(form, batch, header, first_offset)
            found.append(_Counted(next_offset, size_bytes, header.crc, []))
        else:
            values = [
                (one.offset, len(one.content))
                for one in values_of(batch, header)
                if one.offset >= first_offset
            ]
            size_bytes = sum(served_bytes(form, size) for _, size in values)
            found.append(_Counted(next_offset, size_bytes, header.crc, values))
    return found


def _stored_sizes(data: memoryview, first_offset: int) -> tuple[list[tuple[int, int]], int]:
    """Offset and size of each value from an offset on, NO_VALUE for a control record; and the offset after
    the batches. May run in a worker thread."""
    found: list[tuple[int, int]] = []
    next_offset = -1
    for position, header in iter_whole_batches(data):
        if header.is_control:
            found.append((header.base_offset, NO_VALUE))
        batch = data[position : position + header.size_bytes]
        found += [(one.offset, len(one.content)) for one in values_of(batch, header)]
        next_offset = header.last_offset + 1
    return [(at, size) for at, size in found if at >= first_offset], next_offset


def _sum(form: Form, data: memoryview, first_offset: int, end_offset: int) -> tuple[int, int]:
    """The offset after the batches, at most `end_offset`, and the size of their messages between. May
    run in a worker thread."""
    total_bytes = 0
    offset = end_offset
    for position, header in iter_whole_batches(data):
        offset = header.last_offset + 1
        batch = data[position : position + header.size_bytes]
        if offset > first_offset:
            total_bytes += served_bytes_of_batch(form, batch, header, first_offset)
        if offset >= end_offset:
            return end_offset, total_bytes - served_bytes_of_batch(form, batch, header, end_offset) * (
                offset > end_offset
            )
    return offset, total_bytes
