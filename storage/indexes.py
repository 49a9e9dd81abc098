"""The sparse indexes beside a segment: offset to position, time to offset. Caches: they can be rebuilt from
the log.

File formats are Kafka's (`OffsetIndex.java`, `TimeIndex.java`): big-endian entries of (relative offset
int32, position int32) and (timestamp int64, relative offset int32), appended in order. Entries live in
arrays and are written by `save` with ordinary writes; a start after a crash rebuilds what had not been
saved.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from odradek.storage.disk import Disk, write_all

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_TIME_ENTRY = struct.Struct(">qi")


class OffsetIndex:
    """For some batches: the last offset in it and where it begins."""

    __slots__ = ("base_offset", "offsets", "positions", "saved_count")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("i")
        self.positions = array("i")
        self.saved_count = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, offset: int, position: int) -> None:
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)

    def has_room_for(self, offset: int) -> bool:
        """False for an offset that no batch of this place can have: its header is damaged."""
        relative = offset - self.base_offset
        return (self.offsets[-1] if self.offsets else -1) < relative < 1 << 31

    def lookup(self, offset: int) -> int:
        """The position of the last entry at or before `offset`; 0 when there is none."""
        found = bisect_right(self.offsets, offset - self.base_offset)
        return self.positions[found - 1] if found else 0

    def place_of(self, offset: int) -> int:
        """The place of the entry that `lookup` takes; -1 when there is none."""
        return bisect_right(self.offsets, offset - self.base_offset) - 1

    def forget(self, place: int) -> None:
        """Leave out an entry that cannot be right."""
        del self.offsets[place], self.positions[place]
        self.saved_count = min(self.saved_count, place)

    def offset_before(self, position: int) -> int:
        """The last offset of an indexed batch that begins before `position`; without one, what is just
        before the segment.
        """
        found = bisect_left(self.positions, position)
        return self.offsets[found - 1] + self.base_offset if found else self.base_offset - 1

    def last_position_until(self, position: int) -> int:
        """The last indexed position that is not after `position`; 0 when there is none."""
        found = bisect_right(self.positions, position)
        return self.positions[found - 1] if found else 0

    def truncate(self, position: int) -> None:
        """Forget the batches that begin at or after `position`."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:]
        self.saved_count = min(self.saved_count, keep)

    def encode(self, start: int = 0) -> bytes:
        count = len(self.offsets) - start
        both = array("i", bytes(count * OFFSET_ENTRY_BYTES))
        both[0::2] = self.offsets[start:]
        both[1::2] = self.positions[start:]
        if sys.byteorder == "little":
            both.byteswap()
        return both.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes, size_bytes: int) -> "OffsetIndex | None":
        """From a file's content, for a log file of `size_bytes`; None when it cannot belong to it."""
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
        """Bring the file up to date, and with `sync` safe from a loss of power."""
        if sync or self.saved_count < len(self.offsets) or not disk.exists(path):
            _save(disk, path, self.saved_count * OFFSET_ENTRY_BYTES, self.encode(self.saved_count), sync)
            self.saved_count = len(self.offsets)


class TimeIndex:
    """Running maximum of timestamps: no record at or before the offset has a later timestamp than the
    entry.
    """

    __slots__ = ("base_offset", "offsets", "saved_count", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("i")
        self.saved_count = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry, unless it would not advance the index (as `TimeIndex.maybeAppend`)."""
        if timestamp_ms < 0:
            return
        if not self.timestamps or (
            timestamp_ms > self.timestamps[-1] and offset - self.base_offset > self.offsets[-1]
        ):
            self.timestamps.append(timestamp_ms)
            self.offsets.append(offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """The last entry as (timestamp, offset); (-1, base offset) when there is none."""
        if not self.timestamps:
            return -1, self.base_offset
        return self.timestamps[-1], self.offsets[-1] + self.base_offset

    def lookup(self, timestamp_ms: int) -> int:
        """An offset at or after which the first record not before `timestamp_ms` is found."""
        found = bisect_left(self.timestamps, timestamp_ms)
        return self.offsets[found - 1] + self.base_offset if found else self.base_offset

    def truncate(self, offset: int) -> None:
        """Forget entries of `offset` and after it."""
        keep = bisect_left(self.offsets, offset - self.base_offset)
        del self.offsets[keep:], self.timestamps[keep:]
        self.saved_count = min(self.saved_count, keep)

    def encode(self, start: int = 0) -> bytes:
        pack = _TIME_ENTRY.pack
        return b"".join(map(pack, self.timestamps[start:], self.offsets[start:]))

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex | None":
        """From a file's content; None when it cannot be an index."""
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
        """Bring the file up to date, and with `sync` safe from a loss of power."""
        if sync or self.saved_count < len(self.offsets) or not disk.exists(path):
            _save(disk, path, self.saved_count * TIME_ENTRY_BYTES, self.encode(self.saved_count), sync)
            self.saved_count = len(self.offsets)


def _ascends(values: array) -> bool:
    return all(map(int.__lt__, values[:-1], values[1:]))


def _save(disk: Disk, path: str, position: int, data: bytes, sync: bool) -> None:
    file = disk.open(path, create=True)
    try:
        if data:
            write_all(file, position, [data], len(data))
        # The file may be longer: Kafka makes its index files at full size, and what follows is not ours.
        if file.size() != position + len(data):
            file.truncate(position + len(data))
        if sync:
            file.sync()
    finally:
        file.close()
