"""One round of compaction over one log: reads sealed segments, writes `.cleaned` ones.

Its input is a `CleaningJob`, plain values that fit into a line of JSON, and a disk; the owner of the log puts
each finished group in place (`cleaner.Cleaning`). So it may run in a process of its own, or between requests.
`cleaning_round(...)` is a generator: an int is the number of bytes just read or written, a `CleanedGroup` is
ready to be put in place; closed before its end it removes its unfinished files.

What stays, as in `Cleaner.java` and `MemoryRecords.filterTo`:

- of every key in the dirty part the latest record, and all records whose keys are not in the dirty part;
  records after the last offset in the map stay, records without a key go;
- a tombstone for `delete.retention.ms` after the first round that reads it: the end of this time is written
  into its batch as the delete horizon (KIP-534);
- no data of an aborted transaction; the marker of every transaction while there is data of the transaction,
  and after that until its horizon;
- the batch with a producer's last sequence number, the last marker of a producer without data, and the
  round's last batch, if need be as a header alone.

A batch that keeps all its records is copied as the same bytes; any other batch keeps its offsets, sequences,
leader epoch and codec. The checksum of every batch is checked first: damaged records must not get a new,
correct checksum.
"""

import heapq
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from odradek.storage.compaction._cleaning import (
    SLOT_BYTES,
    Copy,
    FilterRules,
    OffsetMap,
    filter_batches,
    index_batches,
    index_section,
    select_records,
    shift_timestamps,
)
from odradek.storage.config import LONG_MAX
from odradek.storage.disk import Disk, File, write_all
from odradek.storage.log.indexes import TIME_ENTRY_BYTES
from odradek.storage.log.segment import RELATIVE_OFFSET_MAX, Segment
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import CLEANED, LOG, TRANSACTION_INDEX
from odradek.storage.log.transaction_index import AbortedTransaction, encode_aborted
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.checksums import crc32c
from odradek.wire.compression import compress
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.record_layout import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    RECORD_BYTES_MAX,
)
from odradek.wire.records import iter_records, read_end_txn_marker, records_section, verify_crc

SYNC_EVERY_BYTES = 64 << 20
"""Bytes between two syncs: the syncs of other files would have to wait for one sync of a gigabyte."""


@dataclass(slots=True, frozen=True)
class JobSegment:
    """A sealed segment; `end_offset` is the next one's base offset."""

    base_offset: int
    end_offset: int
    size_bytes: int


@dataclass(slots=True, frozen=True, kw_only=True)
class CleaningJob:
    """The input of a round. Sizes in bytes, times in milliseconds."""

    directory: str
    segments: tuple[JobSegment, ...]
    """All segments that end before `end_offset`, oldest first."""
    first_dirty: int
    """The log before this offset was clean after the last round."""
    end_offset: int
    """The end of the last segment: nothing is read from there on."""
    now_ms: int
    token: str
    """Part of the names of new files, unique to this round."""
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    record_bytes_max: int = RECORD_BYTES_MAX
    """`max.decompressed.message.bytes`: a log with a larger record in a compressed batch is not cleaned."""
    producers: tuple[tuple[int, int, int], ...] = ()
    """(id, epoch, last data offset or -1) of every producer of the log."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Every aborted transaction that reaches into these segments; its marker may be in a later one."""
    memory_bytes: int = 134_217_728
    load_factor: float = 0.9
    buffer_bytes: int = 262_144

    @property
    def suffix(self) -> str:
        """The suffix of unfinished files, after Kafka's names."""
        return f".{self.token}{CLEANED}"

    def as_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        segments = tuple(JobSegment(**one) for one in plain["segments"])
        aborted = tuple(AbortedTransaction(*one) for one in plain["aborted"])
        producers = tuple((one[0], one[1], one[2]) for one in plain["producers"])
        return cls(**{**plain, "segments": segments, "aborted": aborted, "producers": producers})


@dataclass(slots=True, frozen=True)
class CleanedGroup:
    """A segment that is written and synced, and the segments that it replaces."""

    old_bases: tuple[int, ...]
    size_bytes: int
    max_timestamp_ms: int
    max_timestamp_offset: int

    @property
    def base_offset(self) -> int:
        return self.old_bases[0]


