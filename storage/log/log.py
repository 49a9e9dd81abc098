"""The log of one partition: its segments, which appends fill, retention deletes and compaction replaces.

A `Log` handles bytes, offsets and timestamps; the partition decides which batches may be appended. Batches
are staged (no I/O, not visible to readers; `staging.py`) and committed together: one write for each segment.
When a write fails, all staged batches are taken back, on the disk too, before the error is raised.

The parts of a log: `files`, `staging`, `durability`, `reader` and `scan_checkpoints`.

Files are Kafka's: `topic-N/00000000000000000000.log` with `.index`, `.timeindex`, `.snapshot` and, where
transactions were aborted, `.txnindex` beside it.
"""

from collections.abc import Callable
from functools import partial

from odradek.storage.config import LogConfig
from odradek.storage.disk import SyncFailed
from odradek.storage.log._staging import AppendBuffer, StagedSegment
from odradek.storage.log.durability import Durability
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_files import LogFiles
from odradek.storage.log.log_reader import LogReader
from odradek.storage.log.producer_state import ProducerState, encode_snapshot
from odradek.storage.log.scan_checkpoint import ScanCheckpoint, ScanCheckpointing
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import (
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    note_failed_sync,
)
from odradek.storage.log.staging import Staging
from odradek.storage.log.transaction_index import AbortedTransaction
from odradek.wire.work import Work

READ_SOONER_BYTES = 4096
"""A start reads a log up to this size, in one segment, faster than its indexes and snapshot. A stop of many
logs does not write these files: they would be thirty thousand for ten thousand partitions, and take most of
its time."""
_OF_A_START = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)


