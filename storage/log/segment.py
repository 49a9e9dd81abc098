"""One segment: a `.log` file of whole batches, its indexes, and what is known of it without reading it.

The transaction index is there where a transaction was aborted, and is not a cache like the others: it is
written with the batches.

A segment is opened when it is needed and may be closed at any time by the `FilePool`, which bounds how
many files are open. Slices that were handed out go on working: they hold the segment, which opens its
file again, or a view of its mapping. `size_bytes` counts what is committed; a file may be longer for a
moment while a commit is under way.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from odradek.storage._reading import hop
from odradek.storage.disk import Buffer, Disk, File, read_file, sync_file
from odradek.storage.log._staging import SegmentExtent, Stretch
from odradek.storage.log.batches import EXTENT, LOG_OVERHEAD_BYTES, StoredBatch, scan
from odradek.storage.log.indexes import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    DamagedIndex,
    OffsetIndex,
    TimeIndex,
)
from odradek.storage.log.slices import WouldWait
from odradek.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from odradek.wire.errors import ErrorCode, KafkaError

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
_ALL_KINDS = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
SYNC_FAILED = "sync-failed"
"""A file in a partition's directory: the kernel takes pages for clean that the disk may not have."""

RELATIVE_OFFSET_MAX = 2**31 - 1
_SEEK_WINDOW_BYTES = 8192
"""Twice the default index.interval.bytes: one read finds most batches."""
MAP_INDEXES_FROM_BYTES = 4096
"""Below this reading an index costs less than mapping it, and it takes little memory."""
_LOOKS_MAX = 4
_LOADED_AHEAD_BYTES = 1_048_576
_STRETCHES_MAX = 16
"""As many readers of one segment do not forget what another has looked at."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


class FilePool:
    """Bounds the open segment files; the least recently opened that was not used since is closed first."""

    __slots__ = ("_open", "disk", "open_max")

    def __init__(self, disk: Disk, open_max: int = 1024) -> None:
        self.disk = disk
        self.open_max = open_max
        self._open: dict[Segment, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, segment: "Segment") -> None:
        """`segment` has just opened its file."""
        self._open[segment] = None
        if len(self._open) > self.open_max:
            self._evict(segment)

    def forget(self, segment: "Segment") -> None:
        self._open.pop(segment, None)

    def _evict(self, newcomer: "Segment") -> None:
        for _ in range(2 * len(self._open)):
            oldest = next(iter(self._open))
            # A worker that removes files may have been faster.
            self._open.pop(oldest, None)
            if oldest.used or oldest is newcomer:
                oldest.used = False
                self._open[oldest] = None
            elif oldest.release():
                return
            else:
                self._open[oldest] = None


class Segment(SegmentExtent):
    """See the module. `created_ms` and `first_timestamp_ms` are for rolling by time."""

    __slots__ = (
        "_aborted",
        "_file",
        "_has_looked_at_indexes",
        "_limit_offset",
        "_mapped",
        "_next_path",
        "_offset_index",
        "_stretches",
        "_time_index",
        "created_ms",
        "deleted",
        "directory",
        "has_aborted",
        "inherited_bytes",
        "is_reserved",
        "pins",
        "pool",
        "suffix",
        "used",
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
        self.pool = pool
        self.directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.suffix = suffix
        self.first_timestamp_ms = None
        # None: not looked up yet. (-1, base offset) when no batch has a timestamp.
        self.max_timestamp_ms = None
        self.max_timestamp_offset = base_offset
        self.bytes_since_index = 0
        # Up to here the file is from an earlier run; see `check`.
        self.inherited_bytes = 0
        self._limit_offset = 0
        self._stretches: list[Stretch] = []
        self.used = False
        self.deleted = False
        self.is_reserved = False
        self.pins: list[None] = []
        self._file: File | None = None
        self._next_path = ""
        """Of the log file, while it is renamed."""
        self._has_looked_at_indexes = False
        self._mapped = memoryview(b"")
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: TransactionIndex | None = None
        # Whether there is a transaction index; None where nobody has looked.
        self.has_aborted: bool | None = None

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
        """An empty segment with its files; what a crash left under these names is gone."""
        segment = cls(pool, directory, base_offset, 0, created_ms, suffix)
        segment._offset_index = OffsetIndex(base_offset)
        segment._time_index = TimeIndex(base_offset)
        segment.max_timestamp_ms = -1
        segment.has_aborted = False
        disk = pool.disk
        if not directory_is_empty:
            for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
                disk.remove(segment.path(kind))
        file = disk.open(segment.path(LOG), create=True)
        segment._file = file
        try:
            # The index files come when there is something in them.
            if not directory_is_empty and file.size():
                file.truncate(0)
        except OSError:
            segment._file = None
            file.close()
            raise
        pool.admit(segment)
        return segment

    def reserve(self, size_bytes: int) -> None:
        """Set room aside on the disk until it is sealed. A wish: where that cannot be, the file grows as it
        is written.
        """
        self.is_reserved = True
        try:
            self.file().reserve(size_bytes)
        except OSError:
            pass

    def give_back(self) -> None:
        """The room that was set aside and is not needed."""
        if not self.is_reserved:
            return
        try:
            self.file().truncate(self.size_bytes)
        except OSError:
            return
        self.is_reserved = False

    def path(self, kind: str) -> str:
        return self._path_with(kind, self.suffix)

    def _path_with(self, kind: str, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{kind}{suffix}"

    # Files

    def file(self) -> File:
        self.used = True
        file = self._file
        if file is None:
            file = self._file = self.pool.disk.open(self.path(LOG))
            self.pool.admit(self)
        return file

    @contextmanager
    def pinned(self) -> Iterator[File]:
        """The open file for use in another thread: the pool will not close it meanwhile."""
        # The order matters: pin first, then look. `release` takes the file away first, then looks for pins.
        self.pins.append(None)
        own: File | None = None
        try:
            file = self._file
            if file is None:
                file = own = self._open_beside_renaming()
            yield file
        finally:
            if own is not None:
                own.close()
            self.pins.pop()

    def _open_beside_renaming(self) -> File:
        """In another thread the file may get its next name between our look at the name and the opening."""
        open_file = self.pool.disk.open
        try:
            return open_file(self.path(LOG))
        except FileNotFoundError:
            return open_file(self._next_path or self.path(LOG))

    def release(self) -> bool:
        """Close the file and drop the mapping and saved indexes; False while another thread uses the file."""
        file, self._file = self._file, None
        if file is not None and self.pins:
            self._file = file
            return False
        if file is not None:
            file.close()
        self._mapped = memoryview(b"")
        if self._indexes_are_saved():
            self._offset_index = self._time_index = None
        if self._aborted is not None and not self._aborted.is_torn:
            self._aborted = None
        return True

    def _indexes_are_saved(self) -> bool:
        return all(
            index is not None and index.saved_count == len(index)
            for index in (self._offset_index, self._time_index)
        )

    def close(self) -> None:
        self.pool.forget(self)
        self.release()

    def change_suffix(self, suffix: str) -> None:
        """Rename the files, the log last: it is what a restart goes by. Synced they are by the caller.

        `FileNotFoundError` where there is no log: only the other files may be missing.
        """
        disk = self.pool.disk
        self.close()
        with self._renamed(suffix):
            for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG):
                source = self.path(kind)
                if kind == LOG or disk.exists(source):
                    disk.rename(source, self._path_with(kind, suffix))

    @contextmanager
    def _renamed(self, suffix: str) -> Iterator[None]:
        """The suffix is another one when the log file has been renamed within."""
        self._next_path = self._path_with(LOG, suffix)
        try:
            yield
            self.suffix = suffix
        finally:
            self._next_path = ""

    def doom(self) -> None:
        """Rename the files out of the log's sight. They can still be read until `remove`.

        `OSError`: nothing has changed. It is the log file that counts: another that keeps its name is
        nobody's without it, and goes at the next start.
        """
        disk = self.pool.disk
        paths = [self.path(kind) for kind in _ALL_KINDS]
        suffix, number = DELETED, 0
        # What was at this offset before and was compacted may wait for its removal, and have readers.
        while disk.exists(paths[0] + suffix):
            number += 1
            suffix = f".{number}{DELETED}"
        # First: a flush in its thread that does not find the file any more has to know why.
        self.deleted = True
        with self._renamed(self.suffix + suffix):
            try:
                disk.rename(paths[0], paths[0] + suffix)
            except FileNotFoundError:
                pass
            except OSError:
                self.deleted = False
                raise
        for path in paths[1:]:
            try:
                disk.rename(path, path + suffix)
            except OSError:
                # Most have no transaction index, so that it would be one more question to ask first.
                pass

    def remove(self) -> None:
        """Close and remove the files; views that were handed out stay valid."""
        self.close()
        for kind in _ALL_KINDS:
            self.pool.disk.remove(self.path(kind))

    def read(self, position: int, size_bytes: int) -> bytes:
        return self.file().read(position, size_bytes)

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        return self.file().read_now(position, size_bytes)

    def read_promptly(self, position: int, size_bytes: int) -> bytes:
        """As `read`; `WouldWait` instead of waiting for the device."""
        found = self.read_now(position, size_bytes)
        if found is None:
            raise WouldWait(self, position, size_bytes)
        return bytes(found)

    def is_resident(self, position: int, size_bytes: int) -> bool:
        # What is mapped can be told for certain, and whoever asks is going to send it from the mapping.
        self.view(position, size_bytes)
        return self.file().is_resident(position, size_bytes)

    def load(self, position: int, size_bytes: int) -> None:
        """Wait until this stretch is in the system's memory. For a worker thread."""
        with self.pinned() as file:
            file.load(position, size_bytes)

    def view(self, position: int, size_bytes: int) -> memoryview:
        """A view of the mapped file, which is mapped anew when it has grown."""
        end = position + size_bytes
        mapped = self._mapped
        if end > len(mapped):
            mapped = self._mapped = self.file().map(self.size_bytes)
        return mapped[position:end]

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._load_indexes()
        assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    @property
    def has_indexes(self) -> bool:
        """Whether nothing has to be read to look into them."""
        return self._offset_index is not None and self._time_index is not None

    def look_at_indexes(self) -> None:
        """Have the system take into its memory what loading the indexes asks of the disk. For a worker
        thread.
        """
        disk = self.pool.disk
        try:
            read_file(disk, self.path(TIME_INDEX))
            last_entry = read_file(disk, self.path(INDEX))[-OFFSET_ENTRY_BYTES:]
            # Its batch tells whether the index is that of this log.
            position = int.from_bytes(last_entry[4:])
            with self.pinned() as file:
                file.read(position, EXTENT.size)
        except OSError:
            # Whoever needs it will know.
            pass
        self._has_looked_at_indexes = True

    def _want_indexes(self) -> None:
        """`WouldWait` until somebody has looked at them, since they are about to be loaded."""
        if not self.has_indexes and not self._has_looked_at_indexes:
            raise WouldWait(_IndexFiles(self), 0, 0)

    def lookup(self, offset: int, prompt: bool = False) -> int:
        """Where to begin to look for `offset`: the position of a batch that ends at it or before."""
        if prompt:
            self._want_indexes()
        if self.inherited_bytes:
            return self._agreed_position(offset, prompt)
        try:
            return self.offset_index.lookup(offset)
        except DamagedIndex:
            self.unmap_indexes()
            return self.offset_index.lookup(offset)

    def lookup_time(self, timestamp_ms: int) -> int:
        """An offset at or after which the first record not before `timestamp_ms` is found."""
        try:
            return self.time_index.lookup(timestamp_ms)
        except DamagedIndex:
            self.unmap_indexes()
            return self.time_index.lookup(timestamp_ms)

    def offset_before(self, position: int) -> int:
        """`offset_index.offset_before`."""
        try:
            return self.offset_index.offset_before(position)
        except DamagedIndex:
            self.unmap_indexes()
            return self.offset_index.offset_before(position)

    def _load_indexes(self) -> None:
        self._has_looked_at_indexes = False
        try:
            offsets, times = self._open_indexes()
            is_sound = self._fits(offsets)
        except (DamagedIndex, FileNotFoundError):
            is_sound = False
        if is_sound:
            self._take_indexes(offsets, times)
        else:
            self._decode_indexes()

    def take_first_entries(self, index_count: int, time_count: int) -> bool:
        """Have so many entries of the index files and no more; what follows them there goes. Whether nothing
        did. `DamagedIndex`, also where they are fewer; raises `OSError`.
        """
        had_nothing_else = True
        sizes = (index_count * OFFSET_ENTRY_BYTES, time_count * TIME_ENTRY_BYTES)
        self._offset_index, self._time_index = self._open_indexes(*sizes)
        for kind, size_bytes in zip((INDEX, TIME_INDEX), sizes, strict=True):
            file = self.pool.disk.open(self.path(kind))
            try:
                if file.size() > size_bytes:
                    file.truncate(size_bytes)
                    had_nothing_else = False
            finally:
                file.close()
        return had_nothing_else

    def entries_before(self, offset: int) -> tuple[int, int]:
        """How many entries of the two indexes are about what is before an offset that ends a batch."""
        try:
            return self.offset_index.count_before(offset), self.time_index.count_before(offset)
        except DamagedIndex:
            self.unmap_indexes()
            return self.offset_index.count_before(offset), self.time_index.count_before(offset)

    def _open_indexes(
        self, index_bytes: int | None = None, time_bytes: int | None = None
    ) -> tuple[OffsetIndex, TimeIndex]:
        """Each mapped unless it is small; of each all, or so many bytes. `DamagedIndex` as far as the ends
        show it.
        """
        offsets: OffsetIndex | None
        times: TimeIndex | None
        content = self._index_content(INDEX, index_bytes)
        if isinstance(content, bytes):
            offsets = OffsetIndex.decode(self.base_offset, content, self.size_bytes)
        else:
            read = partial(self._read_index, INDEX)
            offsets = OffsetIndex.of_file(self.base_offset, content, read, self.size_bytes)
        content = self._index_content(TIME_INDEX, time_bytes)
        if isinstance(content, bytes):
            times = TimeIndex.decode(self.base_offset, content)
        else:
            times = TimeIndex.of_file(self.base_offset, content, partial(self._read_index, TIME_INDEX))
        if offsets is None or times is None:
            raise DamagedIndex
        return offsets, times

    def _index_content(self, kind: str, wanted_bytes: int | None) -> bytes | memoryview:
        file = self.pool.disk.open(self.path(kind))
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
                    # So many mappings are not to be had.
                    pass
            return file.read(0, size_bytes)
        finally:
            file.close()

    def _read_index(self, kind: str, position: int, size_bytes: int) -> bytes:
        try:
            file = self.pool.disk.open(self.path(kind))
        except FileNotFoundError as error:
            raise DamagedIndex from error
        try:
            return file.read(position, size_bytes)
        finally:
            file.close()

    def _decode_indexes(self) -> None:
        """All of both files into memory, looked at from end to end."""
        disk = self.pool.disk
        try:
            offsets = OffsetIndex.decode(self.base_offset, read_file(disk, self.path(INDEX)), self.size_bytes)
            times = TimeIndex.decode(self.base_offset, read_file(disk, self.path(TIME_INDEX)))
        except FileNotFoundError:
            offsets = times = None
        self._mend_indexes(offsets, times)

    def unmap_indexes(self) -> None:
        """Into memory with the indexes, looked at from end to end: something is wrong with them, or their
        files are about to be others.
        """
        self._mend_indexes(self.offset_index.in_memory(self.size_bytes), self.time_index.in_memory())

    def _mend_indexes(self, offsets: OffsetIndex | None, times: TimeIndex | None) -> None:
        if offsets is not None and not self._fits(offsets):
            # This entry, or its batch. If it is not that one alone the file is another log's.
            offsets.forget(len(offsets) - 1)
        if offsets is None or times is None or not self._fits(offsets):
            self.rebuild_indexes()
            return
        self._take_indexes(offsets, times)

    def _take_indexes(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        self._offset_index, self._time_index = offsets, times
        if self.max_timestamp_ms is None:
            self.max_timestamp_ms, self.max_timestamp_offset = times.last()

    def _fits(self, offsets: OffsetIndex) -> bool:
        """Whether the last entry points to the batch that it says: another file's, or a torn one, would
        not.
        """
        return not len(offsets) or self._agrees(offsets, len(offsets) - 1)

    def rebuild_indexes(self, interval_bytes: int = 4096) -> None:
        """Make the indexes anew from the batches."""
        self.reset_indexes()
        for batch in scan(self.read, 0, self.size_bytes):
            self.index_batch(batch, interval_bytes)
        self.seal()
        # Where no file is there is none to be replaced, which takes two syncs.
        exists = self.pool.disk.exists
        self.offset_index.is_made_anew = exists(self.path(INDEX))
        self.time_index.is_made_anew = exists(self.path(TIME_INDEX))

    def reset_indexes(self) -> None:
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_index = 0

    def index_batch(self, batch: StoredBatch, interval_bytes: int) -> None:
        """Take a batch that stands in the file into the indexes, as if it were just appended."""
        last_offset = batch.base_offset + batch.last_offset_delta
        assert self.max_timestamp_ms is not None
        if batch.max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = batch.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval_bytes and self.offset_index.has_room_for(last_offset):
            self.offset_index.append(last_offset, batch.position)
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += batch.length + LOG_OVERHEAD_BYTES

    def seal(self) -> None:
        """The last time entry says the latest timestamp of all, as in Kafka: retention and look-ups rely
        on it.
        """
        if self.max_timestamp_ms is not None:
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)

    def save_indexes(self, *, sync: bool = False) -> None:
        """Write what is new in the indexes; nothing to do when they are not loaded."""
        # Taken once each: a flush calls this in its thread, and the pool may drop them meanwhile.
        offsets, times = self._offset_index, self._time_index
        if offsets is not None:
            offsets.save(self.pool.disk, self.path(INDEX), sync=sync)
        if times is not None:
            times.save(self.pool.disk, self.path(TIME_INDEX), sync=sync)
        if sync and self.knows_aborted():
            self._sync(TRANSACTION_INDEX)

    def sync_indexes(self) -> None:
        """Make the index files of a sealed segment survive a loss of power. May run in a worker thread."""
        # What is not in memory any more has been saved before the pool dropped it.
        self.save_indexes()
        self.sync_index_files()

    def sync_index_files(self) -> None:
        """The same of what has been saved. May run in a worker thread."""
        for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX):
            # One that is missing is made anew when it is needed, or there is nothing to be in it.
            if self.pool.disk.exists(self.path(kind)):
                self._sync(kind)

    def sync_snapshot(self) -> None:
        """Make the snapshot of the producers before this segment survive a loss of power. May run in a worker
        thread.
        """
        if self.pool.disk.exists(self.path(SNAPSHOT)):
            self._sync(SNAPSHOT)

    def _sync(self, kind: str) -> None:
        path = self.path(kind)
        file = self.pool.disk.open(path)
        try:
            sync_file(file, path)
        finally:
            file.close()

    def knows_aborted(self) -> bool:
        """Whether a transaction was aborted in this segment."""
        if self.has_aborted is None:
            self.has_aborted = self.pool.disk.exists(self.path(TRANSACTION_INDEX))
        return self.has_aborted

    @property
    def aborted(self) -> TransactionIndex:
        """Refuses with KAFKA_STORAGE_ERROR where the file is damaged; raises `OSError`."""
        if self._aborted is None:
            if self.knows_aborted():
                self._aborted = TransactionIndex.load(self.pool.disk, self.path(TRANSACTION_INDEX))
            else:
                self._aborted = TransactionIndex()
        return self._aborted

    def write_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Put them into the transaction index: its file, until `take_aborted`. Raises `OSError`."""
        try:
            index = self.aborted
        except KafkaError as error:
            raise OSError(errno.EIO, error.message) from error
        index.write(self.pool.disk, self.path(TRANSACTION_INDEX), transactions)

    def take_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """They are committed."""
        assert self._aborted is not None
        self._aborted.take(transactions)
        self.has_aborted = True

    def cut_aborted(self) -> None:
        """Take back from the file what was not committed. Raises `OSError`."""
        if self._aborted is not None and self._aborted.is_torn:
            self._aborted.cut(self.pool.disk, self.path(TRANSACTION_INDEX))

    def offset_bound(self, position: int, prompt: bool = False) -> int | None:
        """An offset that no batch before `position` has, by the next entry of the offset index; None without
        one. As `LogSegment.fetchUpperBoundOffset`.
        """
        if prompt:
            self._want_indexes()
        try:
            return self._offset_bound(position, prompt)
        except DamagedIndex:
            self.unmap_indexes()
            return self._offset_bound(position, prompt)

    def _offset_bound(self, position: int, prompt: bool) -> int | None:
        index = self.offset_index
        for place in range(index.place_from(position), len(index)):
            relative, at = index.entry(place)
            if at >= self.inherited_bytes or self._agrees(index, place, prompt):
                return relative + self.base_offset
        return None

    @property
    def knows_latest_timestamp(self) -> bool:
        """Whether `latest_timestamp` asks no disk."""
        return self.max_timestamp_ms is not None

    def look_ahead(self) -> None:
        """Have the system take into its memory what is asked of the disk to find this segment too old, and to
        rename its files. May run in a worker thread.
        """
        disk = self.pool.disk
        try:
            for kind in _ALL_KINDS:
                disk.exists(self.path(kind))
            file = disk.open(self.path(TIME_INDEX))
            try:
                file.read(max(file.size() - TIME_ENTRY_BYTES, 0), TIME_ENTRY_BYTES)
            finally:
                file.close()
        except OSError:
            # Whoever needs it will know.
            pass

    def latest_timestamp(self) -> tuple[int, int]:
        """The latest timestamp and the last offset of the first batch that has it; (-1, ...) when none
        has one.
        """
        if self.max_timestamp_ms is None:
            self._read_latest_timestamp()
        assert self.max_timestamp_ms is not None
        return self.max_timestamp_ms, self.max_timestamp_offset

    def _read_latest_timestamp(self) -> None:
        """From the last entry of the time index: 12 bytes instead of the whole of it."""
        disk, path = self.pool.disk, self.path(TIME_INDEX)
        index: TimeIndex | None = None
        if self._time_index is None and disk.exists(path):
            size = disk.size(path)
            if size % TIME_ENTRY_BYTES == 0 and size:
                file = disk.open(path)
                try:
                    index = TimeIndex.decode(
                        self.base_offset, file.read(size - TIME_ENTRY_BYTES, TIME_ENTRY_BYTES)
                    )
                finally:
                    file.close()
        if index is None:
            index = self.time_index
        if self.max_timestamp_ms is None:
            self.max_timestamp_ms, self.max_timestamp_offset = index.last()

    def retention_timestamp_ms(self) -> int:
        """What retention by time compares: the latest timestamp, or the file's age when no record has one."""
        latest, _ = self.latest_timestamp()
        return latest if latest >= 0 else self.modified_ms()

    def modified_ms(self) -> int:
        """When the log file was last written."""
        return self.pool.disk.modified_ms(self.path(LOG))

    # Batches

    def batches(
        self, position: int = 0, end: int | None = None, window_bytes: int = 65_536
    ) -> Iterator[StoredBatch]:
        """The committed batches from a batch's position on."""
        return scan(self.read, position, self.size_bytes if end is None else end, window_bytes=window_bytes)

    def stepping(self, position: int) -> Iterator[StoredBatch | Callable[[], None]]:
        """The committed batches from a batch's position on; in between what a worker thread is to call before
        the next one can be had without waiting for the disk.
        """
        looks = 0
        while True:
            try:
                # What is lost again as soon as it is loaded is waited for.
                read = self.read_promptly if looks < _LOOKS_MAX else self.read
                for batch in scan(read, position, self.size_bytes):
                    yield batch
                    looks, position = 0, batch.end_position
                return
            except WouldWait as miss:
                looks += 1
                yield partial(miss.load, _LOADED_AHEAD_BYTES)

    def find(self, offset: int, prompt: bool = False) -> tuple[int, int] | None:
        """Position and size of the first batch whose last offset is not before `offset`; None when the
        segment ends before.

        Here and wherever a question is `prompt`: what the log's own file would have to be waited for is
        `WouldWait`.
        """
        position = self.lookup(offset, prompt)
        end = sound_until = self.size_bytes
        if position < self.inherited_bytes:
            sound_until = self.check(position, position + _SEEK_WINDOW_BYTES, prompt)
        window = b""
        start = position
        while position < end:
            if position >= sound_until:
                sound_until = self.check(position, position + _SEEK_WINDOW_BYTES, prompt)
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

    # Looking at what an earlier run has left

    def distrust(self, limit_offset: int) -> None:
        """All that is in the file now is from an earlier run, and has offsets below `limit_offset`."""
        self.inherited_bytes = self.size_bytes
        self._limit_offset = limit_offset

    def check(self, position: int, end: int, prompt: bool = False) -> int:
        """Up to where the batches from `position` on, where one begins, are known to be in their places.

        That is `end` or more, or where a damaged one begins, or as far as one look goes. What the checksum of
        a batch leaves out would hand its records out at other offsets, so it is compared with index and
        neighbours; see `Stretch.extend`. Each range is looked at once: what this process has written it
        believes.
        """
        stretch = next((one for one in self._stretches if one.start <= position <= one.end), None)
        if stretch is None:
            if prompt:
                self._want_indexes()
            stretch = Stretch(position, position, self.offset_before(position) + 1)
            self._stretches = [*self._stretches[1 - _STRETCHES_MAX :], stretch]
        inherited_bytes = self.inherited_bytes
        if stretch.end < min(end, inherited_bytes):
            read = self.read_promptly if prompt else self.file().read
            stretch.extend(read, min(end, inherited_bytes), inherited_bytes, self._limit_offset)
            self._stretches = [
                one
                for one in self._stretches
                if one is stretch or not stretch.start <= one.start <= one.end <= stretch.end
            ]
        return stretch.end if stretch.end < inherited_bytes else self.size_bytes

    def _agreed_position(self, offset: int, prompt: bool) -> int:
        """`offset_index.lookup`, by an entry that says of its batch what that says itself.

        Of others one of the two is damaged: they are left out, and the way from the entry before shows
        whether it is the batch.
        """
        while (place := self._place_of(offset)) >= 0:
            index = self.offset_index
            position = index.entry(place)[1]
            if position >= self.inherited_bytes or self._agrees(index, place, prompt):
                return position
            if index.is_mapped:
                self.unmap_indexes()
            else:
                index.forget(place)
        return 0

    def _place_of(self, offset: int) -> int:
        try:
            return self.offset_index.place_of(offset)
        except DamagedIndex:
            self.unmap_indexes()
            return self.offset_index.place_of(offset)

    def _agrees(self, index: OffsetIndex, place: int, prompt: bool = False) -> bool:
        relative, position = index.entry(place)
        if not 0 <= position < self.size_bytes:
            return False
        head = (self.read_promptly if prompt else self.read)(position, EXTENT.size)
        if len(head) < EXTENT.size:
            return False
        base_offset, _, last_offset_delta = EXTENT.unpack(head)
        return bool(base_offset + last_offset_delta == relative + self.base_offset)

    def batch_bytes(self, position: int, prompt: bool = False) -> int:
        """The size of the batch that begins there."""
        head = (self.read_promptly if prompt else self.read)(position, EXTENT.size)
        if len(head) < EXTENT.size:
            raise self._damaged(position)
        length = EXTENT.unpack(head)[1]
        if length <= 0:
            raise self._damaged(position)
        return int(length) + LOG_OVERHEAD_BYTES

    def _seek_window(self, position: int, prompt: bool) -> bytes:
        read = self.read_promptly if prompt else self.read
        window = read(position, min(_SEEK_WINDOW_BYTES, self.size_bytes - position))
        if len(window) < EXTENT.size:
            raise self._damaged(position)
        return window

    def _damaged(self, position: int) -> KafkaError:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.path(LOG)} is damaged at position {position}.")


class _IndexFiles:
    """Of a segment, to be looked at before they are loaded."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def load(self, position: int, size_bytes: int) -> None:
        self._segment.look_at_indexes()


def note_failed_sync(disk: Disk, directory: str) -> None:
    """Tell the next start that what it can read of a partition may not be on the disk (`SYNC_FAILED`)."""
    try:
        disk.open(f"{directory}/{SYNC_FAILED}", create=True).close()
    except OSError:
        # Where nothing can be made nothing will be flushed either.
        pass


def segment_holding(bases: list[int], offset: int) -> int:
    """The place of the segment in which `offset` would be; -1 when it is before the first."""
    return bisect_right(bases, offset) - 1
