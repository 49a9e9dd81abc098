"""What the `Stretch` of `odradek.storage.log._staging` has to take of a segment, in plain Python."""

import struct
from collections.abc import Callable

from odradek.wire.checksums import crc32c
from odradek.wire.record_layout import ATTRIBUTES_POSITION, HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES

_ORDER = struct.Struct(">qiibI2xi30xi").unpack_from
"""Base offset, length, leader epoch, magic, checksum, last offset delta, record count."""
_SMALL_BATCH_BYTES = 4096
_WINDOW_BYTES = 16_384
"""After a small batch so much is read at once; after a larger one the next header alone."""
BATCHES_PER_LOOK = 1000
BYTES_PER_LOOK = 1 << 20
"""Of what is read in a look."""
READ_COST_BYTES = 4096
"""What a read costs beside its bytes."""


class Stretch:
    """Whole batches that follow each other, as far as that has been looked at.

    `next_offset` is the least offset that the batch at `end` may have; `leader_epoch` that of the one before
    it, None when it is not known.
    """

    __slots__ = ("end", "leader_epoch", "next_offset", "start")

    def __init__(self, start: int, end: int, next_offset: int, leader_epoch: int | None = None) -> None:
        self.start = start
        self.end = end
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch

    def extend(
        self, read: Callable[[int, int], bytes], until: int, size_bytes: int, limit_offset: int
    ) -> None:
        """Look on until `end` is not before `until`, or in front of a batch that is damaged. Others wait, so
        it may end sooner, but not where it began.

        This is about what the checksum leaves out: base offset, length, leader epoch, magic. A batch is taken
        when the one after it is in its place, too: offsets ascend (in the last one to less than
        `limit_offset`), and where some are missing, as in a compacted log, the batch in front of them has the
        right checksum. One whose base offset has grown is found by the next one, which is then too early.
        """
        begin = position = self.end
        next_offset, leader_epoch, crc = self.next_offset, self.leader_epoch, 0
        window, start, window_bytes = b"", 0, _WINDOW_BYTES
        spent_bytes = 0
        for _ in range(BATCHES_PER_LOOK):
            if self.end >= until or (spent_bytes >= BYTES_PER_LOOK and self.end > begin):
                return
            inside = position - start
            if position < size_bytes and inside + HEADER_SIZE_BYTES > len(window):
                window, start, inside = read(position, min(window_bytes, size_bytes - position)), position, 0
                spent_bytes += READ_COST_BYTES + len(window)
                if len(window) < HEADER_SIZE_BYTES:
                    return
            if position < size_bytes:
                header = _ORDER(window, inside)
            else:
                header = (limit_offset, 0, leader_epoch, 0, 0, 0, 0)
            base_offset, length, epoch, magic, next_crc, last_offset_delta, record_count = header
            if position > self.end:
                # Between the two is a batch that waits for what follows it.
                if base_offset < next_offset or not _is_between(self.leader_epoch, leader_epoch, epoch):
                    return
                if base_offset > next_offset:
                    spent_bytes += READ_COST_BYTES + position - self.end
                    if not _has_crc(read, self.end, position, crc):
                        return
                self.end, self.next_offset, self.leader_epoch = position, next_offset, leader_epoch
            if (
                position >= size_bytes
                or magic != 2
                or base_offset < next_offset
                or not 0 <= record_count <= last_offset_delta + 1
                or length < HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES
                or position + length + LOG_OVERHEAD_BYTES > size_bytes
                or base_offset + last_offset_delta >= limit_offset
            ):
                return
            next_offset, leader_epoch, crc = base_offset + last_offset_delta + 1, epoch, next_crc
            position += length + LOG_OVERHEAD_BYTES
            window_bytes = _WINDOW_BYTES if length < _SMALL_BATCH_BYTES else HEADER_SIZE_BYTES


def _has_crc(read: Callable[[int, int], bytes], position: int, end: int, crc: int) -> bool:
    content = read(position, end - position)
    return len(content) == end - position and crc32c(memoryview(content)[ATTRIBUTES_POSITION:]) == crc


def _is_between(before: int | None, epoch: int | None, after: int | None) -> bool:
    """False for an epoch that leaves those of its neighbours, and comes back to them at once."""
    if before is None or epoch is None or after is None or before > after:
        return True
    return before <= epoch <= after
