"""Where a start after a crash begins to read, in the middle of a segment.

What may not have been flushed is read again after a crash. All that stands before it in its segment would
have to be read, too, for the sake of what is kept beside a log and written late: indexes, producers,
transactions. A *scan checkpoint* spares that. It says of an active segment how things were when the log ended
at an offset, and is made in three steps, each of which is only taken when the one before is safe from a loss
of power:

1. A `PendingCheckpoint` notes how things are at the log's end, and a flush comes that far.
2. What belongs to it is synced beside the log: both indexes and the transaction index as far as they go, and
   a snapshot of the producers, in Kafka's format and under the name that Kafka would give it.
3. A line of `head-checkpoint` in the data directory, which ends with a checksum like the others, says so.

From then on the first entries of those files are only added to: what is made anew takes another file's place
(`indexes.py`). A start believes a line as far as it fits what it finds (`restore_segment`): the segment is as
long, the last entry agrees with its batch, from there the batches lead to the very position and offset, the
snapshot and the first entries of the transaction index are sound. Whatever does not fit costs the scan
checkpoint, not the log: the segment is read whole then, and the snapshot goes.

Kafka passes the file over, and takes the snapshot for what it is.
"""

from dataclasses import dataclass
from typing import NamedTuple

from odradek.storage.disk import read_file
from odradek.storage.log.batches import HEADER_BYTES, scan
from odradek.storage.log.indexes import DamagedIndex
from odradek.storage.log.producer_state import ProducerState, decode_snapshot
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import SNAPSHOT, TRANSACTION_INDEX, file_name
from odradek.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from odradek.wire.errors import KafkaError

SCAN_CHECKPOINTS = "head-checkpoint"
SCAN_CHECKPOINT_INTERVAL_BYTES = 16 * 1024 * 1024
"""What a log grows by until the next scan checkpoint. To read so much takes 20 ms; to make a scan checkpoint,
five syncs."""


class ScanCheckpoint(NamedTuple):
    """What was there when the log ended at `offset`, in the segment that begins at `base_offset`."""

    base_offset: int
    offset: int
    position: int
    """Where the next batch begins in the log file."""
    index_count: int
    time_count: int
    aborted_count: int
    """Entries of the three indexes."""
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int


@dataclass(slots=True, frozen=True)
class PendingCheckpoint:
    """A scan checkpoint to be, for as long as `segment` is the active one."""

    segment: Segment
    offset: int
    position: int
    bytes_since_index: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    snapshot: bytes


@dataclass(slots=True, frozen=True)
class RestoredSegment:
    """What a start knows of a segment without having read what is before its scan checkpoint."""

    segment: Segment
    checkpoint: ScanCheckpoint
    producers: ProducerState
    aborted: list[AbortedTransaction]
    had_nothing_else: bool
    """Whether the index files were as the scan checkpoint says, and no longer."""


def is_due(segment: Segment, checkpoint: ScanCheckpoint | None, interval_bytes: int) -> bool:
    """Whether an active segment has grown enough since its last scan checkpoint."""
    position = (
        checkpoint.position if checkpoint is not None and checkpoint.base_offset == segment.base_offset else 0
    )
    return segment.size_bytes - position >= interval_bytes


def restore_segment(segment: Segment, checkpoint: ScanCheckpoint) -> RestoredSegment | None:
    """Give the segment the indexes that it had at its checkpoint; None where anything does not fit."""
    if (
        checkpoint.base_offset != segment.base_offset
        or checkpoint.offset <= checkpoint.base_offset
        or not HEADER_BYTES <= checkpoint.position <= segment.size_bytes
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
    """Whether the batches from the last index entry on end where the scan checkpoint says, with the offset
    before.
    """
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
