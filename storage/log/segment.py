"""One segment: a `.log` file of whole batches, its indexes, and its numbers.

A `Segment` holds its parts, which share its `SegmentExtent` (numbers that a commit changes):
- `paths` (`segment_paths.py`): the names of its files; renaming, removing, syncing by name.
- `file` (`segment_file.py`): the log file while it is open.
- `indexes` (`segment_indexes.py`): the offset index and the time index.
- `transactions`: the transaction index, which exists if a transaction was aborted. It is not a cache like the
  others: it is written with the batches.
- `inherited`: the check of batches of an earlier run before they are read.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from odradek.storage._reading import hop
from odradek.storage.log._staging import SegmentExtent, Stretch
from odradek.storage.log.batches import EXTENT, StoredBatch, scan
from odradek.storage.log.indexes import TIME_ENTRY_BYTES
from odradek.storage.log.segment_file import FilePool, SegmentFile
from odradek.storage.log.segment_indexes import SegmentIndexes
from odradek.storage.log.segment_paths import (
    ALL_KINDS,
    INDEX_KINDS,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    SegmentPaths,
)
from odradek.storage.log.slices import WouldWait
from odradek.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import LOG_OVERHEAD_BYTES

RELATIVE_OFFSET_MAX = 2**31 - 1
_SEEK_WINDOW_BYTES = 8192
"""Twice the default index.interval.bytes: one read finds most batches."""
_LOADS_MAX = 4
_LOADED_AHEAD_BYTES = 1_048_576
_STRETCHES_MAX = 16
"""The number of checked ranges that are kept, one for each reader of a segment."""


class Segment:
    """See the module. `created_ms` is for rolling by time. Methods that read a file raise `OSError`."""

    __slots__ = (
        "base_offset",
        "created_ms",
        "extent",
        "file",
        "indexes",
        "inherited",
        "paths",
        "transactions",
    )

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        base_offset: int,
        size_bytes: int,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.extent = SegmentExtent(base_offset, size_bytes)
        self.paths = SegmentPaths(pool.disk, directory, base_offset, suffix)
        self.file = SegmentFile(pool, self.paths, self.extent)
        self.indexes = SegmentIndexes(self.paths, self.extent, self.file)
        self.transactions = SegmentTransactions(self.paths, self.file)
        self.inherited = InheritedBatches(self.extent, self.file, self.indexes)

    @classmethod
    def create(
        cls,
        pool: FilePool,
        directory: str,
        base_offset: int,
        created_ms: int,
        suffix: str = "",
        *,
        directory_is_empty: bool = False,
    ) -> "Segment":
        """An empty segment with its log file. Files of these names from a crash are removed. Index files are
        made with their first entries.
        """
        segment = cls(pool, directory, base_offset, 0, created_ms, suffix)
        segment.indexes.reset()
        segment.transactions.is_there = False
        if not directory_is_empty:
            for kind in INDEX_KINDS:
                pool.disk.remove(segment.paths.path(kind))
        segment.file.create(directory_is_empty=directory_is_empty)
        return segment

    @property
    def size_bytes(self) -> int:
        """The size of the committed batches."""
        return self.extent.size_bytes

    def use_pool(self, pool: FilePool) -> None:
        """Open the files in another pool from now on."""
        self.file.close()
        self.file.pool = pool
        self.paths.disk = pool.disk

    # Files

    def change_suffix(self, suffix: str) -> None:
        """Close and rename the files. `FileNotFoundError` if there is no log file."""
        self.file.close()
        self.paths.change_suffix(suffix)

    def remove(self) -> None:
        """Close and remove the files; existing views stay valid."""
        self.file.close()
        self.paths.remove()

    def save_indexes(self, *, sync: bool = False) -> None:
        """Write the new entries of all three indexes; with `sync` durably."""
        self.indexes.save(sync=sync)
        if sync and self.transactions.has_aborted():
            self.paths.sync(TRANSACTION_INDEX)

    def sync_indexes(self) -> None:
        """Make the index files of a sealed segment survive a loss of power. May run in a worker thread."""
        # An index that is not in memory was saved before the pool dropped it.
        self.indexes.save()
        self.paths.sync_index_files()

    def preload_for_retention(self) -> None:
        """Load into the system's memory what retention reads of this segment, and its directory for the
        renames. May run in a worker thread.
        """
        disk = self.paths.disk
        try:
            for kind in ALL_KINDS:
                self.paths.exists(kind)
            file = disk.open(self.paths.path(TIME_INDEX))
            try:
                file.read(max(file.size() - TIME_ENTRY_BYTES, 0), TIME_ENTRY_BYTES)
            finally:
                file.close()
        except OSError:
            # The later read meets the same error.
            pass

    def retention_timestamp_ms(self) -> int:
        """The timestamp for retention by time: the latest timestamp, or without timestamps the time of the
        last write."""
        latest, _ = self.indexes.latest_timestamp()
        return latest if latest >= 0 else self.paths.modified_ms()

    # Batches

    def batches(
        self, position: int = 0, end: int | None = None, window_bytes: int = 65_536
    ) -> Iterator[StoredBatch]:
        """The committed batches from a batch's position on."""
        return scan(
            self.file.read, position, self.size_bytes if end is None else end, window_bytes=window_bytes
        )

    def stepping(self, position: int) -> Iterator[StoredBatch | Callable[[], None]]:
        """The committed batches from a batch's position on, and between them functions for a worker thread:
        after the call of such a function the next batch is read without waiting for the disk.
        """
        loads = 0
        while True:
            try:
                # If loaded bytes leave memory at once again, the read waits for the disk.
                read = self.file.read_promptly if loads < _LOADS_MAX else self.file.read
                for batch in scan(read, position, self.size_bytes):
                    yield batch
                    loads, position = 0, batch.end_position
                return
            except WouldWait as miss:
                loads += 1
                yield partial(miss.load, _LOADED_AHEAD_BYTES)

    def find(self, offset: int, prompt: bool = False) -> tuple[int, int] | None:
        """Position and size of the first batch whose last offset is not before `offset`; None if the segment
        ends before.

        `prompt`: `WouldWait` instead of waiting for the disk.
        """
        position = self.indexes.lookup(offset, prompt)
        extent = self.extent
        end = sound_until = extent.size_bytes
        if position < extent.inherited_bytes:
            sound_until = self.inherited.sound_until(position, position + _SEEK_WINDOW_BYTES, prompt)
        window = b""
        start = position
        while position < end:
            if position >= sound_until:
                sound_until = self.inherited.sound_until(position, position + _SEEK_WINDOW_BYTES, prompt)
                if position >= sound_until:
                    raise self._damaged(position)
            if position - start + EXTENT.size > len(window):
                window = self._seek_window(position, prompt)
                start = position
            place, size_bytes = hop(window, position - start, sound_until - start, offset)
            position = start + place
            if size_bytes > 0:
                return position, size_bytes
            if size_bytes < 0:
                raise self._damaged(position)
        return None

    def _seek_window(self, position: int, prompt: bool) -> bytes:
        read = self.file.read_promptly if prompt else self.file.read
        window = read(position, min(_SEEK_WINDOW_BYTES, self.extent.size_bytes - position))
        if len(window) < EXTENT.size:
            raise self._damaged(position)
        return window

    def batch_bytes(self, position: int, prompt: bool = False) -> int:
        """The size of the batch at `position`."""
        head = (self.file.read_promptly if prompt else self.file.read)(position, EXTENT.size)
        if len(head) < EXTENT.size:
            raise self._damaged(position)
        length = EXTENT.unpack(head)[1]
        if length <= 0:
            raise self._damaged(position)
        return int(length) + LOG_OVERHEAD_BYTES

    def _damaged(self, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{self.paths.path(LOG)} is damaged at position {position}."
        )


