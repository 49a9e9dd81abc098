"""The sparse indexes beside a segment: offset to position, time to offset. Caches: they can be rebuilt from
the log.

File formats are Kafka's (`OffsetIndex.java`, `TimeIndex.java`): big-endian entries of (relative offset int32,
position int32) and (timestamp int64, relative offset int32), appended in order. The entries of a file are
searched in a mapping (`Mapped`): the cost of opening an index does not depend on its size. New entries are
kept in arrays until `save` appends them to the file; a start after a crash rebuilds unsaved entries. A
rebuilt index replaces the file durably: a start may use the first entries of the old file
(`scan_checkpoint.py`).

A mapped index is not checked completely. A search checks the neighbours of the entry that it has found: a
single wrong entry can only mislead a search that ends next to it. The search then raises `DamagedIndex`, and
the owner uses the sound entries (`in_memory`), or rebuilds the index.

`open_indexes` and the functions after it read the files of a segment: mapped, whole, or only their ends. They
raise `DamagedIndex` if the ends of a file show that it cannot belong to its log. Each may raise `OSError`.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from odradek.storage.disk import Disk, read_file, replace_file, write_all
from odradek.storage.log.segment_paths import INDEX, TIME_INDEX, SegmentPaths

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES = _TIME_ENTRY.size
_NEAR = 128
"""A guess with this error or less, in entries, has reached the pages of the result."""
_GUESSES = 4
_ENTRIES_PER_LOOK = 1024


class DamagedIndex(Exception):
    """The entries of an index contradict each other, or the log."""


class Mapped:
    """The entries of an index file, read at the places of a search.

    `content` is the mapped file, `read(position, size)` reads the file. Each range is read once before its
    mapping is used: a disk error is then an `OSError`, while in a mapping it would end the process, and other
    threads run during the wait. Raises `DamagedIndex` if the size is not a multiple of an entry, or the last
    two entries are not in order.
    """

    __slots__ = ("_content", "_entry", "_first", "_last", "_read", "_was_read", "count")

    def __init__(
        self, entry: struct.Struct, content: memoryview, read: Callable[[int, int], bytes] | None
    ) -> None:
        self.count, rest = divmod(len(content), entry.size)
        if rest:
            raise DamagedIndex
        self._content = content
        self._entry = entry
        self._read = read
        self._was_read = bytearray(-(-self.count // _ENTRIES_PER_LOOK))
        self._first = self._last = (0, 0)
        if self.count:
            self._first, self._last = self[0], self[self.count - 1]
            self.check_order(self.count - 2, self.count - 1)

    def __getitem__(self, place: int) -> tuple[int, int]:
        """Both columns of an entry."""
        look = place // _ENTRIES_PER_LOOK
        if not self._was_read[look]:
            self._look_at(look)
        first, second = self._entry.unpack_from(self._content, place * self._entry.size)
        return first, second

    def _look_at(self, look: int) -> None:
        assert self._read is not None
        look_bytes = _ENTRIES_PER_LOOK * self._entry.size
        position = look * look_bytes
        size_bytes = min(look_bytes, len(self._content) - position)
        if len(self._read(position, size_bytes)) < size_bytes:
            # The file was cut by another process. An access to the mapping would end this process.
            raise DamagedIndex
        self._was_read[look] = True

    def content(self) -> bytes:
        """The whole file. `DamagedIndex` if it has become shorter."""
        for look, was_read in enumerate(self._was_read):
            if not was_read:
                self._look_at(look)
        return bytes(self._content)

    def count_until(self, column: int, wanted: int) -> int:
        """The number of entries up to `wanted` in a column, which has to ascend.

        Most logs grow evenly, so the place is first guessed from the ends of a range: a binary search would
        read a page of the file at each step.
        """
        if wanted < self._first[column]:
            return 0
        if wanted >= self._last[column]:
            return self.count
        # From here on: entry at `low` <= `wanted` < entry at `high`.
        low, high = self._guess(column, wanted)
        unpack, content, size = self._entry.unpack_from, self._content, self._entry.size
        was_read = self._was_read
        while high - low > 1:
            middle = (low + high) // 2
            if not was_read[middle // _ENTRIES_PER_LOOK]:
                self._look_at(middle // _ENTRIES_PER_LOOK)
            if unpack(content, middle * size)[column] > wanted:
                high = middle
            else:
                low = middle
        self.check_order(low - 1, high + 1)
        return high

    def _guess(self, column: int, wanted: int) -> tuple[int, int]:
        """A narrow range around the place of `wanted`, which is between the ends; wider if the entries are
        not spread evenly.
        """
        low, high = 0, self.count - 1
        low_key, high_key = self._first[column], self._last[column]
        for _ in range(_GUESSES):
            if high - low <= 2 * _NEAR:
                break
            guess = low + (high - low) * (wanted - low_key) // (high_key - low_key)
            for middle in (max(guess - _NEAR, low + 1), min(guess + _NEAR, high - 1)):
                key = self[middle][column]
                if key > wanted:
                    high, high_key = middle, key
                    break
                low, low_key = middle, key
        return low, high

    def check_order(self, first: int, last: int) -> None:
        """Raises `DamagedIndex` unless both columns ascend from one place to another, ends included."""
        places = range(max(first, 0), min(last + 1, self.count))
        before = (-1 << 63, -1 << 63)
        for entry in map(self.__getitem__, places):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                raise DamagedIndex
            before = entry


def _nothing_mapped(entry: struct.Struct) -> Mapped:
    return Mapped(entry, memoryview(b""), None)


_NO_OFFSETS = _nothing_mapped(_OFFSET_ENTRY)
_NO_TIMES = _nothing_mapped(_TIME_ENTRY)


class OffsetIndex:
    """The last offset and the position of some batches."""

    __slots__ = (
        "_mapped",
        "_mapped_last",
        "base_offset",
        "is_rebuilt",
        "offsets",
        "positions",
        "saved_count",
    )

    def __init__(self, base_offset: int, mapped: Mapped = _NO_OFFSETS) -> None:
        self.base_offset = base_offset
        self._mapped = mapped
        self._mapped_last = mapped[mapped.count - 1][0] if mapped.count else -1
        # Entries after the mapped ones.
        self.offsets = array("i")
        self.positions = array("i")
        self.saved_count = mapped.count
        self.is_rebuilt = False
        """Whether the file differs from the first `saved_count` entries."""

    @classmethod
    def of_file(
        cls, base_offset: int, content: memoryview, read: Callable[[int, int], bytes], size_bytes: int
    ) -> "OffsetIndex":
        """From a mapped file, for a log file of `size_bytes`. `DamagedIndex` if the ends show that it belongs
        to another log.
        """
        mapped = Mapped(_OFFSET_ENTRY, content, read)
        if mapped.count and (min(mapped[0]) < 0 or mapped[mapped.count - 1][1] >= size_bytes):
            raise DamagedIndex
        return cls(base_offset, mapped)

    @property
    def is_mapped(self) -> bool:
        return self._mapped.count > 0

    def __len__(self) -> int:
        return self._mapped.count + len(self.offsets)

    def entry(self, place: int) -> tuple[int, int]:
        """Last offset minus base offset, and position."""
        behind = place - self._mapped.count
        return (self.offsets[behind], self.positions[behind]) if behind >= 0 else self._mapped[place]

    def append(self, offset: int, position: int) -> None:
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)

    def has_room_for(self, offset: int) -> bool:
        """False for an offset that is impossible in this segment: the header of the batch is damaged."""
        relative = offset - self.base_offset
        return (self.offsets[-1] if self.offsets else self._mapped_last) < relative < 1 << 31

    def lookup(self, offset: int) -> int:
        """The position of the last entry at or before `offset`; 0 if there is none."""
        if not self._mapped.count:
            found = bisect_right(self.offsets, offset - self.base_offset)
            return self.positions[found - 1] if found else 0
        place = self.place_of(offset)
        return self.entry(place)[1] if place >= 0 else 0

    def place_of(self, offset: int) -> int:
        """The place of the entry that `lookup` uses; -1 if there is none."""
        return self._count_until(0, self.offsets, offset - self.base_offset) - 1

    def count_before(self, offset: int) -> int:
        """The number of entries of batches that end before `offset`."""
        return self._count_until(0, self.offsets, offset - 1 - self.base_offset)

    def place_from(self, position: int) -> int:
        """The place of the first entry that is not before `position`; `len` when there is none."""
        return self._count_until(1, self.positions, position - 1)

    def _count_until(self, column: int, rest: "array[int]", wanted: int) -> int:
        mapped = self._mapped
        if mapped.count and not (rest and rest[0] <= wanted):
            return mapped.count_until(column, wanted)
        return mapped.count + bisect_right(rest, wanted)

    def forget(self, place: int) -> None:
        """Remove a wrong entry. For an index in memory."""
        assert not self.is_mapped
        del self.offsets[place], self.positions[place]
        if place < self.saved_count:
            self.saved_count = place
            self.is_rebuilt = True

    def offset_before(self, position: int) -> int:
        """The last offset of an indexed batch that begins before `position`; without one, the offset before
        the segment.
        """
        place = self.place_from(position) - 1
        return self.entry(place)[0] + self.base_offset if place >= 0 else self.base_offset - 1

    def last_position_until(self, position: int) -> int:
        """The last indexed position that is not after `position`; 0 when there is none."""
        place = self.place_from(position + 1) - 1
        return self.entry(place)[1] if place >= 0 else 0

    def encode(self, start: int = 0) -> bytes:
        """The bytes of the entries from `start` on."""
        behind = start - self._mapped.count
        if behind < 0:
            return self._mapped.content()[start * OFFSET_ENTRY_BYTES :] + self.encode(self._mapped.count)
        count = len(self.offsets) - behind
        both = array("i", bytes(count * OFFSET_ENTRY_BYTES))
        both[0::2] = self.offsets[behind:]
        both[1::2] = self.positions[behind:]
        if sys.byteorder == "little":
            both.byteswap()
        return both.tobytes()

    def in_memory(self, size_bytes: int) -> "OffsetIndex | None":
        """A copy without a mapping, every entry checked; None if they are not in order."""
        try:
            index = OffsetIndex.decode(self.base_offset, self.encode(), size_bytes)
        except DamagedIndex:
            return None
        if index is not None:
            index.saved_count, index.is_rebuilt = self.saved_count, self.is_rebuilt
        return index

    @classmethod
    def decode(cls, base_offset: int, data: bytes, size_bytes: int) -> "OffsetIndex | None":
        """From a file's content, for a log file of `size_bytes`; None if it belongs to another log."""
        if len(data) % OFFSET_ENTRY_BYTES:
            return None
        both = array("i", data)
        if sys.byteorder == "little":
            both.byteswap()
        index = cls(base_offset)
        index.offsets = both[0::2]
        index.positions = both[1::2]
        index.saved_count = len(index.offsets)
        if not _ascends(index.offsets) or not _ascends(index.positions):
            return None
        if index.offsets and (
            index.offsets[0] < 0 or index.positions[0] < 0 or index.positions[-1] >= size_bytes
        ):
            return None
        return index

    def save(self, disk: Disk, path: str, *, sync: bool = False) -> None:
        """Write new entries to the file; with `sync` durably."""
        if self.is_rebuilt:
            replace_file(disk, path, self.encode())
            self.is_rebuilt = False
        elif sync or self.saved_count < len(self) or not disk.exists(path):
            _save(disk, path, self.saved_count * OFFSET_ENTRY_BYTES, self.encode(self.saved_count), sync)
        self.saved_count = len(self)


