"""Searches by timestamp: the first record at or after a time, and the record with the latest timestamp.

Time indexes and headers lead to a batch, whose records are then read. Each search is a `Work`: other work
runs between its steps, and large batches are read in a worker thread. The result may be after the high
watermark. Raises `OSError`; `FileNotFoundError` if a segment was removed meanwhile.
"""

from collections.abc import Callable, Sequence
from functools import partial

from odradek.storage.log.availability import PartitionState
from odradek.storage.log.batches import StoredBatch
from odradek.storage.log.log import Log
from odradek.storage.log.segment import Segment
from odradek.wire._records import read_batch_header
from odradek.wire.records import first_over, record_too_large, records_section, scan_records
from odradek.wire.work import Work

CODEC_MASK = 0b111
QUICK_BATCH_BYTES_MAX = 16_384
"""Up to this size a batch is read faster in the event loop than in another thread."""

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""


class TimestampSearch:
    """The searches of a partition, for its clients."""

    __slots__ = ("_appender", "_availability", "_partition")

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition
        self._appender = partition.appender
        self._availability = partition.availability

    def finding_timestamp(self, timestamp_ms: int) -> Work[Found | None]:
        """(timestamp, offset, leader epoch) of the first record with `timestamp_ms` or later; None if there
        is none.

        Only records that READ_UNCOMMITTED can read count. Refuses with KAFKA_STORAGE_ERROR after an error of
        the disk.
        """
        return self._searching(lambda log: finding_first(log, timestamp_ms, self._appender.log_start_offset))

    def finding_max_timestamp(self) -> Work[Found | None]:
        """(timestamp, offset, leader epoch) of the first record with the latest timestamp; None if the log is
        empty. The offset may be before the log start.
        """
        return self._searching(finding_latest)

    def _searching(self, search: Callable[[Log], Work[Found | None]]) -> Work[Found | None]:
        """Repeats a search when a segment that it needs was removed meanwhile."""
        with self._availability.reading():
            while True:
                log = self._partition.log
                segments = list(log.segments)
                try:
                    found = yield from search(log)
                except FileNotFoundError:
                    if segments == self._partition.log.segments:
                        raise
                    continue
                if found is None or found[1] >= self._appender.high_watermark.offset:
                    return None
                return found

    def segments_written(self) -> list[tuple[int, int]]:
        """(base offset, time of the last write to its file in ms) of every segment. Refuses with
        KAFKA_STORAGE_ERROR after an error of the disk.
        """
        with self._availability.reading():
            return [
                (segment.base_offset, segment.paths.modified_ms()) for segment in self._partition.log.segments
            ]


def finding_first(log: Log, timestamp_ms: int, start_offset: int) -> Work[Found | None]:
    """The first record at or after `start_offset` with `timestamp_ms` or later."""
    while True:
        found = yield from log.reader.finding_timestamp(timestamp_ms, start_offset)
        if found is None:
            return None
        segment, batch = found
        limit = log.config.max_decompressed_message_bytes
        first = yield from _looking_into(segment, batch, timestamp_ms, start_offset, limit)
        if first is not None:
            return first
        # The timestamp of the header is later than its records: continue after this batch.
        start_offset = batch.last_offset + 1


def finding_latest(log: Log) -> Work[Found | None]:
    """The first stored record with the latest timestamp. INVALID_RECORD: see `_first_record_at`.

    As in Kafka also a record before the log start, while its segment exists.
    """
    bounds = []
    for segment in list(log.segments):
        yield None if segment.indexes.knows_latest_timestamp else segment.preload_for_retention
        bounds.append((-segment.indexes.latest_timestamp()[0], segment.base_offset, segment))
    latest: Found | None = None
    # In the order of the segments' latest timestamps, which are too high after compaction of the latest
    # records.
    for bound, _, segment in sorted(bounds, key=lambda one: one[:2]):
        if bound > 0 or (latest is not None and -bound < latest[0]):
            break
        found = yield from _finding_latest_in(segment, log.config.max_decompressed_message_bytes)
        if found is not None and (latest is None or (-found[0], found[1]) < (-latest[0], latest[1])):
            latest = found
    return latest


