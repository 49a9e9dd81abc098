"""End checkpoints: after a crash a fully flushed log need not be read.

An *end checkpoint* has the end of a fully flushed log: last segment, size of its file, offset. It is written
to `end-checkpoint` of the data directory with the other checkpoints, and at a clean stop. A log only
grows. So if a start finds the same last segment with the same size, later writes have not reached the disk:
it lists the directory and reads one file size, and the recovery can wait for the first use of the partition.
Otherwise the partition is recovered at once.

If the recovered log is shorter, after a cut of damaged batches, the end checkpoint is removed, on the disk
too, before the next append. `was_closed` is for a later clean start: a partition without a use between a
crash and a clean stop has not been recovered.

After a clean stop the log continues at this end, even if its last batch is damaged.

Kafka ignores the file.
"""

from typing import NamedTuple

from odradek.storage.disk import Disk
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import LOG, SWAP, SYNC_FAILED, file_name

END_CHECKPOINTS = "end-checkpoint"
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""A recovery that reads more, longer than 5 ms, runs at the start: the first client of the partition would
wait for it."""


class EndCheckpoint(NamedTuple):
    """The end of a fully flushed log. `base_offset` and `size_bytes` are of the last segment."""

    base_offset: int
    size_bytes: int
    offset: int
    was_closed: int = 0
    """1: written by a clean stop; there is nothing to recover."""

    def matches_checkpoint(self, recovery_point: int) -> bool:
        """Whether the recovery point is this end, or an earlier offset in the same segment
        (`Durability.recovery_checkpoint`)."""
        return max(self.base_offset, self.offset - 1) <= recovery_point <= self.offset

    def matches_segment(self, last: Segment) -> bool:
        """Whether the end fits this last segment."""
        return (last.base_offset, last.size_bytes) == self[:2]

    def matches_directory(self, disk: Disk, directory: str, names: list[str]) -> bool:
        """Whether the end fits a directory with these files. Raises `OSError`."""
        last = max((name for name in names if name.endswith(LOG)), default="")
        return (
            last == file_name(self.base_offset, LOG)
            and not any(name.endswith(SWAP) or name == SYNC_FAILED for name in names)
            and disk.size(f"{directory}/{last}") == self.size_bytes
        )
