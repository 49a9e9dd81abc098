"""Scan checkpoints: after a crash a segment is read only from its last scan checkpoint on.

After a crash the unflushed part of a log is read again. Without a scan checkpoint the part before it in the
segment would have to be read, too, to rebuild indexes, producers and transactions. A *scan checkpoint* has
the state of an active segment at an earlier end of the log. It is made in three steps; each begins when the
previous one is durable:

1. A `PendingCheckpoint` notes the state at the log's end, and a flush covers this end.
2. Its files are synced: both indexes and the transaction index up to this end, and a snapshot of the
   producers with Kafka's format and name.
3. A line is written to `scan-checkpoint` in the data directory; the file has a checksum like the others.

From then on these files only grow: a rebuilt file replaces the old one (`indexes.py`). A start uses a line
only if it fits the files (`restore_segment`): the segment is long enough, the last entry agrees with its
batch, the batches after it end at the position and offset of the line, the snapshot and the first entries of
the transaction index are sound. Otherwise the scan checkpoint is dropped: the whole segment is read, and the
snapshot is removed.

Kafka ignores the file, and may read the snapshot as its own.
"""

from dataclasses import dataclass
from typing import NamedTuple

from odradek.storage.disk import SyncFailed, read_file, sync_file
from odradek.storage.log._staging import AppendBuffer
from odradek.storage.log.batches import scan
from odradek.storage.log.durability import Durability
from odradek.storage.log.indexes import DamagedIndex
from odradek.storage.log.log_files import LogFiles
from odradek.storage.log.producer_state import ProducerState, decode_snapshot, encode_snapshot
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import SNAPSHOT, TRANSACTION_INDEX, file_name, note_failed_sync
from odradek.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from odradek.wire.errors import KafkaError
from odradek.wire.record_layout import HEADER_SIZE_BYTES

SCAN_CHECKPOINTS = "scan-checkpoint"
SCAN_CHECKPOINT_INTERVAL_BYTES = 16 * 1024 * 1024
"""Growth of a log until the next scan checkpoint. To read so many bytes takes 20 ms; a scan checkpoint takes
five syncs."""


class ScanCheckpoint(NamedTuple):
    """The state of the segment `base_offset` when the log ended at `offset`."""

    base_offset: int
    offset: int
    position: int
    """The position of the next batch in the log file."""
    index_count: int
    time_count: int
    aborted_count: int
    """Counts of entries of the three indexes."""
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class PendingCheckpoint:
    """A scan checkpoint before its flush; valid while `segment` is the active one."""

    segment: Segment
    offset: int
    position: int
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    snapshot: bytes


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class RestoredSegment:
    """The restored state of a segment at its scan checkpoint."""

    segment: Segment
    checkpoint: ScanCheckpoint
    producers: ProducerState
    aborted: list[AbortedTransaction]
    had_nothing_else: bool
    """Whether the index files had exactly the entries of the scan checkpoint."""


def is_due(segment: Segment, checkpoint: ScanCheckpoint | None, interval_bytes: int) -> bool:
    """Whether an active segment has grown enough since its last scan checkpoint."""
    position = (
        checkpoint.position if checkpoint is not None and checkpoint.base_offset == segment.base_offset else 0
    )
    return segment.size_bytes - position >= interval_bytes


def restore_segment(segment: Segment, checkpoint: ScanCheckpoint) -> RestoredSegment | None:
    """Restore the segment's indexes at its checkpoint; None if a file does not fit."""
    if (
        checkpoint.base_offset != segment.base_offset
        or checkpoint.offset <= checkpoint.base_offset
        or not HEADER_SIZE_BYTES <= checkpoint.position <= segment.size_bytes
    ):
        return None
    disk = segment.paths.disk
    try:
        had_nothing_else = segment.indexes.truncate_to(checkpoint.index_count, checkpoint.time_count)
        snapshot = read_file(disk, f"{segment.paths.directory}/{file_name(checkpoint.offset, SNAPSHOT)}")
        aborted = TransactionIndex()
        if checkpoint.aborted_count:
            path = segment.paths.path(TRANSACTION_INDEX)
            aborted = TransactionIndex.load(disk, path, checkpoint.aborted_count)
        leads_there = _leads_to(segment, checkpoint)
    except (OSError, DamagedIndex, KafkaError):
        return None
    producers = decode_snapshot(snapshot)
    if (
        not leads_there
        or producers is None
        or not aborted.is_within(checkpoint.base_offset, checkpoint.offset)
    ):
        return None
    segment.extent.max_timestamp_ms, segment.extent.max_timestamp_offset = (
        checkpoint.max_timestamp_ms,
        checkpoint.max_timestamp_offset,
    )
    segment.extent.bytes_since_index = checkpoint.bytes_since_index
    return RestoredSegment(segment, checkpoint, ProducerState(producers), list(aborted), had_nothing_else)


