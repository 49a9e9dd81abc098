"""Which part of a log survives a loss of power: flushes, the recovery point, and unflushed files.

A flush syncs the files up to the log's end. It also syncs the indexes of sealed segments, the names of new
files and the name of a new directory, if they are not durable yet.

End checkpoints: after a crash a fully flushed log need not be read. An *end checkpoint* has the end of such a
log: last segment, size of its file, offset. It is written to `end-checkpoint` of the data directory with the
other checkpoints, and at a clean stop. A log only grows. So if a start finds the same last segment with the
same size, later writes have not reached the disk: it lists the directory and reads one file size, and the
recovery can wait for the first use of the partition. Otherwise the partition is recovered at once.

If the recovered log is shorter, after a cut of damaged batches, the end checkpoint is removed, on the disk
too, before the next append. `was_closed` is for a later clean start: a partition without a use between a
crash and a clean stop has not been recovered.

After a clean stop the log continues at this end, even if its last batch is damaged.

Kafka ignores the file.
"""

from typing import NamedTuple

from odradek.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, write_leader_epochs
from odradek.storage.disk import Disk, SyncFailed, sync_file
from odradek.storage.log._staging import AppendBuffer
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_files import LogFiles
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import LOG, SWAP, SYNC_FAILED, file_name, note_failed_sync

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


