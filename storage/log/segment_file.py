"""The log file of a segment while it is open: reading, mapping, reserved space.

A file is opened when it is needed. The `FilePool` limits the number of open files and may close one at any
time; it then also drops the indexes in memory. Slices stay valid: they hold this object, which opens its file
again, or a view of its mapping.

`extent.size_bytes` counts committed bytes. During a commit the file may be longer.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.storage.disk import Buffer, Disk, File
from odradek.storage.log._staging import SegmentExtent
from odradek.storage.log.indexes import OffsetIndex, TimeIndex
from odradek.storage.log.segment_paths import LOG, SegmentPaths
from odradek.storage.log.slices import WouldWait
from odradek.storage.log.transaction_index import TransactionIndex


class FilePool:
    """Limits the number of open segment files. It first closes the file that was opened longest ago and not
    used since.
    """

    __slots__ = ("_open", "disk", "open_max")

    def __init__(self, disk: Disk, open_max: int = 1024) -> None:
        self.disk = disk
        self.open_max = open_max
        self._open: dict[SegmentFile, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, file: "SegmentFile") -> None:
        """Add a file that was just opened."""
        self._open[file] = None
        if len(self._open) > self.open_max:
            self._evict(file)

    def forget(self, file: "SegmentFile") -> None:
        self._open.pop(file, None)

    def _evict(self, newcomer: "SegmentFile") -> None:
        for _ in range(2 * len(self._open)):
            oldest = next(iter(self._open))
            # A worker that removes files may have closed it already.
            self._open.pop(oldest, None)
            if oldest.used or oldest is newcomer:
                oldest.used = False
                self._open[oldest] = None
            elif oldest.release():
                return
            else:
                self._open[oldest] = None


_NOTHING_MAPPED = memoryview(b"")
"""One for all: a view of its own takes 350 B of each partition."""


class LoadedIndexes:
    """The indexes of a segment in memory; None for one that is not loaded."""

    __slots__ = ("aborted", "offsets", "times")

    def __init__(self) -> None:
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.aborted: TransactionIndex | None = None

    def drop_saved(self) -> None:
        """Drop the indexes that are saved on the disk."""
        if all(index is not None and index.saved_count == len(index) for index in (self.offsets, self.times)):
            self.offsets = self.times = None
        if self.aborted is not None and not self.aborted.is_torn:
            self.aborted = None


class SegmentFile:
    """See the module. `open` and all methods that read raise `OSError`."""

    __slots__ = (
        "_file",
        "_mapped",
        "extent",
        "is_reserved",
        "loaded",
        "paths",
        "pins",
        "pool",
        "used",
    )

    def __init__(self, pool: FilePool, paths: SegmentPaths, extent: SegmentExtent) -> None:
        self.pool = pool
        self.paths = paths
        self.extent = extent
        self.loaded = LoadedIndexes()
        self.used = False
        """Whether the file was used since the last check of the pool."""
        self.is_reserved = False
        """Whether the file may have reserved space after its end (`reserve`)."""
        self.pins: list[None] = []
        self._file: File | None = None
        self._mapped = _NOTHING_MAPPED

    def open(self) -> File:
        """The open file, for the thread that owns the log."""
        self.used = True
        file = self._file
        if file is None:
            file = self._file = self.pool.disk.open(self.paths.path(LOG))
            self.pool.admit(self)
        return file

    def create(self, *, directory_is_empty: bool) -> None:
        """Make the file, or truncate an existing one."""
        file = self.pool.disk.open(self.paths.path(LOG), create=True)
        self._file = file
        try:
            if not directory_is_empty and file.size():
                file.truncate(0)
        except OSError:
            self._file = None
            file.close()
            raise
        self.pool.admit(self)

    @contextmanager
    def pinned(self) -> Iterator[File]:
        """The open file for another thread: the pool does not close it meanwhile."""
        # The order matters: first pin, then check the file. `release` first takes the file away, then checks
        # for pins.
        self.pins.append(None)
        own: File | None = None
        try:
            file = self._file
            if file is None:
                file = own = self.paths.open_log()
            yield file
        finally:
            if own is not None:
                own.close()
            self.pins.pop()

    def release(self) -> bool:
        """Close the file and drop the mapping and saved indexes; False while another thread uses the file."""
        file, self._file = self._file, None
        if file is not None and self.pins:
            self._file = file
            return False
        if file is not None:
            file.close()
        self._mapped = _NOTHING_MAPPED
        self.loaded.drop_saved()
        return True

    def close(self) -> None:
        self.pool.forget(self)
        self.release()

    def reserve(self, size_bytes: int) -> None:
        """Reserve space on the disk until the segment is sealed. If the disk refuses, the file grows with
        each write.
        """
        self.is_reserved = True
        try:
            self.open().reserve(size_bytes)
        except OSError:
            pass

    def release_reserved(self) -> None:
        """Free reserved space that is not needed."""
        if not self.is_reserved:
            return
        try:
            self.open().truncate(self.extent.size_bytes)
        except OSError:
            return
        self.is_reserved = False

    def read(self, position: int, size_bytes: int) -> bytes:
        return self.open().read(position, size_bytes)

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        """Read as `read`; None instead of waiting for the disk."""
        return self.open().read_now(position, size_bytes)

    def read_promptly(self, position: int, size_bytes: int) -> bytes:
        """Read as `read`; `WouldWait` instead of waiting for the disk."""
        found = self.read_now(position, size_bytes)
        if found is None:
            raise WouldWait(self, position, size_bytes)
        return bytes(found)

    def is_resident(self, position: int, size_bytes: int) -> bool:
        # For a mapping the kernel knows it exactly, and the caller will send from the mapping.
        self.view(position, size_bytes)
        return self.open().is_resident(position, size_bytes)

    def load(self, position: int, size_bytes: int) -> None:
        """Wait until this range is in the system's memory. For a worker thread."""
        with self.pinned() as file:
            file.load(position, size_bytes)

    def view(self, position: int, size_bytes: int) -> memoryview:
        """A view of the mapped file, which is mapped again after it has grown."""
        end = position + size_bytes
        mapped = self._mapped
        if end > len(mapped):
            mapped = self._mapped = self.open().map(self.extent.size_bytes)
        return mapped[position:end]