@dataclass(slots=True)
class CleaningStatistics:
    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0


@dataclass(slots=True, frozen=True)
class CleaningOutcome:
    """The end of the clean part, and the statistics of the round."""

    first_dirty: int
    statistics: CleaningStatistics = field(default_factory=CleaningStatistics)


Round = Generator[int | CleanedGroup, None, CleaningOutcome]


def cleaning_round(disk: Disk, job: CleaningJob, seed: bytes) -> Round:
    """See the module. `seed` is 16 secret random bytes.

    Raises `OSError`, and `KafkaError` for a damaged log.
    """
    return _Round(disk, job, seed).run()


def slots_of(memory_bytes: int) -> int:
    """The number of keys that fit into a map of `memory_bytes`; Kafka's map has at most 2 GiB."""
    return max(min(memory_bytes, 2**31 - 1) // SLOT_BYTES, 1)


def group_segments(
    segments: tuple[JobSegment, ...],
    *,
    segment_bytes: int,
    segment_index_bytes: int,
    index_interval_bytes: int,
) -> list[list[JobSegment]]:
    """Neighbours that fit into one segment: by size, by the largest size of their indexes, and by the range
    of relative offsets.
    """
    groups: list[list[JobSegment]] = []
    group_bytes = 0
    bytes_max = min(
        segment_bytes, segment_index_bytes // TIME_ENTRY_BYTES * max(index_interval_bytes, HEADER_SIZE_BYTES)
    )
    for segment in segments:
        if (
            groups
            and group_bytes + segment.size_bytes <= bytes_max
            and (
                segment.size_bytes == 0
                or segment.end_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX
            )
        ):
            groups[-1].append(segment)
            group_bytes += segment.size_bytes
        else:
            groups.append([segment])
            group_bytes = segment.size_bytes
    return groups


class Transactions:
    """Which batches belong to aborted transactions, and which markers are not needed any more.

    The methods have to be called in the order of the batches. As `CleanedTransactionMetadata.java`.
    """

    def __init__(self, aborted: tuple[AbortedTransaction, ...]) -> None:
        self.kept: list[AbortedTransaction] = []
        """Aborted transactions whose marker was read and whose data is not all gone: they stay in the
        index."""
        self._to_come = [(one.first_offset, place, one) for place, one in enumerate(aborted)]
        heapq.heapify(self._to_come)
        # Producer id -> its aborted transaction, and whether its data was read.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()

    def meet_data(self, header: BatchHeader) -> bool:
        """Whether a batch of records is removed because its transaction was aborted."""
        self._begin_until(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def meet_marker(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch may go: no data of its transaction was read since the previous marker."""
        self._begin_until(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_end_txn_marker(next(iter_records(batch, header)))
        if marker is None:
            return False
        producer_id = header.producer_id
        if not marker.committed:
            transaction, has_data = self._aborted.pop(producer_id, (None, False))
            if transaction is not None and has_data:
                self.kept.append(transaction)
            return not has_data
        has_data = producer_id in self._committed
        self._committed.discard(producer_id)
        return not has_data

    def _begin_until(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            transaction = heapq.heappop(self._to_come)[2]
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


class _Round:
    """The state of one round. `_least` is the lowest offset that the next batch may have."""

    def __init__(self, disk: Disk, job: CleaningJob, seed: bytes) -> None:
        self.statistics = CleaningStatistics()
        self._disk = disk
        self._pool = FilePool(disk)
        self._job = job
        slots = slots_of(job.memory_bytes)
        self._map = OffsetMap(slots, seed)
        self._entries_max = max(int(slots * job.load_factor), 1)
        last_offsets = frozenset(offset for _, _, offset in job.producers if offset >= 0)
        self._rules = FilterRules(job.end_offset, job.now_ms, last_offsets)
        self._marker_epochs = {producer: epoch for producer, epoch, offset in job.producers if offset < 0}
        self._transactions = Transactions(())
        self._least = 0
        self._copy = Copy(0, 0)
        self._unsynced_bytes = 0

    def run(self) -> Round:
        job = self._job
        yield from self._read_dirty()
        self.statistics.keys = len(self._map)
        first_dirty = self._map.latest_offset + 1
        covered = tuple(segment for segment in job.segments if segment.base_offset < first_dirty)
        groups = group_segments(
            covered,
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            index_interval_bytes=job.index_interval_bytes,
        )
        start = job.segments[0].base_offset if job.segments else 0
        self._transactions = Transactions(_reaching(job.aborted, start))
        self._least = start
        for group in groups:
            yield (yield from self._clean_group(group))
        return CleaningOutcome(first_dirty, self.statistics)

    # The dirty part

    def _read_dirty(self) -> Generator[int | CleanedGroup, None, None]:
        """Fill the map, until the dirty part ends or the map is full."""
        first_dirty = self._job.first_dirty
        self._transactions = Transactions(_reaching(self._job.aborted, first_dirty))
        self._least = 0
        for segment in self._job.segments:
            if segment.end_offset <= first_dirty:
                continue
            is_full = yield from self._walk(segment, self._index_many, self._index_one, self._count_indexed)
            if is_full:
                return
            # Up to the segment's end: offsets that are missing there are a gap.
            self._map.latest_offset = segment.end_offset - 1

    def _count_indexed(self, size_bytes: int) -> None:
        self.statistics.bytes_indexed += size_bytes

    def _index_many(self, data: bytes, position: int) -> tuple[int, bool]:
        position, self._least, is_full = index_batches(
            self._map, data, position, self._least, self._job.first_dirty, self._entries_max
        )
        return position, is_full

    def _index_one(self, data: bytes, position: int, header: BatchHeader) -> bool:
        """Take one batch of any kind into the map; returns whether the map is full."""
        batch = memoryview(data)[position : position + header.size_bytes]
        if header.last_offset < self._job.first_dirty:
            return False
        verify_crc(data, position, header)
        if header.is_control:
            self._transactions.meet_marker(header, batch)
        elif not self._transactions.meet_data(header) and header.record_count:
            is_full = index_section(
                self._map,
                self._section(batch, header),
                header.record_count,
                header.base_offset,
                self._job.first_dirty,
                self._entries_max,
            )
            if is_full:
                return True
        self._map.latest_offset = header.last_offset
        return False

    def _section(self, batch: memoryview, header: BatchHeader) -> bytes:
        return records_section(batch, header, record_bytes_max=self._job.record_bytes_max)

    # Through a segment

    def _walk(
        self,
        segment: JobSegment,
        many: Callable[[bytes, int], tuple[int, bool]],
        one: Callable[[bytes, int, BatchHeader], bool],
        count: Callable[[int], None],
    ) -> Generator[int | CleanedGroup, None, bool]:
        """Pass all batches of a segment to `many`, and the batches that `many` does not take to `one`, until
        one of them returns True. Yields the number of bytes read.
        """
        path = f"{self._job.directory}/{segment.base_offset:020d}{LOG}"
        file = self._disk.open(path)
        try:
            position, wanted_bytes = 0, self._job.buffer_bytes
            while position < segment.size_bytes:
                wanted_bytes = min(wanted_bytes, segment.size_bytes - position)
                data = file.read(position, wanted_bytes)
                if len(data) < wanted_bytes:
                    raise KafkaError(
                        ErrorCode.CORRUPT_MESSAGE, f"{path} ends before its {segment.size_bytes} bytes"
                    )
                try:
                    used, is_enough = self._show(data, many, one)
                except KafkaError as error:
                    where = f"{path} from position {position}"
                    raise KafkaError(error.code, f"{where}: {error.message}") from error
                count(used)
                yield used
                if is_enough:
                    return True
                position += used
                wanted_bytes = self._job.buffer_bytes
                if used == 0:
                    # The next batch is larger than the buffer.
                    wanted_bytes = _size_of_batch(data)
                    if not len(data) < wanted_bytes <= segment.size_bytes - position:
                        raise KafkaError(
                            ErrorCode.CORRUPT_MESSAGE,
                            f"{path} does not go on with a whole batch at position {position}",
                        )
            return False
        finally:
            file.close()

    def _show(
        self,
        data: bytes,
        many: Callable[[bytes, int], tuple[int, bool]],
        one: Callable[[bytes, int, BatchHeader], bool],
    ) -> tuple[int, bool]:
        """Pass the whole batches of `data` on; returns their size in bytes, and whether the walk is over."""
        position = 0
        while True:
            position, is_enough = many(data, position)
            if is_enough or len(data) - position < HEADER_SIZE_BYTES:
                return position, is_enough
            header = read_batch_header(data, position)
            if header.size_bytes > len(data) - position:
                return position, False
            if header.base_offset < self._least or header.last_offset_delta < 0:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"a batch from {header.base_offset} to {header.last_offset} stands where "
                    f"{self._least} or a later one is next",
                )
            if one(data, position, header):
                return position, True
            position += header.size_bytes
            self._least = header.last_offset + 1

    # Copying

    def _clean_group(self, group: list[JobSegment]) -> Generator[int | CleanedGroup, None, CleanedGroup]:
        """Copy the records that stay of some segments into a new one."""
        job = self._job
        base_offset = group[0].base_offset
        cleaned = Segment(self._pool, job.directory, base_offset, 0, job.now_ms, job.suffix)
        self._copy = Copy(base_offset, job.index_interval_bytes)
        is_done = False
        try:
            file = self._disk.open(cleaned.paths.path(LOG), create=True)
            try:
                file.truncate(0)
                for segment in group:
                    yield from self._copy_segment(file, segment)
                file.sync()
            finally:
                file.close()
            self._finish_files(cleaned, group)
            is_done = True
        finally:
            if not is_done:
                _remove_if_possible(cleaned)
        statistics = self.statistics
        statistics.bytes_written += self._copy.size_bytes
        statistics.records_read += self._copy.records_read
        statistics.records_kept += self._copy.records_kept
        return CleanedGroup(
            tuple(segment.base_offset for segment in group),
            self._copy.size_bytes,
            self._copy.max_timestamp_ms,
            self._copy.max_timestamp_offset,
        )

    def _copy_segment(self, file: File, segment: JobSegment) -> Generator[int | CleanedGroup, None, None]:
        walk = self._walk(segment, self._filter_many, self._filter_one, self._count_read)
        for used_bytes in walk:
            yield used_bytes
            if self._copy.pending_bytes >= self._job.buffer_bytes:
                yield self._write(file)
        if self._copy.pending_bytes:
            yield self._write(file)

    def _write(self, file: File) -> int:
        """Write the pending bytes; returns their number."""
        data = self._copy.take()
        write_all(file, self._copy.size_bytes - len(data), [data], len(data))
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes >= SYNC_EVERY_BYTES:
            self._unsynced_bytes = 0
            file.sync()
        return len(data)

    def _finish_files(self, cleaned: Segment, group: list[JobSegment]) -> None:
        """Write the indexes of a new segment, and give it the file time of the last replaced segment."""
        job, disk, copy = self._job, self._disk, self._copy
        cleaned.indexes.reset()
        for last_offset, position, timestamp_ms, timestamp_offset in copy.index_entries:
            cleaned.indexes.offset_index.append(last_offset, position)
            cleaned.indexes.time_index.append(timestamp_ms, timestamp_offset)
        cleaned.extent.max_timestamp_ms = copy.max_timestamp_ms
        cleaned.extent.max_timestamp_offset = copy.max_timestamp_offset
        cleaned.indexes.seal()
        cleaned.save_indexes(sync=True)
        aborted, self._transactions.kept = self._transactions.kept, []
        if aborted:
            file = disk.open(cleaned.paths.path(TRANSACTION_INDEX), create=True)
            try:
                content = encode_aborted(aborted)
                file.truncate(0)
                write_all(file, 0, [content], len(content))
                file.sync()
            finally:
                file.close()
        newest = f"{job.directory}/{group[-1].base_offset:020d}{LOG}"
        disk.set_modified_ms(cleaned.paths.path(LOG), disk.modified_ms(newest))

    def _count_read(self, size_bytes: int) -> None:
        self.statistics.bytes_read += size_bytes

    def _filter_many(self, data: bytes, position: int) -> tuple[int, bool]:
        position, self._least, is_enough = filter_batches(
            self._map, data, position, self._least, self._rules, self._copy
        )
        return position, is_enough

    def _filter_one(self, data: bytes, position: int, header: BatchHeader) -> bool:
        """Copy the records that stay of one batch of any kind."""
        verify_crc(data, position, header)
        batch = memoryview(data)[position : position + header.size_bytes]
        horizon_ms = header.delete_horizon_ms
        has_expired = horizon_ms is not None and horizon_ms <= self._job.now_ms
        if header.is_control:
            wants_horizon = self._transactions.meet_marker(header, batch)
            is_discarded = wants_horizon and has_expired
        else:
            is_discarded = self._transactions.meet_data(header)
            wants_horizon = False
        kept: memoryview | bytearray | None = None
        if header.record_count and not is_discarded:
            kept = self._kept_of(batch, header, wants_horizon, keeps_tombstones=not has_expired)
        elif header.record_count == 0 and self._stays_empty(header):
            kept = batch
        self._copy.records_read += header.record_count
        if kept is None and self._stays_empty(header):
            kept = _empty_batch(header)
        if kept is not None:
            made = header if kept is batch else read_batch_header(kept)
            self._copy.append(kept, made.last_offset, made.max_timestamp)
            self._copy.records_kept += made.record_count
        return False

    def _kept_of(
        self, batch: memoryview, header: BatchHeader, wants_horizon: bool, *, keeps_tombstones: bool
    ) -> memoryview | bytearray | None:
        """The batch with the records that stay; None without any."""
        section = self._section(batch, header)
        count, max_timestamp = header.record_count, header.max_timestamp
        is_changed = False
        if not header.is_control:
            selection = select_records(
                self._map, section, count, header.base_offset, header.base_timestamp, keeps_tombstones
            )
            if selection.record_count == 0:
                return None
            wants_horizon = selection.has_tombstones
            if selection.section is not None:
                is_changed, section, count = True, selection.section, selection.record_count
                max_timestamp = selection.max_timestamp
        wants_horizon = wants_horizon and header.delete_horizon_ms is None
        if not is_changed and not wants_horizon:
            return batch
        base_timestamp = header.base_timestamp
        if wants_horizon:
            base_timestamp = min(self._job.now_ms + self._job.delete_retention_ms, LONG_MAX)
            section = shift_timestamps(section, count, header.base_timestamp - base_timestamp)
        if header.uses_log_append_time:
            max_timestamp = header.max_timestamp
        attributes = header.attributes | (DELETE_HORIZON if wants_horizon else 0)
        return _sealed(header, attributes, base_timestamp, max_timestamp, count, section)

    def _stays_empty(self, header: BatchHeader) -> bool:
        """Whether a batch without records is needed for its header."""
        if header.last_offset + 1 == self._job.end_offset:
            return True
        if header.producer_id < 0:
            return False
        if header.last_offset in self._rules.kept_offsets:
            return True
        return header.is_control and self._marker_epochs.get(header.producer_id) == header.producer_epoch


def _reaching(aborted: tuple[AbortedTransaction, ...], offset: int) -> tuple[AbortedTransaction, ...]:
    """The transactions that end at `offset` or later."""
    return tuple(one for one in aborted if one.last_offset >= offset)


def _size_of_batch(data: bytes) -> int:
    """The size of the batch at the start of `data`, by its header; the size of a header if `data` is
    shorter."""
    if len(data) < HEADER_SIZE_BYTES:
        return HEADER_SIZE_BYTES
    length = int.from_bytes(data[LENGTH_POSITION : LENGTH_POSITION + 4], "big", signed=True)
    return length + LOG_OVERHEAD_BYTES


def _empty_batch(header: BatchHeader) -> bytearray:
    """A batch without records: offsets, producer and sequences, the latest timestamp."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON)
    return _sealed(header, attributes, -1, header.max_timestamp, 0, b"")


def _sealed(
    header: BatchHeader,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
    section: bytes,
) -> bytearray:
    """A batch of these records that replaces another one."""
    batch = bytearray(HEADER_SIZE_BYTES)
    codec = attributes & COMPRESSION_MASK
    batch += compress(codec, section) if codec else section
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        header.leader_epoch,
        2,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    batch[17:21] = crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]).to_bytes(4, "big")
    return batch


def _remove_if_possible(segment: Segment) -> None:
    """The next start removes files that remain."""
    try:
        segment.remove()
    except OSError:
        pass