class Durability:
    """See the module. `flush` may run in a worker thread during appends."""

    __slots__ = (
        "_buffer",
        "_directory_is_new",
        "_indexes_end",
        "_leader_epochs",
        "_waiting_from",
        "_waiting_since_ms",
        "_wanted_until",
        "directory_is_synced",
        "files",
        "has_moved",
        "recovery_point",
    )

    def __init__(
        self, files: LogFiles, buffer: AppendBuffer, leader_epochs: LeaderEpochs, recovery_point: int
    ) -> None:
        self.files = files
        self._buffer = buffer
        self._leader_epochs = leader_epochs
        # The files are flushed up to this offset. The buffer's `durable_offset` counts the journal, too.
        self.recovery_point = recovery_point
        active = files.active
        # The indexes of all segments that end before this offset are safe. Later index entries of the last
        # segment are not, even if its log is flushed.
        self._indexes_end = min(recovery_point, active.base_offset)
        # The name of an empty file may not be on the disk: no flush has synced it.
        self.directory_is_synced = recovery_point >= buffer.log_end_offset and active.size_bytes > 0
        # After a crash the directory's entry in its parent may not be durable.
        self._directory_is_new = not self.directory_is_synced
        # The directory's name is not durable after a move, until a flush.
        self.has_moved = False
        self._wanted_until = -1
        self._waiting_since_ms: int | None = None
        self._waiting_from = -1

    def flush(self) -> int:
        """Make all committed records survive a loss of power; returns the offset up to which they do.

        Raises `OSError`: nothing is known to be flushed; and `SyncFailed`: bytes that can still be read may
        be lost.
        """
        try:
            return self._flush()
        except SyncFailed:
            note_failed_sync(self.files.disk, self.files.directory)
            raise

    def _flush(self) -> int:
        end_offset = self._buffer.log_end_offset
        recovery_point = self.recovery_point
        active = self.files.active
        if (
            end_offset <= recovery_point
            and self.directory_is_synced
            and not self._leader_epochs.dirty
            and not self.has_unsafe_indexes
        ):
            return recovery_point
        flushed = (active, active.size_bytes, self._buffer.flush_epoch)
        indexes_end = self._indexes_end
        for segment in self.files.from_offset(min(recovery_point, indexes_end)):
            try:
                with segment.file.pinned() as file:
                    sync_file(file, segment.paths.path(LOG))
                if segment.base_offset > indexes_end:
                    # The snapshot may soon be the only source of open transactions.
                    segment.paths.sync_snapshot()
                if segment.base_offset < active.base_offset:
                    # Indexes of sealed segments before the recovery point are not rebuilt after a crash.
                    segment.sync_indexes()
            except FileNotFoundError:
                if not segment.paths.deleted:
                    raise
        self._indexes_end = max(self._indexes_end, active.base_offset)
        if self._leader_epochs.dirty:
            self.save_leader_epochs()
        if not self.directory_is_synced:
            self._sync_directory()
        if self._buffer.flushed_position is None or self._buffer.flushed_position[2] != flushed[2]:
            self._sync_identity()
        self._buffer.flushed_position = flushed
        self.mark_flushed_until(end_offset)
        return self.recovery_point

    def _sync_directory(self) -> None:
        # Cleared before the call: a segment that is made meanwhile needs another sync.
        self.directory_is_synced = True
        disk, directory = self.files.disk, self.files.directory
        try:
            disk.sync_directory(directory)
            if self._directory_is_new:
                disk.sync_directory(directory.rpartition("/")[0])
                self._directory_is_new = False
                self.has_moved = False
        except OSError:
            self.directory_is_synced = False
            raise

    def _sync_identity(self) -> None:
        """Sync `partition.metadata`, which was written without a sync: the flush journal needs the topic's
        id."""
        path = f"{self.files.directory}/{PARTITION_METADATA}"
        if self.files.disk.exists(path):
            file = self.files.disk.open(path)
            try:
                sync_file(file, path)
            finally:
                file.close()

    def save_leader_epochs(self, *, sync: bool = True) -> None:
        epochs = self._leader_epochs
        epochs.dirty = False
        path = f"{self.files.directory}/{LEADER_EPOCHS}"
        try:
            write_leader_epochs(self.files.disk, path, epochs.entries(), sync=sync)
        except OSError:
            epochs.dirty = True
            raise

    def mark_flushed_until(self, offset: int) -> None:
        """The log is flushed up to `offset`; indexes from a recovery are not."""
        self.recovery_point = max(self.recovery_point, offset)
        self._buffer.durable_offset = max(self._buffer.durable_offset, offset)

    def mark_all_flushed(self) -> None:
        """The whole file system was synced, after all bytes of this log were written."""
        end_offset = self._buffer.log_end_offset
        self.recovery_point = self._buffer.durable_offset = self._indexes_end = end_offset
        self.directory_is_synced = True
        self._directory_is_new = self._leader_epochs.dirty = self.has_moved = False

    def mark_indexes_safe(self) -> None:
        """The indexes of all segments are synced, the active one's too."""
        self._indexes_end = self._buffer.log_end_offset

    def moved(self, flushed_offset: int) -> None:
        """The files are in another directory now, flushed up to an offset; the directory's name is not
        synced."""
        self.recovery_point = self._buffer.durable_offset = flushed_offset
        self._indexes_end = self.files.active.base_offset
        self.invalidate_flushed_position()
        self.directory_is_synced = False
        self._directory_is_new = True
        self.has_moved = True

    def invalidate_flushed_position(self) -> None:
        """The next flush has to sync the files and the directory's identity; a flush that is under way does
        not count, since the files have changed meanwhile.
        """
        self._buffer.flush_epoch += 1

    @property
    def has_unsafe_indexes(self) -> bool:
        """Whether there are sealed segments with unflushed indexes."""
        return self._indexes_end < self.files.segments[-1].base_offset

    def segments_with_unsafe_indexes(self) -> list[Segment]:
        return self.files.from_offset(self._indexes_end)

    @property
    def recovery_checkpoint(self) -> int:
        """The offset from which a start after a crash has to read: `recovery_point`, or a little before it,
        in the segment with unsafe indexes. With a recovery point at its end the segment, once sealed, would
        be skipped.
        """
        point = self.recovery_point
        return point if point <= self._indexes_end else point - 1

    def end_checkpoint(self) -> EndCheckpoint | None:
        """The end of the log; None unless a flush has covered all of it."""
        buffer, active = self._buffer, self.files.active
        if (
            buffer.is_cut_wanted
            or self.recovery_point < buffer.log_end_offset
            or self.has_unsafe_indexes
            or not self.directory_is_synced
        ):
            return None
        return EndCheckpoint(active.base_offset, active.size_bytes, buffer.log_end_offset)

    def want_flush(self) -> None:
        """Request a flush of all committed records."""
        self._wanted_until = self._buffer.log_end_offset

    def wants_flush(self, now_ms: int, previous_ms: int, flush_ms: int) -> bool:
        """Whether sealed segments are not on the disk yet, or records would have waited for longer than
        `flush_ms` at the next call. `previous_ms` is the time of the last call.
        """
        if self.has_unsafe_indexes or self.has_moved:
            return True
        if self.recovery_point >= self._buffer.log_end_offset:
            return False
        if self.recovery_point < max(self.files.active.base_offset, self._wanted_until):
            return True
        if self._buffer.durable_offset >= self._buffer.log_end_offset:
            return False
        next_ms = now_ms + now_ms - previous_ms
        return next_ms - self._unflushed_since_ms(previous_ms) > flush_ms

    def _unflushed_since_ms(self, previous_ms: int) -> int:
        """The time since which records have waited for a flush, or a little earlier. An append does not note
        the time: new records count from the last call, at `previous_ms`.
        """
        if self._waiting_since_ms is None or self._waiting_from != self._buffer.durable_offset:
            self._waiting_since_ms = previous_ms
            self._waiting_from = self._buffer.durable_offset
        return self._waiting_since_ms
