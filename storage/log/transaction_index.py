"""The `.txnindex` file of a segment: the transactions that were aborted in it.

Format as in `TransactionIndex.java` and `AbortedTxn.java`: entries of version int16 (0), producer id, first
offset, last offset (the marker's) and the last stable offset after it, int64 each, in the order of their
markers. The file exists only if it has an entry.
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.storage.disk import Disk, read_file, write_all
from odradek.wire.errors import ErrorCode, KafkaError

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """An entry, without its version."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """The entries of a file; refuses damaged content with KAFKA_STORAGE_ERROR."""
    if len(data) % ENTRY.size:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "A transaction index ends within an entry.")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != VERSION or not 0 <= entry.first_offset <= entry.last_offset:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"A transaction index has an invalid entry: {entry}.",
            )
        entries.append(entry)
    return entries


class TransactionIndex:
    """The entries of a segment's file, in columns. Markers ascend, and so do the last stable offsets after
    them.
    """

    __slots__ = ("_first_offsets", "_last_offsets", "_last_stable_offsets", "_producer_ids", "is_torn")

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._last_stable_offsets = array("q")
        self.is_torn = False
        """Whether the file may have entries of an unfinished commit."""
        self.take(transactions)

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        columns = (self._producer_ids, self._first_offsets, self._last_offsets, self._last_stable_offsets)
        return map(AbortedTransaction, *columns)

    @classmethod
    def load(cls, disk: Disk, path: str, count: int | None = None) -> "TransactionIndex":
        """From a file, or its first `count` entries. Refuses a damaged file with KAFKA_STORAGE_ERROR; raises
        `OSError`.
        """
        content = read_file(disk, path)
        if count is not None:
            content = content[: count * ENTRY.size]
        index = cls(decode_aborted(content))
        if count not in (None, len(index)):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has fewer than {count} entries.")
        if not _ascends(index._last_offsets):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The markers in {path} are not in order.")
        return index

    def count_before(self, offset: int) -> int:
        """The number of markers before an offset."""
        return bisect_left(self._last_offsets, offset)

    def is_within(self, base_offset: int, end_offset: int) -> bool:
        """Whether all markers are between two offsets, as in a segment."""
        last_offsets = self._last_offsets
        return not last_offsets or (base_offset <= last_offsets[0] and last_offsets[-1] < end_offset)

    def write(self, disk: Disk, path: str, transactions: Sequence[AbortedTransaction]) -> None:
        """Append entries to the file; `take` adds them after the commit. Raises `OSError`."""
        self.is_torn = True
        content = encode_aborted(transactions)
        file = disk.open(path, create=True)
        try:
            write_all(file, len(self) * ENTRY.size, [content], len(content))
        finally:
            file.close()

    def take(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add entries that were written."""
        for producer_id, first_offset, last_offset, last_stable_offset in transactions:
            self._producer_ids.append(producer_id)
            self._first_offsets.append(first_offset)
            self._last_offsets.append(last_offset)
            self._last_stable_offsets.append(last_stable_offset)
        self.is_torn = False

    def cut(self, disk: Disk, path: str) -> None:
        """Cut the file to the known entries. Raises `OSError`."""
        if not len(self):
            disk.remove(path)
        elif disk.exists(path):
            file = disk.open(path)
            try:
                file.truncate(len(self) * ENTRY.size)
            finally:
                file.close()
        self.is_torn = False

    def find(self, offset: int, end_offset: int) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of the transactions with offsets from `offset` to `end_offset`, and
        whether later segments cannot have more of them. As `TransactionIndex.collectAbortedTxns`.
        """
        found: list[tuple[int, int]] = []
        for place in range(bisect_left(self._last_offsets, offset), len(self)):
            if self._first_offsets[place] < end_offset:
                found.append((self._producer_ids[place], self._first_offsets[place]))
            if self._last_stable_offsets[place] >= end_offset:
                return found, True
        return found, False


def _ascends(values: "array[int]") -> bool:
    return all(map(int.__lt__, values[:-1], values[1:]))
