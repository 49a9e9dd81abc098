"""A log at one moment: the files of a copy that opens as after a clean stop.

The log goes on; no file is read, and none is written but indexes that a full disk has not let be saved. What
the copy consists of, and why a hard link is enough for most of it:

- A closed segment is not changed in place any more. Its log file was filled, retention and compaction rename
  and remove it, a new one of compaction has another inode. Its indexes are saved when it is closed.
- A start after a crash cuts the indexes of the segment with the recovery point in place, to the scan
  checkpoint. So a link is not enough for the indexes of segments after the recovery point on the disk.
- A snapshot of producers is written in place only at the end of the log; `leader-epoch-checkpoint` and
  `partition.metadata` are replaced by renames.
- The active segment grows: the copy has its bytes up to the end of the log. Its indexes, and the producers
  at that end, are in memory; a copy has what a clean stop would write, unless a start reads the segment
  sooner.
"""

from collections.abc import Callable
from dataclasses import dataclass

from odradek.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, encode_leader_epochs
from odradek.storage.log.log import Log
from odradek.storage.log.producer_state import encode_snapshot
from odradek.storage.log.segment_paths import (
    INDEX,
    INDEX_KINDS,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from odradek.storage.log.transaction_index import encode_aborted

_KINDS = (LOG, *INDEX_KINDS, SNAPSHOT)
READ_BYTES_MAX = 262_144
"""A start reads an active segment up to this size in less time than ext4 takes to make files of its indexes
and of the producers."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LogStill:
    """Files by their names in the directory of the log. All but log files may be missing there."""

    end_offset: int
    closed: list[str]
    """A hard link is enough."""
    copied: dict[str, int | None]
    """These have to be copied, up to so many bytes; None: whole."""
    made: dict[str, bytes]
    """Files with this content, in place of files of these names."""


def still_of(log: Log, recovery_point: int) -> LogStill:
    """The log as it is now. `recovery_point` is the one on the disk. Nothing may be staged. Raises `OSError`,
    and KAFKA_STORAGE_ERROR if a transaction index is damaged."""
    assert not log.has_staged
    for segment in log.durability.segments_with_unsafe_indexes():
        if segment is not log.active:
            segment.save_indexes()
    closed, copied = [PARTITION_METADATA], dict[str, int | None]()
    for base_offset, end_offset in zip(log.bases, log.bases[1:], strict=False):
        closed += [file_name(base_offset, LOG), file_name(base_offset, SNAPSHOT)]
        indexes = [file_name(base_offset, kind) for kind in INDEX_KINDS]
        if end_offset <= recovery_point:
            closed += indexes
        else:
            copied |= dict.fromkeys(indexes)
    active = log.active
    if active.size_bytes:
        closed.append(file_name(active.base_offset, SNAPSHOT))
    else:
        copied[file_name(active.base_offset, SNAPSHOT)] = None
    copied[file_name(active.base_offset, LOG)] = active.size_bytes
    made = {}
    if active.transactions.has_aborted():
        made[file_name(active.base_offset, TRANSACTION_INDEX)] = encode_aborted(active.transactions.index)
    if active.size_bytes > READ_BYTES_MAX or not _has_producers_before(log):
        made |= _made_at_end(log)
    if log.leader_epochs.epochs:
        # A flush in its thread may be about to write them.
        made[LEADER_EPOCHS] = encode_leader_epochs(log.leader_epochs.entries())
    return LogStill(log.log_end_offset, closed, copied, made)


def _has_producers_before(log: Log) -> bool:
    """Whether a start finds all producers in the active segment and in the snapshot before it."""
    active = log.active
    return active.base_offset == 0 or active.paths.exists(SNAPSHOT)


def _made_at_end(log: Log) -> dict[str, bytes]:
    """The files that a clean stop writes of the end of a log."""
    active = log.active
    made = {file_name(log.log_end_offset, SNAPSHOT): encode_snapshot(log.producers.producers)}
    if active.size_bytes:
        made[file_name(active.base_offset, INDEX)] = active.indexes.offset_index.encode()
        made[file_name(active.base_offset, TIME_INDEX)] = active.indexes.time_index.encode()
    return made


def closed_names(names: list[str], size_of: Callable[[str], int]) -> set[str]:
    """The files, of those in the directory of a log that nobody uses, that a broker will not change in place
    when it opens the log without a recovery. `size_of` gives the size of a file."""
    last = max((base for name in names if (base := base_offset_of(name, LOG)) is not None), default=0)
    found = {
        name
        for name in names
        if name in (PARTITION_METADATA, LEADER_EPOCHS)
        or any((base := base_offset_of(name, kind)) is not None and base < last for kind in _KINDS)
    }
    before = file_name(last, SNAPSHOT)
    if before in names and size_of(file_name(last, LOG)):
        found.add(before)
    return found