class TimeIndex:
    """Running maximum of timestamps: no record at or before the offset has a later timestamp than the
    entry.
    """

    __slots__ = (
        "_mapped",
        "_mapped_last",
        "base_offset",
        "is_rebuilt",
        "offsets",
        "saved_count",
        "timestamps",
    )

    def __init__(self, base_offset: int, mapped: Mapped = _NO_TIMES) -> None:
        self.base_offset = base_offset
        self._mapped = mapped
        self._mapped_last = mapped[mapped.count - 1] if mapped.count else (-1, -1)
        # Entries after the mapped ones.
        self.timestamps = array("q")
        self.offsets = array("i")
        self.saved_count = mapped.count
        self.is_rebuilt = False
        """Whether the file differs from the first `saved_count` entries."""

    @classmethod
    def of_file(cls, base_offset: int, content: memoryview, read: Callable[[int, int], bytes]) -> "TimeIndex":
        """From a mapped file. `DamagedIndex` if the ends show that it is no index."""
        mapped = Mapped(_TIME_ENTRY, content, read)
        if mapped.count and mapped[0][1] < 0:
            raise DamagedIndex
        return cls(base_offset, mapped)

    def __len__(self) -> int:
        return self._mapped.count + len(self.offsets)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if it advances the index (as `TimeIndex.maybeAppend`)."""
        if timestamp_ms < 0:
            return
        latest, last = (self.timestamps[-1], self.offsets[-1]) if self.timestamps else self._mapped_last
        if timestamp_ms > latest and offset - self.base_offset > last:
            self.timestamps.append(timestamp_ms)
            self.offsets.append(offset - self.base_offset)

    def count_before(self, offset: int) -> int:
        """The number of entries with an offset before `offset`."""
        mapped, wanted = self._mapped, offset - 1 - self.base_offset
        if mapped.count and not (self.offsets and self.offsets[0] <= wanted):
            return mapped.count_until(1, wanted)
        return mapped.count + bisect_right(self.offsets, wanted)

    def last(self) -> tuple[int, int]:
        """The last entry as (timestamp, offset); (-1, base offset) when there is none."""
        if self.timestamps:
            return self.timestamps[-1], self.offsets[-1] + self.base_offset
        latest, last = self._mapped_last
        return latest, max(last, 0) + self.base_offset

    def lookup(self, timestamp_ms: int) -> int:
        """An offset at or before the first record with `timestamp_ms` or later."""
        if self._mapped.count and not (self.timestamps and self.timestamps[0] < timestamp_ms):
            place = self._mapped.count_until(0, timestamp_ms - 1) - 1
            return (self._mapped[place][1] if place >= 0 else 0) + self.base_offset
        place = bisect_left(self.timestamps, timestamp_ms) - 1
        return self.base_offset + (self.offsets[place] if place >= 0 else 0)

    def encode(self, start: int = 0) -> bytes:
        """The bytes of the entries from `start` on."""
        behind = start - self._mapped.count
        if behind < 0:
            return self._mapped.content()[start * TIME_ENTRY_BYTES :] + self.encode(self._mapped.count)
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps[behind:], self.offsets[behind:]))

    def in_memory(self) -> "TimeIndex | None":
        """A copy without a mapping, every entry checked; None if they are not in order."""
        try:
            index = TimeIndex.decode(self.base_offset, self.encode())
        except DamagedIndex:
            return None
        if index is not None:
            index.saved_count, index.is_rebuilt = self.saved_count, self.is_rebuilt
        return index

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex | None":
        """From a file's content; None if it is no index."""
        if len(data) % TIME_ENTRY_BYTES:
            return None
        index = cls(base_offset)
        for timestamp_ms, relative_offset in _TIME_ENTRY.iter_unpack(data):
            index.timestamps.append(timestamp_ms)
            index.offsets.append(relative_offset)
        index.saved_count = len(index.offsets)
        if not _ascends(index.timestamps) or not _ascends(index.offsets):
            return None
        if index.offsets and index.offsets[0] < 0:
            return None
        return index

    def save(self, disk: Disk, path: str, *, sync: bool = False) -> None:
        """Write new entries to the file; with `sync` durably."""
        if self.is_rebuilt:
            replace_file(disk, path, self.encode())
            self.is_rebuilt = False
        elif sync or self.saved_count < len(self) or not disk.exists(path):
            _save(disk, path, self.saved_count * TIME_ENTRY_BYTES, self.encode(self.saved_count), sync)
        self.saved_count = len(self)


