"""Walking the record batches of a segment by their headers, without reading records.

For their layout see `wire/record_layout.py`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek.wire.checksums import crc32c
from odradek.wire.record_layout import (
    ATTRIBUTES_POSITION,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    PREFIX,
    SEQUENCE_MAX,
    TRANSACTIONAL,
)
from odradek.wire.record_layout import (
    EXTENT as EXTENT,
)
from odradek.wire.record_layout import (
    LOG_APPEND_TIME as LOG_APPEND_TIME,
)

PREFIX_BYTES = PREFIX.size

BatchMemory = tuple[int, int, int, int, int]
"""The entry of a producer's batch: first sequence, last sequence, first offset, last offset, timestamp."""


class StoredBatch(NamedTuple):
    """A batch of a segment file: its position there and its header."""

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def end_position(self) -> int:
        return self.position + self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return last_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which on tombstones may be removed (KIP-534), in the field of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """Sequence numbers continue with 0 after 2^31-1; -1 stays -1."""
    if base_sequence < 0:
        return base_sequence
    last = base_sequence + last_offset_delta
    return last if last <= SEQUENCE_MAX else last - SEQUENCE_MAX - 1


def scan(
    read: Callable[[int, int], bytes],
    position: int,
    end: int,
    *,
    window_bytes: int = 65_536,
    verify: bool = False,
) -> Iterator[StoredBatch]:
    """The batches between two positions, up to the first that is not sound.

    `read(position, size)` returns bytes of the file. Without `verify` only headers are read and only sizes
    are checked; with it, checksums and the order of offsets too. The last `end_position` shows whether the
    walk reached `end`.
    """
    window = b""
    window_start = position
    least_offset = -1
    while position + HEADER_SIZE_BYTES <= end:
        inside = position - window_start
        if not 0 <= inside <= len(window) - HEADER_SIZE_BYTES:
            window = read(position, min(window_bytes, end - position))
            window_start, inside = position, 0
            if len(window) < HEADER_SIZE_BYTES:
                return
        batch = StoredBatch(position, *HEADER.unpack_from(window, inside))
        size_bytes = batch.length + LOG_OVERHEAD_BYTES
        if size_bytes < HEADER_SIZE_BYTES or position + size_bytes > end:
            return
        if verify:
            if len(window) - inside < size_bytes:
                window = read(position, max(size_bytes, min(window_bytes, end - position)))
                window_start, inside = position, 0
                if len(window) < size_bytes:
                    return
            if batch.base_offset < least_offset or not _is_sound(batch, window, inside):
                return
            least_offset = batch.base_offset + batch.last_offset_delta + 1
        yield batch
        position += size_bytes


def _is_sound(batch: StoredBatch, window: bytes, inside: int) -> bool:
    if batch.magic != 2 or batch.last_offset_delta < 0 or batch.base_offset < 0:
        return False
    covered = memoryview(window)[inside + ATTRIBUTES_POSITION : inside + batch.length + LOG_OVERHEAD_BYTES]
    return crc32c(covered) == batch.crc