class Log:
    """See the module. `segments` and `bases` are the lists of `files`, `buffer` has the staged batches."""

    __slots__ = (
        "_is_written_down",
        "_written_checkpoint",
        "bases",
        "buffer",
        "config",
        "durability",
        "files",
        "leader_epochs",
        "producers",
        "reader",
        "scan_checkpoints",
        "segments",
        "staging",
    )

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        log_end_offset: int,
        producers: ProducerState,
        leader_epochs: LeaderEpochs,
        recovery_point: int,
    ) -> None:
        self.config = config
        self.files = LogFiles(pool, directory, segments)
        self.segments = segments
        self.bases = self.files.bases
        for segment, limit_offset in zip(segments, [*self.bases[1:], log_end_offset], strict=True):
            segment.inherited.begin(limit_offset)
        self.producers = producers
        self.leader_epochs = leader_epochs
        self.buffer = buffer = AppendBuffer(log_end_offset, producers.table, recovery_point)
        # True after a recovery: a clean stop has to write indexes and a snapshot.
        buffer.is_changed = recovery_point < log_end_offset
        self.durability = Durability(self.files, buffer, leader_epochs, recovery_point)
        self.reader = LogReader(self.files, buffer)
        self.scan_checkpoints = ScanCheckpointing(self.files, buffer, producers, self.durability)
        self.staging = Staging(self.files, buffer, producers, leader_epochs, config)
        # Whether the files of `write_down` are synced; and their scan checkpoint, if there is one.
        self._is_written_down = False
        self._written_checkpoint: ScanCheckpoint | None = None
        # For files of an earlier run, too: space that a crash left reserved is freed as usual.
        self.active.file.is_reserved = config.preallocate

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record, without staged batches."""
        return self.buffer.log_end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next record after the staged batches."""
        return self.buffer.next_offset

    @property
    def durable_offset(self) -> int:
        """The offset up to which the files or the flush journal are flushed."""
        return self.buffer.durable_offset

    @property
    def has_staged(self) -> bool:
        return self.buffer.next_offset != self.buffer.log_end_offset

    def set_config(self, config: LogConfig) -> None:
        """Use new settings, for later segments and the rolling of the current one."""
        self.config = config
        self.staging.set_config(config)

    # Committing

    def commit(self) -> None:
        """Write the staged batches. After an `OSError` the log and the disk are in the state before the
        staging.
        """
        buffer = self.buffer
        if not self.has_staged:
            return
        stage = buffer.stage
        try:
            if buffer.is_cut_wanted:
                self._cut()
            if buffer.full_segments:
                self._commit_with_rolls()
            else:
                buffer.write(stage)
                self._write_aborted(stage)
        except OSError:
            self.rollback()
            raise
        if not buffer.full_segments:
            buffer.add_hint(stage.segment)
        buffer.full_segments.clear()
        self._apply(stage)
        buffer.aborted.clear()
        buffer.committed()
        for epoch, start_offset in buffer.epochs:
            self.leader_epochs.assign(epoch, start_offset)
        buffer.epochs.clear()

    def _write_aborted(self, stage: StagedSegment) -> None:
        """Called after the batches are written: an entry without its marker would hide later records at these
        offsets."""
        aborted = self._aborted_in_stage(stage)
        if aborted:
            stage.segment.transactions.write(aborted)

    def _aborted_in_stage(self, stage: StagedSegment) -> list[AbortedTransaction]:
        return [aborted for place, aborted in self.buffer.aborted if place is stage]

    def _apply(self, stage: StagedSegment) -> None:
        """`AppendBuffer.apply`, with the aborted transactions."""
        self.buffer.apply(stage)
        aborted = self._aborted_in_stage(stage)
        if not aborted:
            return
        if not stage.segment.transactions.has_aborted():
            # The directory has the name of a new file.
            self.durability.directory_is_synced = False
            self.reader.transaction_index_added()
        stage.segment.transactions.commit(aborted)

    def _commit_with_rolls(self) -> None:
        """Fill the active segment, make the new segments and fill them; then add all of them to the log."""
        made: list[Segment] = []
        stages = [*self.buffer.full_segments, self.buffer.stage]
        try:
            for number, stage in enumerate(stages):
                if number:
                    stage.segment.file.close()
                    segment = Segment.create(
                        self.files.pool,
                        self.files.directory,
                        stage.segment.base_offset,
                        stage.segment.created_ms,
                    )
                    made.append(segment)
                    self._reserve(segment)
                    stage.segment = segment
                    self.files.write_snapshot(segment.base_offset, stages[number - 1].snapshot or b"")
                if stage.parts:
                    self.buffer.write(stage)
                self._write_aborted(stage)
        except OSError:
            for segment in made:
                self._discard(segment)
            raise
        for stage in stages[:-1]:
            self._apply(stage)
            stage.segment.indexes.seal()
            stage.segment.file.release_reserved()
            self._save_indexes_if_possible(stage.segment)
        self.files.add(made)
        self.durability.directory_is_synced = False

    def _reserve(self, segment: Segment) -> None:
        if self.config.preallocate:
            segment.file.reserve(self.buffer.segment_bytes)

    def _save_indexes_if_possible(self, segment: Segment) -> None:
        """After an error the index stays in memory, and is written before the next checkpoint."""
        try:
            segment.save_indexes()
        except OSError:
            pass

    def rollback(self) -> None:
        """Remove the staged batches, and cut bytes of a failed commit from the file."""
        if not self.has_staged:
            return
        buffer = self.buffer
        buffer.next_offset = buffer.log_end_offset
        buffer.full_segments.clear()
        buffer.aborted.clear()
        buffer.epochs.clear()
        self.producers.rollback()
        buffer.stage = self.staging.new_stage(self.active)
        try:
            self._cut()
        except OSError:
            buffer.is_cut_wanted = True

    def _cut(self) -> None:
        file = self.active.file.open()
        if file.size() != self.active.size_bytes:
            file.truncate(self.active.size_bytes)
            # A loss of power may undo the cut. Then a replay of the flush journal would take batches of the
            # failed commit for those of another broker and skip its entries: the files have to be flushed.
            self.durability.invalidate_flushed_position()
        self.active.transactions.truncate()
        self.buffer.is_cut_wanted = False

    def _discard(self, segment: Segment) -> None:
        """Remove a segment of a failed commit."""
        segment.file.close()
        for kind in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT):
            try:
                self.files.disk.remove(segment.paths.path(kind))
            except OSError:
                # A file that remains is an empty or torn segment after the end, which recovery removes.
                pass
        # The name may be on the disk, and the file would hide later appends: the next flush has to sync the
        # directory. Set last, since a flush under way may have synced it before the removal.
        self.durability.directory_is_synced = False

    # Segments

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now. Nothing may be staged. No change if the active segment is empty."""
        assert not self.has_staged
        if self.active.size_bytes == 0:
            return
        if self.buffer.is_cut_wanted:
            # `_cut` needs the active segment of the failed commit.
            self._cut()
        old = self.active
        segment = Segment.create(self.files.pool, self.files.directory, self.log_end_offset, now_ms)
        try:
            self.files.write_snapshot(segment.base_offset, encode_snapshot(self.producers.producers))
        except OSError:
            self._discard(segment)
            raise
        self._reserve(segment)
        old.indexes.seal()
        old.file.release_reserved()
        self._save_indexes_if_possible(old)
        self.files.add([segment])
        self.buffer.is_changed = True
        self.durability.directory_is_synced = False
        self.buffer.stage = self.staging.new_stage(segment)

    def drop_segments(self, count: int, now_ms: int) -> list[Segment]:
        """Remove the oldest segments from the log and rename their files; the caller removes the files later.
        Returns fewer than `count` after an error of the disk. `OSError`: no segment was removed.
        """
        if count == len(self.segments):
            self.roll(now_ms)
        dropped: list[Segment] = []
        try:
            for segment in self.segments[:count]:
                segment.paths.mark_deleted()
                dropped.append(segment)
        except OSError:
            if not dropped:
                raise
        self.files.replace(0, len(dropped), [])
        self.reader.segments_changed()
        return dropped

    def replacing_segments(
        self, old: list[Segment], cleaned: Segment, is_current: Callable[[], bool]
    ) -> Work[list[Segment]]:
        """Replace neighbouring segments with a cleaned one; returns the replaced segments, whose files are
        renamed.

        Atomic after a crash: once the cleaned log has the suffix `.swap`, a start finishes the replacement;
        before, it uses the old segments. `is_current` returns whether these are still in the log; if not, the
        new files are removed and the result is empty.
        """
        directory = self.files.directory
        cleaned.change_suffix(SWAP)
        yield partial(self.files.disk.sync_directory, directory)
        if not is_current():
            cleaned.remove()
            return []
        self.files.replace(self.segments.index(old[0]), len(old), [cleaned])
        self.reader.segments_changed()
        to_delete: list[Segment] = []
        for segment in old:
            if self.files.directory != directory:
                # The partition was deleted meanwhile with its files; a new topic may have files of these
                # names.
                return to_delete
            segment.paths.mark_deleted()
            to_delete.append(segment)
            yield None
        if self.files.directory == directory and cleaned in self.segments:
            cleaned.change_suffix("")
            yield partial(self.files.disk.sync_directory, directory)
        return to_delete

    # Closing and moving

    @property
    def is_changed(self) -> bool:
        """Whether `close` has files to write."""
        return self.buffer.is_changed

    def write_down(self) -> None:
        """Write the files of `close` without a sync, unless the next start is faster without them: the caller
        does this for many logs, syncs the file system, then calls `is_safe`. Removes the staged batches.
        """
        self.rollback()
        if self.buffer.is_cut_wanted:
            self._cut()
        self._written_checkpoint = None
        if not self._is_read_sooner():
            for segment in self.durability.segments_with_unsafe_indexes():
                segment.save_indexes()
            self._written_checkpoint = self.scan_checkpoints.write_at_end()
        if self.leader_epochs.dirty:
            self.durability.save_leader_epochs(sync=False)
            # A `close` without a call of `is_safe` has to write and sync the files again.
            self.leader_epochs.dirty = True

    def is_safe(self) -> None:
        """The files of `write_down` are synced: `close` only has to close the files."""
        self.durability.mark_all_flushed()
        self.buffer.is_changed = False
        self._is_written_down = True

    def close(self, scan_checkpoint: ScanCheckpoint | None = None) -> ScanCheckpoint | None:
        """Flush, and write the indexes and a producer snapshot for a fast start. Returns their scan
        checkpoint, or the previous `scan_checkpoint` if nothing has changed.
        """
        self.rollback()
        if self.buffer.is_cut_wanted:
            self._cut()
        self.active.file.release_reserved()
        if self.buffer.is_changed:
            self.durability.flush()
            try:
                scan_checkpoint = self.scan_checkpoints.write_at_end(sync=True)
            except SyncFailed:
                note_failed_sync(self.files.disk, self.files.directory)
                raise
            # The names of the index files, too: the recovery point will be after their batches.
            self.files.disk.sync_directory(self.files.directory)
        elif self._is_written_down:
            scan_checkpoint = self._written_checkpoint
        if self.leader_epochs.dirty:
            self.durability.save_leader_epochs()
        self.durability.mark_indexes_safe()
        self.files.close()
        return scan_checkpoint

    def _is_read_sooner(self) -> bool:
        """Whether the next start needs no indexes and no snapshot: it rebuilds them from a few batches, and
        the recovery point is the log's end. Existing files have to be updated.
        """
        # A producer whose last batch was deleted is only in a snapshot.
        may_miss_batches = self.config.is_compacted and bool(self.producers.producers)
        return (
            self.bases == [0]
            and self.active.size_bytes <= min(self.config.index_interval_bytes, READ_SOONER_BYTES)
            and not may_miss_batches
            and not any(name.endswith(_OF_A_START) for name in self.files.disk.list(self.files.directory))
        )

    def relocate(self, directory: str, flushed_offset: int) -> None:
        """Continue in `directory`, which has a copy of all committed bytes, flushed up to an offset; the name
        of the directory is not synced.
        """
        self.files.move_to_copy(directory)
        self.durability.moved(flushed_offset)
        self.buffer.is_cut_wanted = False
        self.buffer.is_changed = True