def _ascends(values: "array[int]") -> bool:
    return all(map(int.__lt__, values[:-1], values[1:]))


def _save(disk: Disk, path: str, position: int, data: bytes, sync: bool) -> None:
    file = disk.open(path, create=True)
    try:
        if data:
            write_all(file, position, [data], len(data))
        # The file may be longer: Kafka allocates its index files at full size.
        if file.size() != position + len(data):
            file.truncate(position + len(data))
        if sync:
            file.sync()
    finally:
        file.close()


MAP_INDEXES_FROM_BYTES = 4096
"""A smaller index is cheaper to read than to map, and takes little memory."""


def open_indexes(
    paths: SegmentPaths, size_bytes: int, counts: tuple[int, int] | None = None
) -> tuple[OffsetIndex, TimeIndex]:
    """Both indexes, each mapped unless it is small: all entries, or the first `counts`. The log file has
    `size_bytes`.
    """
    offsets: OffsetIndex | None
    times: TimeIndex | None
    base_offset = paths.base_offset
    offset_bytes = None if counts is None else counts[0] * OFFSET_ENTRY_BYTES
    time_bytes = None if counts is None else counts[1] * TIME_ENTRY_BYTES
    content = _content(paths, INDEX, offset_bytes)
    if isinstance(content, bytes):
        offsets = OffsetIndex.decode(base_offset, content, size_bytes)
    else:
        offsets = OffsetIndex.of_file(base_offset, content, partial(_read, paths, INDEX), size_bytes)
    content = _content(paths, TIME_INDEX, time_bytes)
    if isinstance(content, bytes):
        times = TimeIndex.decode(base_offset, content)
    else:
        times = TimeIndex.of_file(base_offset, content, partial(_read, paths, TIME_INDEX))
    if offsets is None or times is None:
        raise DamagedIndex
    return offsets, times