def _leads_to(segment: Segment, checkpoint: ScanCheckpoint) -> bool:
    """Whether the batches after the last index entry end at the position and offset of the scan
    checkpoint."""
    index = segment.indexes.offset_index
    latest, latest_offset = segment.indexes.time_index.last()
    if latest > checkpoint.max_timestamp_ms or latest_offset >= checkpoint.offset:
        return False
    position, indexed_offset = 0, None
    if len(index):
        relative, position = index.entry(len(index) - 1)
        indexed_offset = relative + segment.base_offset
    last_offset, end_position = -1, position
    for batch in scan(segment.file.read, position, checkpoint.position):
        last_offset, end_position = batch.last_offset, batch.end_position
        if indexed_offset not in (None, last_offset):
            return False
        indexed_offset = None
    return end_position == checkpoint.position and last_offset + 1 == checkpoint.offset


class ScanCheckpointing:
    """See the module. The steps of a checkpoint in a running log are `pending`, a flush, `write`, `sync`."""

    __slots__ = ("_buffer", "_durability", "_files", "_producers")

    def __init__(
        self, files: LogFiles, buffer: AppendBuffer, producers: ProducerState, durability: Durability
    ) -> None:
        self._files = files
        self._buffer = buffer
        self._producers = producers
        self._durability = durability

    def pending(self) -> PendingCheckpoint | None:
        """A checkpoint of the log's end; None while something is staged. Raises `OSError`."""
        buffer = self._buffer
        if buffer.next_offset != buffer.log_end_offset or buffer.is_cut_wanted:
            return None
        active = self._files.active
        return PendingCheckpoint(
            active,
            buffer.log_end_offset,
            active.size_bytes,
            active.extent.bytes_since_index,
            *active.indexes.latest_timestamp(),
            encode_snapshot(self._producers.producers),
        )

    def write(self, pending: PendingCheckpoint) -> ScanCheckpoint | None:
        """After a flush up to the pending checkpoint: write its files, without a sync. None if the segment is
        not active any more.

        Raises `OSError`, and KAFKA_STORAGE_ERROR if the transaction index is damaged.
        """
        segment = pending.segment
        if segment is not self._files.active:
            return None
        assert pending.offset <= self._durability.recovery_point
        counts = segment.indexes.entries_before(pending.offset)
        segment.save_indexes()
        self._files.write_snapshot(pending.offset, pending.snapshot)
        return ScanCheckpoint(
            segment.base_offset,
            pending.offset,
            pending.position,
            *counts,
            segment.transactions.index.count_before(pending.offset),
            pending.bytes_since_index,
            pending.max_timestamp_ms,
            pending.max_timestamp_offset,
        )

    def sync(self, pending: PendingCheckpoint) -> None:
        """Make the files of `write` survive a loss of power. May run in a worker thread. Raises as
        `Durability.flush`.
        """
        files = self._files
        path = files.snapshot_path(pending.offset)
        try:
            pending.segment.paths.sync_index_files()
            file = files.disk.open(path)
            try:
                sync_file(file, path)
            finally:
                file.close()
        except SyncFailed:
            note_failed_sync(files.disk, files.directory)
            raise
        files.disk.sync_directory(files.directory)

    def write_at_end(self, *, sync: bool = False) -> ScanCheckpoint | None:
        """Write indexes and a snapshot at the log's end; returns their scan checkpoint, which is valid once
        they are synced. None if the active segment is empty or its transaction index is damaged.
        """
        active, end_offset = self._files.active, self._buffer.log_end_offset
        active.indexes.seal()
        active.save_indexes(sync=sync)
        self._files.write_snapshot(end_offset, encode_snapshot(self._producers.producers), sync=sync)
        if active.size_bytes == 0:
            return None
        try:
            aborted_count = len(active.transactions.index)
        except KafkaError:
            return None
        return ScanCheckpoint(
            active.base_offset,
            end_offset,
            active.size_bytes,
            len(active.indexes.offset_index),
            len(active.indexes.time_index),
            aborted_count,
            active.extent.bytes_since_index,
            *active.indexes.latest_timestamp(),
        )

    def forget(self, scan_checkpoint: ScanCheckpoint) -> None:
        """Remove the snapshot of an earlier scan checkpoint. Raises `OSError`."""
        if scan_checkpoint.offset not in self._files.bases:
            self._files.disk.remove(self._files.snapshot_path(scan_checkpoint.offset))
