"""The offset index and the time index of a segment: loading, searching, repairing, saving.

They are caches. If an index contradicts itself or the log, its sound entries are read into memory, or it is
rebuilt from the batches. `OSError` after an error of the disk.
"""

from odradek.storage.disk import read_file
from odradek.storage.log._staging import SegmentExtent
from odradek.storage.log.batches import EXTENT, StoredBatch, scan
from odradek.storage.log.indexes import (
    OFFSET_ENTRY_BYTES,
    DamagedIndex,
    OffsetIndex,
    TimeIndex,
    decode_indexes,
    open_indexes,
    read_last_time_entry,
    truncate_files,
)
from odradek.storage.log.segment_file import SegmentFile
from odradek.storage.log.segment_paths import INDEX, TIME_INDEX, SegmentPaths
from odradek.storage.log.slices import WouldWait
from odradek.wire.record_layout import LOG_OVERHEAD_BYTES


class SegmentIndexes:
    """See the module.

    With `prompt` a search raises `WouldWait` instead of waiting for the disk. An entry of an earlier run
    (`extent.inherited_bytes`) is used only if it agrees with its batch.
    """

    __slots__ = ("_is_preloaded", "extent", "file", "loaded", "paths")

    def __init__(self, paths: SegmentPaths, extent: SegmentExtent, file: SegmentFile) -> None:
        self.paths = paths
        self.extent = extent
        self.file = file
        self.loaded = file.loaded
        self._is_preloaded = False

    # Loading

    @property
    def offset_index(self) -> OffsetIndex:
        offsets = self.loaded.offsets
        return self._load()[0] if offsets is None else offsets

    @property
    def time_index(self) -> TimeIndex:
        times = self.loaded.times
        return self._load()[1] if times is None else times

    @property
    def are_loaded(self) -> bool:
        """Whether a search reads no file."""
        return self.loaded.offsets is not None and self.loaded.times is not None

    def preload(self) -> None:
        """Load the index files into the system's memory. For a worker thread."""
        disk = self.paths.disk
        try:
            read_file(disk, self.paths.path(TIME_INDEX))
            last_entry = read_file(disk, self.paths.path(INDEX))[-OFFSET_ENTRY_BYTES:]
            # The batch of the last entry is read to check whether the index belongs to this log.
            position = int.from_bytes(last_entry[4:])
            with self.file.pinned() as file:
                file.read(position, EXTENT.size)
        except OSError:
            # The later load meets the same error.
            pass
        self._is_preloaded = True

    def load_promptly(self) -> None:
        """`WouldWait` until `preload` has run, since the indexes are about to be loaded."""
        loaded = self.loaded
        if (loaded.offsets is None or loaded.times is None) and not self._is_preloaded:
            raise WouldWait(_Preloading(self), 0, 0)

    def _load(self) -> tuple[OffsetIndex, TimeIndex]:
        self._is_preloaded = False
        try:
            offsets, times = open_indexes(self.paths, self.extent.size_bytes)
            is_sound = self._belongs_to_log(offsets)
        except (DamagedIndex, FileNotFoundError):
            is_sound = False
        if is_sound:
            self._take(offsets, times)
        else:
            self._repair(*decode_indexes(self.paths, self.extent.size_bytes))
        assert self.loaded.offsets is not None
        assert self.loaded.times is not None
        return self.loaded.offsets, self.loaded.times

    def truncate_to(self, index_count: int, time_count: int) -> bool:
        """Cut both index files to these counts and load them; returns whether neither had more.
        `DamagedIndex`, also if there are fewer entries.
        """
        counts = (index_count, time_count)
        self.loaded.offsets, self.loaded.times = open_indexes(self.paths, self.extent.size_bytes, counts)
        return truncate_files(self.paths, counts)

    def unmap(self) -> None:
        """Read the indexes into memory and check every entry: an entry is damaged, or the files are about to
        be replaced.
        """
        self._repair(self.offset_index.in_memory(self.extent.size_bytes), self.time_index.in_memory())

    def _repair(self, offsets: OffsetIndex | None, times: TimeIndex | None) -> None:
        if offsets is not None and not self._belongs_to_log(offsets):
            # This entry or its batch is damaged. If the entry before is wrong, too, the file belongs to
            # another log.
            offsets.forget(len(offsets) - 1)
        if offsets is None or times is None or not self._belongs_to_log(offsets):
            self.rebuild()
            return
        self._take(offsets, times)

    def _take(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        self.loaded.offsets, self.loaded.times = offsets, times
        self._know_timestamp(times)

    def _belongs_to_log(self, offsets: OffsetIndex) -> bool:
        """Whether the last entry agrees with its batch; in a torn file, or a file of another log, it does
        not."""
        return not len(offsets) or self._agrees(offsets, len(offsets) - 1)

    def _agrees(self, index: OffsetIndex, place: int, prompt: bool = False) -> bool:
        """Whether an entry agrees with the batch at its position."""
        relative, position = index.entry(place)
        extent = self.extent
        if not 0 <= position < extent.size_bytes:
            return False
        head = (self.file.read_promptly if prompt else self.file.read)(position, EXTENT.size)
        if len(head) < EXTENT.size:
            return False
        base_offset, _, last_offset_delta = EXTENT.unpack(head)
        return bool(base_offset + last_offset_delta == relative + extent.base_offset)

    # Searching

    def lookup(self, offset: int, prompt: bool = False) -> int:
        """The start position of a search for `offset`: the position of a batch that ends at or before it."""
        if prompt:
            self.load_promptly()
        if self.extent.inherited_bytes:
            return self._lookup_inherited(offset, prompt)
        try:
            return self.offset_index.lookup(offset)
        except DamagedIndex:
            self.unmap()
            return self.offset_index.lookup(offset)

    def _lookup_inherited(self, offset: int, prompt: bool) -> int:
        """Look up as `lookup`, by an entry that agrees with its batch.

        If they do not agree, one of them is damaged. The entry is left out; the walk from the entry before
        finds a damaged batch.
        """
        inherited_bytes = self.extent.inherited_bytes
        while True:
            index = self.offset_index
            try:
                place = index.place_of(offset)
            except DamagedIndex:
                self.unmap()
                continue
            if place < 0:
                return 0
            position = index.entry(place)[1]
            if position >= inherited_bytes or self._agrees(index, place, prompt):
                return position
            if index.is_mapped:
                self.unmap()
            else:
                index.forget(place)

    def lookup_time(self, timestamp_ms: int) -> int:
        """An offset at or before the first record with `timestamp_ms` or later."""
        try:
            return self.time_index.lookup(timestamp_ms)
        except DamagedIndex:
            self.unmap()
            return self.time_index.lookup(timestamp_ms)

    def offset_before(self, position: int) -> int:
        """`OffsetIndex.offset_before`."""
        try:
            return self.offset_index.offset_before(position)
        except DamagedIndex:
            self.unmap()
            return self.offset_index.offset_before(position)

    def offset_bound(self, position: int, prompt: bool = False) -> int | None:
        """An offset after all batches before `position`, by the next entry of the offset index; None without
        such an entry. As `LogSegment.fetchUpperBoundOffset`.
        """
        if prompt:
            self.load_promptly()
        try:
            return self._offset_bound(position, prompt)
        except DamagedIndex:
            self.unmap()
            return self._offset_bound(position, prompt)

    def _offset_bound(self, position: int, prompt: bool) -> int | None:
        index = self.offset_index
        for place in range(index.place_from(position), len(index)):
            relative, at = index.entry(place)
            if at >= self.extent.inherited_bytes or self._agrees(index, place, prompt):
                return relative + self.extent.base_offset
        return None

    def entries_before(self, offset: int) -> tuple[int, int]:
        """The counts of entries of both indexes for the batches before `offset`, the end of a batch."""
        try:
            return self.offset_index.count_before(offset), self.time_index.count_before(offset)
        except DamagedIndex:
            self.unmap()
            return self.offset_index.count_before(offset), self.time_index.count_before(offset)

    # Timestamps

    @property
    def knows_latest_timestamp(self) -> bool:
        """Whether `latest_timestamp` reads no file."""
        return self.extent.max_timestamp_ms is not None

    def latest_timestamp(self) -> tuple[int, int]:
        """The latest timestamp and the last offset of the first batch that has it; (-1, ...) without
        timestamps.
        """
        extent = self.extent
        if extent.max_timestamp_ms is None:
            last = None if self.loaded.times is not None else read_last_time_entry(self.paths)
            self._know_timestamp(self.time_index if last is None else last)
        assert extent.max_timestamp_ms is not None
        return extent.max_timestamp_ms, extent.max_timestamp_offset

    def _know_timestamp(self, times: TimeIndex) -> None:
        if self.extent.max_timestamp_ms is None:
            self.extent.max_timestamp_ms, self.extent.max_timestamp_offset = times.last()

    # Filling and saving

    def reset(self) -> None:
        """Begin with empty indexes; `save` adds to the existing files."""
        extent = self.extent
        self.loaded.offsets = OffsetIndex(extent.base_offset)
        self.loaded.times = TimeIndex(extent.base_offset)
        extent.max_timestamp_ms = -1
        extent.max_timestamp_offset = extent.base_offset
        extent.bytes_since_index = 0

    def rebuild(self, interval_bytes: int = 4096) -> None:
        """Rebuild the indexes from the batches."""
        self.reset()
        for batch in scan(self.file.read, 0, self.extent.size_bytes):
            self.add(batch, interval_bytes)
        self.seal()
        # A replacement takes two syncs: without a file it is not needed.
        self.offset_index.is_rebuilt = self.paths.exists(INDEX)
        self.time_index.is_rebuilt = self.paths.exists(TIME_INDEX)

    def add(self, batch: StoredBatch, interval_bytes: int) -> None:
        """Index a batch of the file as at its append."""
        extent = self.extent
        last_offset = batch.base_offset + batch.last_offset_delta
        assert extent.max_timestamp_ms is not None
        if batch.max_timestamp > extent.max_timestamp_ms:
            extent.max_timestamp_ms = batch.max_timestamp
            extent.max_timestamp_offset = last_offset
        if extent.bytes_since_index > interval_bytes and self.offset_index.has_room_for(last_offset):
            self.offset_index.append(last_offset, batch.position)
            self.time_index.append(extent.max_timestamp_ms, extent.max_timestamp_offset)
            extent.bytes_since_index = 0
        extent.bytes_since_index += batch.length + LOG_OVERHEAD_BYTES

    def seal(self) -> None:
        """Add the latest timestamp as the last time entry, as in Kafka: retention and searches rely on it."""
        if self.extent.max_timestamp_ms is not None:
            self.time_index.append(self.extent.max_timestamp_ms, self.extent.max_timestamp_offset)

    def save(self, *, sync: bool = False) -> None:
        """Write the new entries to the files; with `sync` durably. An index that is not loaded was saved
        before. May run in a worker thread.
        """
        # Each field is read once: the pool may drop the indexes meanwhile.
        offsets, times = self.loaded.offsets, self.loaded.times
        if offsets is not None:
            offsets.save(self.paths.disk, self.paths.path(INDEX), sync=sync)
        if times is not None:
            times.save(self.paths.disk, self.paths.path(TIME_INDEX), sync=sync)


class _Preloading:
    """Loads the index files for `WouldWait`."""

    __slots__ = ("_indexes",)

    def __init__(self, indexes: SegmentIndexes) -> None:
        self._indexes = indexes

    def load(self, position: int, size_bytes: int) -> None:
        self._indexes.preload()