def _content(paths: SegmentPaths, kind: str, wanted_bytes: int | None) -> bytes | memoryview:
    file = paths.disk.open(paths.path(kind))
    try:
        size_bytes = file.size()
        if wanted_bytes is not None:
            if size_bytes < wanted_bytes:
                raise DamagedIndex
            size_bytes = wanted_bytes
        if size_bytes >= MAP_INDEXES_FROM_BYTES:
            try:
                return file.map(size_bytes)
            except OSError:
                # The process has reached its limit of mappings.
                pass
        return file.read(0, size_bytes)
    finally:
        file.close()


def _read(paths: SegmentPaths, kind: str, position: int, size_bytes: int) -> bytes:
    try:
        file = paths.disk.open(paths.path(kind))
    except FileNotFoundError as error:
        raise DamagedIndex from error
    try:
        return file.read(position, size_bytes)
    finally:
        file.close()


def decode_indexes(paths: SegmentPaths, size_bytes: int) -> tuple[OffsetIndex | None, TimeIndex | None]:
    """Both indexes in memory, every entry checked; None for a missing index or one whose entries are not in
    order.
    """
    disk, base_offset = paths.disk, paths.base_offset
    try:
        offsets = OffsetIndex.decode(base_offset, read_file(disk, paths.path(INDEX)), size_bytes)
        times = TimeIndex.decode(base_offset, read_file(disk, paths.path(TIME_INDEX)))
    except FileNotFoundError:
        return None, None
    return offsets, times


def truncate_files(paths: SegmentPaths, counts: tuple[int, int]) -> bool:
    """Cut both files to `counts` entries; returns whether neither had more."""
    had_no_more = True
    sizes = (counts[0] * OFFSET_ENTRY_BYTES, counts[1] * TIME_ENTRY_BYTES)
    for kind, size_bytes in zip((INDEX, TIME_INDEX), sizes, strict=True):
        file = paths.disk.open(paths.path(kind))
        try:
            if file.size() > size_bytes:
                file.truncate(size_bytes)
                had_no_more = False
        finally:
            file.close()
    return had_no_more


def read_last_time_entry(paths: SegmentPaths) -> TimeIndex | None:
    """A time index with only the last entry: 12 bytes instead of the whole file. None if there is no valid
    entry.
    """
    disk, path = paths.disk, paths.path(TIME_INDEX)
    if not disk.exists(path):
        return None
    size_bytes = disk.size(path)
    if size_bytes % TIME_ENTRY_BYTES or not size_bytes:
        return None
    file = disk.open(path)
    try:
        last_entry = file.read(size_bytes - TIME_ENTRY_BYTES, TIME_ENTRY_BYTES)
    finally:
        file.close()
    return TimeIndex.decode(paths.base_offset, last_entry)
