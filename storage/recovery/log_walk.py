"""Walking a log file that may be damaged: every sound batch, and the damaged bytes between them.

`scan` of `batches.py` stops at the first unsound batch; `walk` continues after it, has the fault, and finds
headers that can be repaired: base offset, length and magic are outside of a batch's checksum, but length and
magic have to fit the begin of the next batch, and offsets ascend without overlap.

A message or wrapper of format v0 or v1 (from before Kafka 0.11) is sound if its checksum is right. A file is
read once, through one buffer.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from struct import Struct
from typing import NamedTuple, cast

from odradek.storage.disk import Disk
from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.segment_paths import LOG, base_offset_of
from odradek.wire import checksums
from odradek.wire.record_layout import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
)

WINDOW_BYTES = 1 << 20
_MAGIC_BYTE = b"\x02"
_ATTRIBUTES_KNOWN = 0x7F
_CODEC_MASK = 0x07
_CODEC_MAX = 4
_OFFSETS_IN_SEGMENT = 2**31

_LEGACY_HEAD = Struct(">qiIbb")
_LEGACY_TIMESTAMP = Struct(">q")
_LEGACY_BYTES_MIN = (14, 22)
_LEGACY_CHECKED_FROM = 16
_LEGACY_ATTRIBUTES = 0x0F

_crc32c = cast(Callable[[memoryview, int], int], checksums.crc32c)


class Hole(NamedTuple):
    """Bytes that are no sound batch. They may have had the offsets from `first_offset` to before
    `end_offset`; -1 if the end is not known.
    """

    position: int
    end_position: int
    why: str
    first_offset: int = -1
    end_offset: int = -1

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


class HeaderRepair(NamedTuple):
    """A batch with sound records and a damaged header: the repaired batch."""

    batch: StoredBatch
    what: str


Item = StoredBatch | HeaderRepair | Hole


def batch_of(item: StoredBatch | HeaderRepair) -> StoredBatch:
    return item.batch if isinstance(item, HeaderRepair) else item


def walk(
    read: Callable[[int, int], bytes], size_bytes: int, base_offset: int, next_base_offset: int | None = None
) -> Iterator[Item]:
    """The content of a log file of `size_bytes` with `base_offset` in its name, in order and without gaps.

    `next_base_offset` is the base offset of the next segment, or the known end of the log. `read(position,
    size)` returns bytes of the file.
    """
    window = _Window(read, size_bytes)
    return _in_order(_items(window, base_offset), base_offset, next_base_offset)


class _Window:
    """Reads a file through one buffer."""

    __slots__ = ("_data", "_read", "_start", "size_bytes")

    def __init__(self, read: Callable[[int, int], bytes], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._read = read
        self._data = b""
        self._start = 0

    def at(self, position: int, size_bytes: int) -> memoryview:
        """Up to `size_bytes` bytes, at most a window; fewer at the end of the file."""
        inside = position - self._start
        if inside < 0 or inside + size_bytes > len(self._data):
            self._data = self._read(position, min(WINDOW_BYTES, self.size_bytes - position))
            self._start, inside = position, 0
        return memoryview(self._data)[inside : inside + size_bytes]

    def checksum(self, position: int, size_bytes: int, update: Callable[[memoryview, int], int]) -> int:
        """Over any number of bytes, a window at a time."""
        value = 0
        while size_bytes > 0:
            piece = self.at(position, min(size_bytes, WINDOW_BYTES))
            if not piece:
                return -1
            value = update(piece, value)
            position += len(piece)
            size_bytes -= len(piece)
        return value

    def has_only_zeros(self, position: int) -> bool:
        while position < self.size_bytes:
            piece = self.at(position, WINDOW_BYTES)
            if not piece or any(piece):
                return False
            position += len(piece)
        return True


# Batch by batch ---------------------------------------------------------------------------------------------


def _items(window: _Window, base_offset: int) -> Iterator[Item]:
    position = 0
    while position < window.size_bytes:
        found = _judge(window, position)
        if isinstance(found, StoredBatch):
            yield found
            position = found.end_position
            continue
        following = _next_sound(window, position, base_offset)
        repair = _repaired(window, position, following)
        if repair is not None:
            yield repair
        elif following == window.size_bytes and window.has_only_zeros(position):
            yield Hole(position, following, "there are only zeros from here on")
        else:
            yield Hole(position, following, found)
        position = following


def _judge(window: _Window, position: int) -> StoredBatch | str:
    """The batch at `position`, or the fault."""
    left = window.size_bytes - position
    head = window.at(position, HEADER_SIZE_BYTES)
    if len(head) > MAGIC_POSITION and head[MAGIC_POSITION] < MAGIC_V2:
        return _judge_legacy(window, position, head)
    if len(head) < HEADER_SIZE_BYTES:
        return f"{left} bytes are too few for a batch"
    batch = StoredBatch(position, *HEADER.unpack(head))
    size_bytes = batch.size_bytes
    if batch.magic != MAGIC_V2:
        return f"a batch has the magic {batch.magic}"
    if size_bytes < HEADER_SIZE_BYTES:
        return f"a batch claims {size_bytes} bytes, fewer than its header has"
    if size_bytes > left:
        return f"a batch claims {size_bytes} bytes where {left} are left"
    computed = window.checksum(position + ATTRIBUTES_POSITION, size_bytes - ATTRIBUTES_POSITION, _crc32c)
    if computed != batch.crc:
        return f"the checksum of a batch is {batch.crc:#010x}, that of its bytes {computed:#010x}"
    if batch.last_offset_delta < 0 or not 0 <= batch.record_count <= batch.last_offset_delta + 1:
        claim = f"{batch.record_count} records and a last offset delta of {batch.last_offset_delta}"
        return f"a batch claims {claim}"
    return batch


def _judge_legacy(window: _Window, position: int, head: memoryview) -> StoredBatch | str:
    """A message of format v0 or v1 as if it were a batch of one record at its offset."""
    if len(head) < _LEGACY_HEAD.size + _LEGACY_TIMESTAMP.size:
        return f"{window.size_bytes - position} bytes are too few for a batch"
    offset, length, crc, magic, attributes = _LEGACY_HEAD.unpack_from(head)
    left = window.size_bytes - position - LOG_OVERHEAD_BYTES
    if magic < 0:
        return f"a batch has the magic {magic}"
    if not _LEGACY_BYTES_MIN[magic] <= length <= left:
        return f"a message of format v{magic} claims {length} bytes where {left} are left"
    timestamp = _LEGACY_TIMESTAMP.unpack_from(head, _LEGACY_HEAD.size)[0] if magic else -1
    computed = window.checksum(
        position + _LEGACY_CHECKED_FROM, length + LOG_OVERHEAD_BYTES - _LEGACY_CHECKED_FROM, zlib.crc32
    )
    if computed != crc:
        return f"the checksum of a message is {crc:#010x}, that of its bytes {computed:#010x}"
    flags = attributes & _LEGACY_ATTRIBUTES
    return StoredBatch(
        position, offset, length, -1, magic, crc, flags, 0, timestamp, timestamp, -1, -1, -1, 1
    )


def _next_sound(window: _Window, position: int, base_offset: int) -> int:
    """The position of the first sound batch after a damaged one, or the end of the file.

    First at the end by the damaged header: records may contain bytes that look like a batch.
    """
    head = window.at(position, HEADER_SIZE_BYTES)
    if len(head) < HEADER_SIZE_BYTES:
        return window.size_bytes
    end = StoredBatch(position, *HEADER.unpack(head)).end_position
    if position + HEADER_SIZE_BYTES <= end <= window.size_bytes and (
        end == window.size_bytes or isinstance(_judge(window, end), StoredBatch)
    ):
        return end
    start = position + 1
    while start + HEADER_SIZE_BYTES <= window.size_bytes:
        chunk = bytes(window.at(start, WINDOW_BYTES))
        found = _search(window, chunk, start, base_offset)
        if found is not None:
            return found
        start += max(len(chunk) - HEADER_SIZE_BYTES + 1, 1)
    return window.size_bytes


def _search(window: _Window, chunk: bytes, start: int, base_offset: int) -> int | None:
    """The position of the first sound batch in a part of the file."""
    inside = 0
    while (magic := chunk.find(_MAGIC_BYTE, inside + MAGIC_POSITION)) >= 0:
        inside = magic - MAGIC_POSITION
        if inside + HEADER_SIZE_BYTES > len(chunk):
            return None
        position = start + inside
        batch = StoredBatch(position, *HEADER.unpack_from(chunk, inside))
        if _is_plausible(batch, base_offset, window.size_bytes) and isinstance(
            _judge(window, position), StoredBatch
        ):
            return position
        inside += 1
    return None


def _is_plausible(batch: StoredBatch, base_offset: int, size_bytes: int) -> bool:
    """The checks before the checksum, which costs more."""
    return (
        batch.size_bytes >= HEADER_SIZE_BYTES
        and batch.end_position <= size_bytes
        and 0 <= batch.attributes <= _ATTRIBUTES_KNOWN
        and batch.attributes & _CODEC_MASK <= _CODEC_MAX
        and 0 <= batch.record_count <= batch.last_offset_delta + 1
        and 0 <= batch.base_offset - base_offset < _OFFSETS_IN_SEGMENT
    )


def _repaired(window: _Window, position: int, following: int) -> HeaderRepair | None:
    """The batch between two positions, if only its length or its magic is wrong."""
    if following - position < HEADER_SIZE_BYTES:
        return None
    batch = StoredBatch(position, *HEADER.unpack(window.at(position, HEADER_SIZE_BYTES)))
    right = batch._replace(length=following - position - LOG_OVERHEAD_BYTES, magic=MAGIC_V2)
    if right == batch or not 0 <= batch.record_count <= batch.last_offset_delta + 1:
        return None
    size_bytes = following - position - ATTRIBUTES_POSITION
    if window.checksum(position + ATTRIBUTES_POSITION, size_bytes, _crc32c) != batch.crc:
        return None
    if batch.magic != MAGIC_V2:
        return HeaderRepair(right, f"a batch has the magic {batch.magic} instead of {MAGIC_V2}")
    return HeaderRepair(right, f"a batch claims {batch.size_bytes} bytes instead of {right.size_bytes}")


# The order of offsets ---------------------------------------------------------------------------------------


def _in_order(items: Iterable[Item], base_offset: int, next_base_offset: int | None) -> Iterator[Item]:
    """The same items, with each batch out of order as a `HeaderRepair` or a `Hole`.

    Of two contradicting batches the one that leaves no offsets for the other is wrong.
    """
    limit = base_offset + _OFFSETS_IN_SEGMENT
    previous_end = base_offset
    hole: Hole | None = None
    held: StoredBatch | HeaderRepair | None = None
    for item in chain(items, (None,)):
        if held is not None:
            following = batch_of(item).base_offset if isinstance(item, StoredBatch | HeaderRepair) else None
            if item is None:
                following = next_base_offset
            resolved = _resolved(held, previous_end, following, limit, may_repair=hole is None)
            if isinstance(resolved, Hole):
                hole = resolved if hole is None else hole._replace(end_position=resolved.end_position)
            else:
                batch = batch_of(resolved)
                if hole is not None:
                    yield hole._replace(first_offset=previous_end, end_offset=batch.base_offset)
                    hole = None
                yield resolved
                previous_end = batch.last_offset + 1
            held = None
        if isinstance(item, Hole):
            hole = item if hole is None else hole._replace(end_position=item.end_position)
        else:
            held = item
    if hole is not None:
        end_offset = -1 if next_base_offset is None else next_base_offset
        yield hole._replace(first_offset=previous_end, end_offset=end_offset)


def _resolved(
    item: StoredBatch | HeaderRepair,
    previous_end: int,
    following: int | None,
    limit: int,
    *,
    may_repair: bool,
) -> StoredBatch | HeaderRepair | Hole:
    batch = batch_of(item)
    offset_count = batch.last_offset_delta + 1
    room = None if following is None else following - previous_end
    leaves_room = following is None or batch.last_offset < following
    if previous_end <= batch.base_offset < limit and (
        leaves_room or (room is not None and room < offset_count)
    ):
        return item
    what = f"a batch has the offset {batch.base_offset} where {previous_end} is due"
    if may_repair and batch.magic == MAGIC_V2 and (room is None or room == offset_count):
        return HeaderRepair(batch._replace(base_offset=previous_end), what)
    return Hole(batch.position, batch.end_position, what)


_MAGIC_V2 = 2


def begins_with_messages(disk: Disk, directory: str) -> bool:
    """Whether the oldest segment of a partition's directory begins with a message of format v0 or v1. Older
    formats come before newer ones in a log. Raises `OSError`.

    Such a log must be imported before a topic may use it: recovery would take its messages for damage and
    cut them.
    """
    bases = (offset for name in disk.list(directory) if (offset := base_offset_of(name, LOG)) is not None)
    first = min(bases, default=None)
    if first is None:
        return False
    file = disk.open(f"{directory}/{first:020d}{LOG}")
    try:
        if file.read(MAGIC_POSITION, 1) not in (b"\0", b"\1"):
            return False
        # A batch may have a flipped bit, and unwritten bytes are zeros.
        item = next(walk(file.read, file.size(), first))
        return isinstance(item, StoredBatch) and item.magic < _MAGIC_V2
    finally:
        file.close()
