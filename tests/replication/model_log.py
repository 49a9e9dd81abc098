"""A replica's log in memory, with batches that say who they are, epochs, and a flush that a crash undoes."""

from bisect import bisect_right
from typing import NamedTuple

from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.wire.record_layout import HEADER, HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES
from odradek.wire.records import iter_whole_batches

NO_RECORDS = b""


class Batch(NamedTuple):
    """`value` is another in each batch that is ever appended by a leader."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    value: int

    def encode(self) -> bytes:
        count = self.last_offset - self.base_offset + 1
        return HEADER.pack(
            self.base_offset,
            HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES,
            self.leader_epoch,
            2,
            0,
            0,
            count - 1,
            self.value,
            0,
            -1,
            -1,
            -1,
            count,
        )


def decode(records) -> list[Batch]:
    return [
        Batch(header.base_offset, header.last_offset, header.leader_epoch, header.base_timestamp)
        for _, header in iter_whole_batches(records)
    ]


class ModelLog:
    """Satisfies `ReplicaLog`."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.batches: list[Batch] = []
        self.epochs = LeaderEpochs()
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.flushed_offset = 0
        """A crash leaves what is before it."""
        self.checkpoint = 0
        """The high watermark on the disk."""

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, batch: Batch) -> None:
        assert batch.base_offset >= self.log_end_offset, (batch, self.log_end_offset)
        self.bases.append(batch.base_offset)
        self.batches.append(batch)
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.log_end_offset = batch.last_offset + 1

    def append_new(self, leader_epoch: int, value: int, count: int = 1) -> Batch:
        start = self.log_end_offset
        batch = Batch(start, start + count - 1, leader_epoch, value)
        self.append(batch)
        return batch

    def place_of(self, offset: int) -> int:
        """Of the batch that holds it, or of the next one."""
        place = bisect_right(self.bases, offset) - 1
        if place >= 0 and self.batches[place].last_offset >= offset:
            return place
        return place + 1

    def between(self, offset: int, end_offset: int) -> list[Batch]:
        """Batches from the one that holds `offset` on, all of it before `end_offset`."""
        found = []
        for batch in self.batches[self.place_of(offset) :]:
            if batch.last_offset >= end_offset:
                break
            found.append(batch)
        return found

    def batch_at(self, offset: int) -> Batch | None:
        place = self.place_of(offset)
        if place < len(self.batches) and self.batches[place].base_offset <= offset:
            return self.batches[place]
        return None

    def content_from(self, offset: int) -> tuple[list[Batch], list[tuple[int, int]]]:
        """Batches, and epochs with their starts."""
        epochs = LeaderEpochs(self.epochs.entries())
        epochs.truncate_start(offset)
        return self.batches[self.place_of(offset) :], epochs.entries()

    def truncate(self, offset: int) -> None:
        """By whole batches, as the storage does."""
        if offset < self.log_end_offset:
            place = self.place_of(offset)
            if place < len(self.batches):
                self.log_end_offset = min(offset, self.batches[place].base_offset)
            else:
                self.log_end_offset = offset
            del self.batches[place:], self.bases[place:]
        self._lower_to_end()

    def _lower_to_end(self) -> None:
        end = self.log_end_offset
        self.epochs.truncate_end(end)
        self.high_watermark = min(self.high_watermark, end)
        self.checkpoint = min(self.checkpoint, end)
        self.flushed_offset = min(self.flushed_offset, end)
        self.log_start_offset = min(self.log_start_offset, end)

    def begin_anew(self, offset: int) -> None:
        self.bases, self.batches = [], []
        self.epochs = LeaderEpochs()
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset
        self.flushed_offset = self.checkpoint = offset

    def raise_start(self, offset: int) -> None:
        """Kept from the batch on that holds the offset."""
        assert offset <= self.high_watermark
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            place = self.place_of(offset)
            del self.batches[:place], self.bases[:place]
            self.epochs.truncate_start(offset)

    def flush(self) -> None:
        self.flushed_offset = self.log_end_offset

    def lose(self, offset: int) -> None:
        """A crash: what is at `offset` and after it is gone, as it was not flushed. Then a start."""
        assert offset >= self.flushed_offset
        checkpoint = self.checkpoint
        self.truncate(offset)
        self.high_watermark = min(max(checkpoint, self.log_start_offset), self.log_end_offset)
