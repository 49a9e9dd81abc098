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

from odradek.storage.disk import read_file
from odradek.storage.log.batches import scan
from odradek.storage.log.indexes import DamagedIndex
from odradek.storage.log.producer_state import ProducerState, decode_snapshot
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import SNAPSHOT, TRANSACTION_INDEX, file_name
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


@dataclass(slots=True, frozen=True)
class PendingCheckpoint:
    """A scan checkpoint before its flush; valid while `segment` is the active one."""

    segment: Segment
    offset: int
    position: int
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    snapshot: bytes


@dataclass(slots=True, frozen=True)
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