class SegmentTransactions:
    """The transaction index of a segment: which transactions ended there with an abort.

    An entry is written first: `write`, then `commit`, or `truncate` to undo it.
    """

    __slots__ = ("file", "is_there", "paths")

    def __init__(self, paths: SegmentPaths, file: SegmentFile) -> None:
        self.paths = paths
        self.file = file
        self.is_there: bool | None = None
        """Whether the file exists; None if not checked yet."""

    def has_aborted(self) -> bool:
        """Whether a transaction was aborted in this segment."""
        if self.is_there is None:
            self.is_there = self.paths.exists(TRANSACTION_INDEX)
        return self.is_there

    @property
    def index(self) -> TransactionIndex:
        """Refuses with KAFKA_STORAGE_ERROR if the file is damaged; raises `OSError`."""
        loaded = self.file.loaded
        if loaded.aborted is None:
            if self.has_aborted():
                loaded.aborted = TransactionIndex.load(self.paths.disk, self.paths.path(TRANSACTION_INDEX))
            else:
                loaded.aborted = TransactionIndex()
        return loaded.aborted

    def write(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Write entries to the file. Raises `OSError`."""
        try:
            index = self.index
        except KafkaError as error:
            raise OSError(errno.EIO, error.message) from error
        index.write(self.paths.disk, self.paths.path(TRANSACTION_INDEX), transactions)

    def commit(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Add the entries that `write` wrote."""
        index = self.file.loaded.aborted
        assert index is not None
        index.take(transactions)
        self.is_there = True

    def truncate(self) -> None:
        """Cut uncommitted entries from the file. Raises `OSError`."""
        index = self.file.loaded.aborted
        if index is not None and index.is_torn:
            index.cut(self.paths.disk, self.paths.path(TRANSACTION_INDEX))


class InheritedBatches:
    """The batches of an earlier run in a segment, and the ranges of them that are checked.

    Each range is checked once. Batches of this process are not checked.
    """

    __slots__ = ("_limit_offset", "_stretches", "extent", "file", "indexes")

    def __init__(self, extent: SegmentExtent, file: SegmentFile, indexes: SegmentIndexes) -> None:
        self.extent = extent
        self.file = file
        self.indexes = indexes
        self._limit_offset = 0
        self._stretches: list[Stretch] = []

    def begin(self, limit_offset: int) -> None:
        """Mark all current batches as inherited; their offsets are below `limit_offset`."""
        self.extent.inherited_bytes = self.extent.size_bytes
        self._limit_offset = limit_offset

    def sound_until(self, position: int, end: int, prompt: bool = False) -> int:
        """The position up to which the batches from `position` on (the begin of a batch) are sound.

        It is `end` or later, or the position of a damaged batch, or the end of one step of the check. Some
        fields are outside of a batch's checksum; a change in them would give its records other offsets. So
        they are compared with the index and the neighbours; see `Stretch.extend`.
        """
        stretch = next((one for one in self._stretches if one.start <= position <= one.end), None)
        if stretch is None:
            if prompt:
                self.indexes.load_promptly()
            stretch = Stretch(position, position, self.indexes.offset_before(position) + 1)
            self._stretches = [*self._stretches[1 - _STRETCHES_MAX :], stretch]
        inherited_bytes = self.extent.inherited_bytes
        if stretch.end < min(end, inherited_bytes):
            read = self.file.read_promptly if prompt else self.file.open().read
            stretch.extend(read, min(end, inherited_bytes), inherited_bytes, self._limit_offset)
            self._stretches = [
                one
                for one in self._stretches
                if one is stretch or not stretch.start <= one.start <= one.end <= stretch.end
            ]
        return stretch.end if stretch.end < inherited_bytes else self.extent.size_bytes


def segment_holding(bases: list[int], offset: int) -> int:
    """The place of the segment for `offset`; -1 if it is before the first."""
    return bisect_right(bases, offset) - 1