def _finding_latest_in(segment: Segment, record_bytes_max: int) -> Work[Found | None]:
    """The first record of a segment with its latest timestamp."""
    timestamp_ms, last_offset = segment.indexes.latest_timestamp()
    start_offset = segment.base_offset
    if not segment.indexes.are_loaded:
        yield segment.indexes.preload
    for batch in segment.stepping(segment.indexes.lookup(last_offset)):
        if not isinstance(batch, StoredBatch):
            yield batch
            continue
        if batch.max_timestamp == timestamp_ms:
            found = yield from _looking_into(segment, batch, timestamp_ms, start_offset, record_bytes_max)
            if found is not None:
                return found
            break
        if batch.base_offset > last_offset:
            break
        yield None
    # The record with this timestamp was compacted: read all batches.
    latest: Found | None = None
    for batch in segment.stepping(segment.indexes.lookup(start_offset)):
        if not isinstance(batch, StoredBatch):
            yield batch
            continue
        yield None
        if latest and batch.max_timestamp <= latest[0]:
            continue
        table, too_large = yield partial(_timestamps_of, segment, batch, record_bytes_max)
        if too_large is not None:
            raise record_too_large(record_bytes_max)
        for offset, timestamp in table:
            if timestamp > (latest[0] if latest else -1):
                latest = timestamp, offset, batch.leader_epoch
    return latest


def _looking_into(
    segment: Segment, batch: StoredBatch, timestamp_ms: int, start_offset: int, record_bytes_max: int
) -> Work[Found | None]:
    """The first record of a batch at or after `start_offset` that is not older than `timestamp_ms`."""
    look = partial(_first_record_at, segment, batch, timestamp_ms, start_offset, record_bytes_max)
    is_quick = batch.size_bytes <= QUICK_BATCH_BYTES_MAX and not batch.attributes & CODEC_MASK
    first = look() if is_quick else (yield look)
    return None if first is None else (*first, batch.leader_epoch)


def _first_record_at(
    segment: Segment, batch: StoredBatch, timestamp_ms: int, start_offset: int, record_bytes_max: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record of a batch at or after `start_offset` that is not older than
    `timestamp_ms`. May run in a worker thread; for a large batch it releases the GIL. Refuses with
    INVALID_RECORD a compressed batch in which a record over `record_bytes_max` comes before.
    """
    table, too_large = _timestamps_of(segment, batch, record_bytes_max)
    for index, (offset, timestamp) in enumerate(table):
        if index == too_large:
            raise record_too_large(record_bytes_max)
        if timestamp >= timestamp_ms and offset >= start_offset:
            return timestamp, offset
    return None


def _timestamps_of(
    segment: Segment, batch: StoredBatch, record_bytes_max: int
) -> tuple[list[tuple[int, int]], int | None]:
    """(offset, timestamp) of each record of a batch, and the index of the first record over
    `record_bytes_max` if the batch is compressed. May run in a worker thread."""
    with segment.file.pinned() as file:
        data = memoryview(file.read(batch.position, batch.size_bytes))
    header = read_batch_header(data)
    if header.record_count == 0:
        return [], None  # compaction leaves empty batches
    section = records_section(data, header)
    table = scan_records(section, header.record_count, header.base_offset, header.base_timestamp)
    timestamps: Sequence[int] = table.timestamps
    if header.uses_log_append_time:
        timestamps = [header.max_timestamp] * len(table.offsets)
    too_large = None
    if batch.attributes & CODEC_MASK:
        too_large = first_over(section, header.record_count, record_bytes_max)
    return list(zip(table.offsets, timestamps, strict=True)), too_large
