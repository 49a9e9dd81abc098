"""Where a start after a crash has nothing to read, since a flush had the whole log.

An *end checkpoint* says how a log ended when a flush had all of it: in which segment, at which size of its
file, at which offset. It is a fact about bytes that the disk has for good, noted in `log-end-checkpoint` of
the data directory when the other checkpoints are written, and at a clean stop. A log only grows. So a start
that finds the same last segment with the same size knows that nothing has reached the file since, or that all
of it is gone again: one listing and one look at a file for each partition, and the recovery itself can wait
until somebody asks for the partition. Where anything else is found the partition is recovered at once.

It is given up, on the disk too, before a log goes on that is shorter than it says: what is damaged may
have to be cut. `was_closed` is for a later clean start: a partition that nobody asked for between a crash and
a clean stop has not been recovered.

After a clean stop it says, too, where the log goes on, should its last batch say something else.

Kafka passes the file over.
"""

from typing import NamedTuple

from odradek.storage.disk import Disk
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import LOG, SWAP, SYNC_FAILED, file_name

END_CHECKPOINTS = "log-end-checkpoint"
UNREAD_BYTES_MAX = 16 * 1024 * 1024
"""A recovery that reads more than this, 5 ms, does not wait: who asks for the partition would."""


class EndCheckpoint(NamedTuple):
    """How a log ended when a flush had all of it. `base_offset` and `size_bytes` are the last segment's."""

    base_offset: int
    size_bytes: int
    offset: int
    was_closed: int = 0
    """1: by a clean stop, which has left nothing to recover."""

    def matches_checkpoint(self, recovery_point: int) -> bool:
        """Whether the checkpoint of recovery points says this end, or the offset before it in the same
        segment (`Durability.recovery_checkpoint`)."""
        return max(self.base_offset, self.offset - 1) <= recovery_point <= self.offset

    def matches_segment(self, last: Segment) -> bool:
        """Whether a log with this last segment ends as noted."""
        return (last.base_offset, last.size_bytes) == self[:2]

    def matches_directory(self, disk: Disk, directory: str, names: list[str]) -> bool:
        """Whether the log in a directory with these files ends as noted. Raises `OSError`."""
        last = max((name for name in names if name.endswith(LOG)), default="")
        return (
            last == file_name(self.base_offset, LOG)
            and not any(name.endswith(SWAP) or name == SYNC_FAILED for name in names)
            and disk.size(f"{directory}/{last}") == self.size_bytes
        )
