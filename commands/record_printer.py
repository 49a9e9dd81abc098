"""Where `odradek consume` prints: records as lines, flushed response by response."""

import io
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO

from odradek.client.cluster import TopicPartition
from odradek.client.reading import PartitionRecords
from odradek.client.stored_records import StoredBatch, batches_of
from odradek.wire.record_layout import Record

Lines = Callable[[str, int, StoredBatch], list[bytes]]
Test = Callable[[Record], object]


class RecordPrinter:
    """Writes records, as many as are wanted."""

    def __init__(
        self, lines: Lines, tests: Sequence[Test], count: int | None, *, control: bool, unbuffered: bool
    ) -> None:
        self._lines, self._tests, self._control, self._unbuffered = lines, tests, control, unbuffered
        self._left = count
        self._out = _buffered(sys.stdout.buffer)
        self.seen = self.printed = self.seen_bytes = 0
        self.positions: dict[TopicPartition, int] = {}
        """The offset after the last record that was written out, or that was searched in vain. After an
        interrupt more may be written than is said here, never less."""

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def take(self, fetched: PartitionRecords) -> None:
        """Prints what came of one partition, and flushes it."""
        key = fetched.topic, fetched.partition
        position = self.positions.get(key, 0)
        self.seen_bytes += len(fetched.buffer)
        for batch in batches_of(fetched, control=self._control):
            position = self._print(fetched, batch) + 1
            if self._left == 0:
                break
        else:
            position = max(position, _end_of(fetched))
        self._out.flush()
        self.positions[key] = position

    def _print(self, fetched: PartitionRecords, batch: StoredBatch) -> int:
        """Returns the last offset that was looked at."""
        records = batch.records
        last, seen = records[-1].offset, len(records)
        if self._tests:
            records = [one for one in records if all(test(one) for test in self._tests)]
        if self._left is not None:
            if len(records) >= self._left:
                records = records[: self._left]
                last = records[-1].offset
                seen = sum(one.offset <= last for one in batch.records)
            self._left -= len(records)
        self.seen += seen
        self.printed += len(records)
        if records:
            self._write(self._lines(fetched.topic, fetched.partition, batch._replace(records=records)))
        return last

    def _write(self, lines: list[bytes]) -> None:
        if not self._unbuffered:
            self._out.write(b"".join(lines))
            return
        for line in lines:
            self._out.write(line)
            self._out.flush()


def _buffered(out: BinaryIO) -> BinaryIO:
    """With PYTHONUNBUFFERED, which images of containers often set, stdout is a file whose `write` may write
    less than it is given."""
    return open(out.fileno(), "wb", closefd=False) if isinstance(out, io.RawIOBase) else out


def _end_of(fetched: PartitionRecords) -> int:
    return fetched.next_offset if fetched.end is None else min(fetched.next_offset, fetched.end)
