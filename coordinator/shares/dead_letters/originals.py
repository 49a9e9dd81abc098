"""Keys and values of the records that a dead letter queue gets copies of, out of the bytes of a log.

Source: ShareGroupDLQRecordFetcher of Kafka 4.4. Other than there the content of a control record is no
original, and a batch that cannot be read is passed over instead of ending the copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.wire.errors import KafkaError
from odradek.wire.record_layout import COMPRESSION_MASK
from odradek.wire.records import iter_records, iter_whole_batches

if TYPE_CHECKING:
    from odradek.coordinator.shares.dead_letters.letters import Original
    from odradek.wire._records import BatchHeader


class Originals:
    """Originals of the offsets `first` to `last`, with at most `bytes_max` in keys and values."""

    __slots__ = ("_bytes_max", "_last", "_size_bytes", "found", "is_full", "next_offset")

    def __init__(self, first: int, last: int, bytes_max: int) -> None:
        self._last = last
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self.found: dict[int, Original] = {}
        """By offset. Offsets without one before `next_offset` have none."""
        self.next_offset = first
        """Where the log is to be read."""
        self.is_full = False
        """There is no room for the record at `next_offset`, which is to be copied later."""

    @property
    def is_complete(self) -> bool:
        return self.is_full or self.next_offset > self._last

    def skip_to(self, offset: int) -> None:
        """The log has nothing before an offset."""
        self.next_offset = min(max(self.next_offset, offset), self._last + 1)

    def take(self, records: bytes) -> bool:
        """Takes the whole batches that were read from `next_offset` on; False if there was none."""
        before = self.next_offset
        for position, header in iter_whole_batches(records):
            if header.base_offset > self._last:
                self.skip_to(header.base_offset)
                break
            self._take_batch(memoryview(records)[position:], header)
            if self.is_complete:
                break
        return self.is_full or self.next_offset > before

    def _take_batch(self, batch: memoryview, header: BatchHeader) -> None:
        if not header.is_control:
            is_compressed = header.attributes & COMPRESSION_MASK
            limit_bytes = self._bytes_max if is_compressed else len(batch)
            try:
                for offset, _, key, value, _ in iter_records(batch, header, limit_bytes=limit_bytes):
                    if self.next_offset <= offset <= self._last and not self._add(offset, key, value):
                        return
            except KafkaError:
                # Damaged, or never to fit.
                pass
        self.skip_to(header.last_offset + 1)

    def _add(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        """False if the record has to wait."""
        size_bytes = len(key or b"") + len(value or b"")
        if size_bytes <= self._bytes_max:
            if self._size_bytes + size_bytes > self._bytes_max:
                self.is_full = True
                return False
            self.found[offset] = key, value
            self._size_bytes += size_bytes
        self.next_offset = offset + 1
        return True
