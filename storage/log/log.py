"""The segments of one partition: staging and committing appends, rolling, finding and reading.

A `Log` knows bytes, offsets and timestamps. It judges nothing: what a client may append is decided in
`partition.py`. Appends are staged (no I/O, nobody sees them) and committed together: one write for each
segment they touch. When a write fails, everything staged is taken back, on the disk too, before the error
goes up.

Files are Kafka's: `topic-N/00000000000000000000.log` with `.index`, `.timeindex`, `.snapshot` and, where
transactions were aborted, `.txnindex` beside it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter

from odradek.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, write_leader_epochs
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.disk import Buffer, Disk, SyncFailed, sync_file, write_all
from odradek.storage.log._staging import AppendBuffer, StagedSegment
from odradek.storage.log.batches import HEADER_BYTES, StoredBatch, scan
from odradek.storage.log.end_checkpoint import EndCheckpoint
from odradek.storage.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.producer_state import ProducerState, encode_snapshot
from odradek.storage.log.retention import SegmentFacts
from odradek.storage.log.scan_checkpoint import PendingCheckpoint, ScanCheckpoint
from odradek.storage.log.segment import RELATIVE_OFFSET_MAX, Segment, segment_holding
from odradek.storage.log.segment_file import FilePool, SegmentFile
from odradek.storage.log.segment_paths import (
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
    note_failed_sync,
)
from odradek.storage.log.slices import EMPTY, FIRST_TOO_LARGE, Slice
from odradek.storage.log.transaction_index import AbortedTransaction
from odradek.storage.log.transactions import read_marker
from odradek.wire.checksums import crc32c
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import KafkaError
from odradek.wire.records import BatchHeader
from odradek.wire.work import Work

READ_SOONER_BYTES = 4096
"""A log up to here, that was never rolled, a start reads sooner than files about it, and a stop of many need
not make those: thirty thousand for ten thousand partitions, which takes most of its time."""
_OF_A_START = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
_base_offset_of = attrgetter("base_offset")


class Log:
    """See the module. What is staged is in `buffer`."""

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
        assert segments
        self.pool = pool
        self.directory = directory
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        for segment, limit_offset in zip(segments, [*self.bases[1:], log_end_offset], strict=True):
            segment.inherited.begin(limit_offset)
        self.producers = producers
        self.buffer = AppendBuffer(log_end_offset, producers.table, recovery_point)
        self.leader_epochs = leader_epochs
        # Up to which offset the files are flushed; `durable_offset` counts the flush journal, too.
        self.recovery_point = recovery_point
        # The indexes of all segments that end before it are safe. What is appended to the last one from here
        # on is not, however much of its log is flushed.
        self._indexes_end = min(recovery_point, segments[-1].base_offset)
        self._waiting_since_ms: int | None = None
        self._waiting_from = -1
        # The name of an empty file may not have reached the disk: no flush has made it safe.
        self._directory_is_synced = recovery_point >= log_end_offset and segments[-1].size_bytes > 0
        # After a recovery a clean stop has to write indexes and a snapshot.
        self.buffer.is_changed = recovery_point < log_end_offset
        # After a crash the directory's entry in its parent may not be durable.
        self._directory_is_new = not self._directory_is_synced
        # What `write_down` has left is safe; the scan checkpoint that it makes, if it does.
        self._is_written_down = False
        self._written_checkpoint: ScanCheckpoint | None = None
        # Moved here, and no flush has made the name of the directory safe.
        self._is_unsafe_place = False
        # Those with a transaction index, oldest first; None where that has to be looked up.
        self._with_aborted: list[Segment] | None = None
        # Where the last question for a position ended: (segment, offset, position).
        self._bound: tuple[Segment, int, int] | None = None
        self._jitter_ms = 0
        self._take_config(config)
        self.buffer.stage = self._new_stage(self.active)
        # Of an earlier run, too: what a crash left set aside is given back like the rest.
        self.active.file.is_reserved = config.preallocate

    @property
    def disk(self) -> Disk:
        return self.pool.disk

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record. What is staged does not count."""
        return self.buffer.log_end_offset

    @property
    def next_offset(self) -> int:
        """The same, if what is staged is committed."""
        return self.buffer.next_offset

    @property
    def durable_offset(self) -> int:
        """Up to here the files or the flush journal have been flushed."""
        return self.buffer.durable_offset

    def set_config(self, config: LogConfig) -> None:
        """Take new settings, for the segments to come and the rolling of the current one."""
        offsets_max, times_max = self._offset_entries_max, self._time_entries_max
        self._take_config(config)
        stage = self.buffer.stage
        stage.roll_after_ms = -2
        # Not counted anew: the index may have been dropped, and very many logs are told at once.
        stage.index_room += min(self._offset_entries_max - offsets_max, self._time_entries_max - times_max)
        self._jitter_ms = self._jitter_of(stage.segment.base_offset)

    def _take_config(self, config: LogConfig) -> None:
        self.config = config
        self.buffer.segment_bytes = config.segment_bytes
        self.buffer.index_interval_bytes = config.index_interval_bytes
        self._offset_entries_max = config.segment_index_bytes // OFFSET_ENTRY_BYTES
        # One place is kept for the entry that sealing adds (as in `TimeIndex.isFull`).
        self._time_entries_max = config.segment_index_bytes // TIME_ENTRY_BYTES - 1

    # Staging

    def stage(
        self,
        batch: Buffer,
        header: BatchHeader,
        first_offset: int,
        leader_epoch: int,
        now_ms: int,
        marker: EndMarker | None = None,
    ) -> None:
        """Take one batch, from `next_offset` or later on, and what it says of its producer; `marker` if it is
        known to be that. A large batch must not change until the commit.
        """
        buffer = self.buffer
        size_bytes, max_timestamp = header.size_bytes, header.max_timestamp
        last_offset = first_offset + header.last_offset_delta
        if not buffer.has_room(size_bytes, last_offset, max_timestamp):
            self._make_room(size_bytes, first_offset, last_offset, max_timestamp, now_ms)
        buffer.put(batch, first_offset, last_offset, max_timestamp, leader_epoch)
        producer_id = header.producer_id
        if producer_id < 0:
            return
        # After the room was made: the snapshot of a log that has rolled is of what came before this batch.
        if header.is_control:
            marker = read_marker(memoryview(batch), header) if marker is None else marker
            aborted = (
                None if marker is None else self.producers.stage_marker(marker, first_offset, max_timestamp)
            )
            if aborted is not None:
                buffer.aborted.append((buffer.stage, aborted))
            return
        buffer.producers.stage(
            producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            first_offset,
            last_offset,
            max_timestamp,
            # Compaction leaves an empty batch of a transaction that is long decided.
            header.is_transactional and header.record_count > 0,
        )

    def _make_room(
        self, size_bytes: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Roll if the batch does not belong into the newest segment."""
        stage = self.buffer.stage
        if stage.size_bytes and (
            stage.size_bytes + size_bytes > self.buffer.segment_bytes
            or (stage.index_room <= 0 and self._indexes_are_full(stage))
            or last_offset - stage.base_offset > RELATIVE_OFFSET_MAX
            or (
                max_timestamp > stage.roll_after_ms and self._waited_long_enough(stage, max_timestamp, now_ms)
            )
        ):
            stage = self._stage_roll(first_offset, now_ms)
        if stage.size_bytes == 0:
            stage.first_timestamp_ms = max_timestamp
            stage.roll_after_ms = -2

    def _new_stage(self, segment: Segment) -> StagedSegment:
        self.buffer.latest_epoch = self.leader_epochs.latest
        self._jitter_ms = self._jitter_of(segment.base_offset)
        return StagedSegment(segment, self._index_room(segment, []))

    def _index_room(self, segment: Segment, staged: list[tuple[int, int, int, int]]) -> int:
        """How many entries fit into both indexes, besides those that are staged."""
        try:
            offsets, times = segment.indexes.offset_index, segment.indexes.time_index
        except OSError:
            # A rollback must not fail on it; an index that cannot be read does not grow either.
            return self._offset_entries_max
        time_count = len(times)
        latest = times.last()[0]
        for _, _, timestamp_ms, _ in staged:
            if timestamp_ms > latest:
                time_count, latest = time_count + 1, timestamp_ms
        return min(self._offset_entries_max - len(offsets) - len(staged), self._time_entries_max - time_count)

    def _indexes_are_full(self, stage: StagedSegment) -> bool:
        """Counted anew: an entry that does not advance the time takes no room in its index."""
        stage.index_room = self._index_room(stage.segment, stage.index_entries)
        return stage.index_room <= 0

    def _jitter_of(self, base_offset: int) -> int:
        """`segment.jitter.ms` spreads the rolling of partitions; a hash does that as well as a die, and
        repeatably.
        """
        spread = min(self.config.segment_jitter_ms, self.config.roll_ms)
        return crc32c(f"{self.directory}/{base_offset}".encode()) % spread if spread > 0 else 0

    def _waited_long_enough(self, stage: StagedSegment, max_timestamp_ms: int, now_ms: int) -> bool:
        """As `LogSegment.timeWaitedForRoll`: by the timestamps of the records where they have one, else
        by the clock.
        """
        first = stage.first_timestamp_ms
        if first is None:
            try:
                first = stage.first_timestamp_ms = first_timestamp(stage.segment)
            except OSError:
                # Staging never fails: the clock has to do, and the commit will say whether the disk answers.
                first = -1
        patience_ms = self.config.roll_ms - self._jitter_ms
        if first < 0:
            return now_ms - stage.segment.created_ms > patience_ms
        # `segment.ms` may be the largest that there is, and compiled it is a field of 64 bits.
        stage.roll_after_ms = min(first + patience_ms, LONG_MAX)
        return max_timestamp_ms > stage.roll_after_ms

    def _stage_roll(self, base_offset: int, now_ms: int) -> StagedSegment:
        """Let what follows go to a new segment, which the commit will make."""
        stage = self.buffer.stage
        stage.snapshot = encode_snapshot(self.producers.producers)
        self.buffer.full_segments.append(stage)
        segment = Segment(self.pool, self.directory, base_offset, 0, now_ms)
        segment.indexes.reset()
        self.buffer.stage = StagedSegment(segment, self._index_room(segment, []))
        self._jitter_ms = self._jitter_of(base_offset)
        return self.buffer.stage

    # Committing

    @property
    def has_staged(self) -> bool:
        return self.buffer.next_offset != self.buffer.log_end_offset

    def commit(self) -> None:
        """Write what is staged. On `OSError` the log is what it was before the staging, and so is the
        disk.
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
        """After its batches: an entry whose marker is missing would hide what is appended there later."""
        aborted = self._aborted_in_stage(stage)
        if aborted:
            stage.segment.transactions.write(aborted)

    def _aborted_in_stage(self, stage: StagedSegment) -> list[AbortedTransaction]:
        return [aborted for place, aborted in self.buffer.aborted if place is stage]

    def _apply(self, stage: StagedSegment) -> None:
        """`AppendBuffer.apply`, with the transactions that were aborted."""
        self.buffer.apply(stage)
        aborted = self._aborted_in_stage(stage)
        if not aborted:
            return
        if not stage.segment.transactions.has_aborted():
            # The name of a new file.
            self._directory_is_synced = False
            self._with_aborted = None
        stage.segment.transactions.commit(aborted)

    def _commit_with_rolls(self) -> None:
        """Fill the active segment, make the new ones and fill them. Only then does the log know of any of
        it.
        """
        made: list[Segment] = []
        stages = [*self.buffer.full_segments, self.buffer.stage]
        try:
            for number, stage in enumerate(stages):
                if number:
                    stage.segment.file.close()
                    segment = Segment.create(
                        self.pool, self.directory, stage.segment.base_offset, stage.segment.created_ms
                    )
                    made.append(segment)
                    self._reserve(segment)
                    stage.segment = segment
                    self._write_snapshot(segment.base_offset, stages[number - 1].snapshot or b"")
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
        self.segments.extend(made)
        self.bases.extend(segment.base_offset for segment in made)
        self._directory_is_synced = False

    def _reserve(self, segment: Segment) -> None:
        if self.config.preallocate:
            segment.file.reserve(self.buffer.segment_bytes)

    def _save_indexes_if_possible(self, segment: Segment) -> None:
        """An index that could not be written stays in memory, and is written before the next checkpoint."""
        try:
            segment.save_indexes()
        except OSError:
            pass

    def _write_snapshot(self, offset: int, content: bytes, *, sync: bool = False) -> None:
        path = f"{self.directory}/{file_name(offset, SNAPSHOT)}"
        file = self.disk.open(path, create=True)
        try:
            write_all(file, 0, [content], len(content))
            # Not to nothing before: ext4 then waits for the device when the file is closed.
            if file.size() > len(content):
                file.truncate(len(content))
            if sync:
                sync_file(file, path)
        finally:
            file.close()

    def rollback(self) -> None:
        """Forget what is staged, and cut from the file what a failed commit may have written of it."""
        if not self.has_staged:
            return
        buffer = self.buffer
        buffer.next_offset = buffer.log_end_offset
        buffer.full_segments.clear()
        buffer.aborted.clear()
        buffer.epochs.clear()
        self.producers.rollback()
        buffer.stage = self._new_stage(self.active)
        try:
            self._cut()
        except OSError:
            buffer.is_cut_wanted = True

    def _cut(self) -> None:
        file = self.active.file.open()
        if file.size() != self.active.size_bytes:
            file.truncate(self.active.size_bytes)
            # A loss of power may undo that, and whole batches of the failed commit would pass for somebody
            # else's when the flush journal puts back what came in their place: the files have to be flushed.
            self.invalidate_flushed_position()
        self.active.transactions.truncate()
        self.buffer.is_cut_wanted = False

    def _discard(self, segment: Segment) -> None:
        """Take back a segment that a failed commit has made."""
        segment.file.close()
        for kind in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT):
            try:
                self.disk.remove(segment.paths.path(kind))
            except OSError:
                # Left behind it is only an empty or torn segment after the end, which recovery removes.
                pass
        # Its name may be on the disk, and would hide what is appended instead: the next flush sees to that.
        # Said last: one that is under way may have synced the directory before.
        self._directory_is_synced = False

    # Flushing and rolling

    def flush(self) -> int:
        """Make everything that is committed survive a loss of power; returns up to which offset that is now
        true.

        May run in a worker thread while the log goes on. Raises `OSError`, then nothing may be claimed, and
        `SyncFailed`, then some of it may be lost though it can still be read.
        """
        try:
            return self._flush()
        except SyncFailed:
            note_failed_sync(self.disk, self.directory)
            raise

    def _flush(self) -> int:
        end_offset = self.log_end_offset
        recovery_point = self.recovery_point
        active = self.active
        if (
            end_offset <= recovery_point
            and self._directory_is_synced
            and not self.leader_epochs.dirty
            and not self.has_unsafe_indexes
        ):
            return recovery_point
        flushed = (active, active.size_bytes, self.buffer.flush_epoch)
        indexes_end = self._indexes_end
        for segment in self._segments_after(min(recovery_point, indexes_end)):
            try:
                with segment.file.pinned() as file:
                    sync_file(file, segment.paths.path(LOG))
                if segment.base_offset > indexes_end:
                    # What it says of open transactions may soon be all that is known of them.
                    segment.paths.sync_snapshot()
                if segment.base_offset < active.base_offset:
                    # Nothing will rebuild the indexes of a sealed segment that the recovery point has passed.
                    segment.sync_indexes()
            except FileNotFoundError:
                if not segment.paths.deleted:
                    raise
        self._indexes_end = max(self._indexes_end, active.base_offset)
        if self.leader_epochs.dirty:
            self.save_leader_epochs()
        if not self._directory_is_synced:
            # Before the call: a segment that is made meanwhile wants a call of its own.
            self._directory_is_synced = True
            try:
                self.disk.sync_directory(self.directory)
                if self._directory_is_new:
                    self.disk.sync_directory(self.directory.rpartition("/")[0])
                    self._directory_is_new = False
                    self._is_unsafe_place = False
            except OSError:
                self._directory_is_synced = False
                raise
        if self.buffer.flushed_position is None or self.buffer.flushed_position[2] != flushed[2]:
            self._sync_identity()
        self.buffer.flushed_position = flushed
        self.recovery_point = max(self.recovery_point, end_offset)
        self.buffer.durable_offset = max(self.buffer.durable_offset, end_offset)
        return self.recovery_point

    def _sync_identity(self) -> None:
        """The flush journal goes by the topic's id, and `partition.metadata` was written without a sync."""
        path = f"{self.directory}/{PARTITION_METADATA}"
        if self.disk.exists(path):
            file = self.disk.open(path)
            try:
                sync_file(file, path)
            finally:
                file.close()

    # Scan checkpoints

    def pending_checkpoint(self) -> PendingCheckpoint | None:
        """How things are at the log's end, for `scan_checkpoint.py`; None while something is staged. Raises
        `OSError`.
        """
        if self.has_staged or self.buffer.is_cut_wanted:
            return None
        active = self.active
        return PendingCheckpoint(
            active,
            self.log_end_offset,
            active.size_bytes,
            active.extent.bytes_since_index,
            *active.indexes.latest_timestamp(),
            encode_snapshot(self.producers.producers),
        )

    def write_scan_checkpoint(self, pending: PendingCheckpoint) -> ScanCheckpoint | None:
        """Once a flush has come so far: write what belongs to a pending checkpoint beside the log, for
        `sync_scan_checkpoint`. None when the segment is not the active one any more.

        Raises `OSError`, and KAFKA_STORAGE_ERROR where the transaction index is damaged.
        """
        segment = pending.segment
        if segment is not self.active:
            return None
        assert pending.offset <= self.recovery_point
        counts = segment.indexes.entries_before(pending.offset)
        segment.save_indexes()
        self._write_snapshot(pending.offset, pending.snapshot)
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

    def sync_scan_checkpoint(self, pending: PendingCheckpoint) -> None:
        """Make what `write_scan_checkpoint` wrote survive a loss of power. May run in a worker thread. Raises
        as `flush`.
        """
        path = f"{self.directory}/{file_name(pending.offset, SNAPSHOT)}"
        try:
            pending.segment.paths.sync_index_files()
            file = self.disk.open(path)
            try:
                sync_file(file, path)
            finally:
                file.close()
        except SyncFailed:
            note_failed_sync(self.disk, self.directory)
            raise
        self.disk.sync_directory(self.directory)

    def forget_scan_checkpoint(self, scan_checkpoint: ScanCheckpoint) -> None:
        """Remove the snapshot of a scan checkpoint that another one has followed. Raises `OSError`."""
        if scan_checkpoint.offset not in self.bases:
            self.disk.remove(f"{self.directory}/{file_name(scan_checkpoint.offset, SNAPSHOT)}")

    def invalidate_flushed_position(self) -> None:
        """The next flush has to be of the files, and of the directory's identity too; one that is under way
        does not count, since what it has seen is not what there is now.
        """
        self.buffer.flush_epoch += 1

    @property
    def has_unsafe_indexes(self) -> bool:
        """Whether there are sealed segments whose indexes no flush has made safe."""
        return self._indexes_end < self.segments[-1].base_offset

    @property
    def is_in_unsafe_place(self) -> bool:
        """Whether it has been moved to a directory whose name a loss of power may undo, until a flush."""
        return self._is_unsafe_place

    @property
    def recovery_checkpoint(self) -> int:
        """From where a start after a crash has to look: `recovery_point`, or a little before it, in the
        segment whose indexes are not safe. A recovery point at that segment's end would pass over it once
        it is sealed.
        """
        point = self.recovery_point
        return point if point <= self._indexes_end else point - 1

    def unflushed_since_ms(self, asked_ms: int) -> int:
        """Since when something has waited for a flush, or a little earlier. An append does not note the time
        for it: what was not there at the question before this one, at `asked_ms`, has come since.
        """
        if self._waiting_since_ms is None or self._waiting_from != self.buffer.durable_offset:
            self._waiting_since_ms = asked_ms
            self._waiting_from = self.buffer.durable_offset
        return self._waiting_since_ms

    def _segments_after(self, offset: int) -> list[Segment]:
        segments = list(self.segments)
        place = segment_holding([segment.base_offset for segment in segments], offset)
        return segments[max(place, 0) :]

    def save_leader_epochs(self, *, sync: bool = True) -> None:
        self.leader_epochs.dirty = False
        path, entries = f"{self.directory}/{LEADER_EPOCHS}", self.leader_epochs.entries()
        try:
            write_leader_epochs(self.disk, path, entries, sync=sync)
        except OSError:
            self.leader_epochs.dirty = True
            raise

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now. Nothing may be staged. No change when the active one is empty."""
        assert not self.has_staged
        if self.active.size_bytes == 0:
            return
        if self.buffer.is_cut_wanted:
            # From then on nobody would.
            self._cut()
        old = self.active
        segment = Segment.create(self.pool, self.directory, self.log_end_offset, now_ms)
        try:
            self._write_snapshot(segment.base_offset, encode_snapshot(self.producers.producers))
        except OSError:
            self._discard(segment)
            raise
        self._reserve(segment)
        old.indexes.seal()
        old.file.release_reserved()
        self._save_indexes_if_possible(old)
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.buffer.is_changed = True
        self._directory_is_synced = False
        self.buffer.stage = self._new_stage(segment)

    # Deleting and closing

    def facts(self) -> list[SegmentFacts]:
        """What is decided by which segments go or are compacted."""
        return list(self.oldest())

    def oldest(self) -> Iterator[SegmentFacts]:
        """The same one by one, the oldest first: each may cost a look at the disk."""
        ends = [*self.bases[1:], self.log_end_offset]
        for segment, end in zip(self.segments, ends, strict=True):
            yield SegmentFacts(segment.base_offset, end, segment.size_bytes, segment.retention_timestamp_ms())

    def drop_segments(self, count: int, now_ms: int) -> list[Segment]:
        """Take the oldest segments out of the log and rename their files; the caller removes them later.

        They may be fewer than asked for when the disk does not play along. `OSError`: none was dropped.
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
        del self.segments[: len(dropped)], self.bases[: len(dropped)]
        self._forget_hints()
        return dropped

    def replacing_segments(
        self, old: list[Segment], cleaned: Segment, is_current: Callable[[], bool]
    ) -> Work[list[Segment]]:
        """Let a cleaned segment take the place of neighbours; returns those whose files are out of sight.

        After a crash it is all or nothing: once the cleaned log is called `.swap` a restart finishes the
        replacement; before, it takes the old segments. `is_current` says whether these are still the log's:
        when they are not any more, the new files go and nothing is returned.
        """
        directory = self.directory
        cleaned.change_suffix(SWAP)
        yield partial(self.disk.sync_directory, directory)
        if not is_current():
            cleaned.remove()
            return []
        place = self.segments.index(old[0])
        self.segments[place : place + len(old)] = [cleaned]
        self.bases = [segment.base_offset for segment in self.segments]
        self._forget_hints()
        to_delete: list[Segment] = []
        for segment in old:
            if self.directory != directory:
                # Deleted meanwhile, and the files with it; a new topic may have files of these names.
                return to_delete
            segment.paths.mark_deleted()
            to_delete.append(segment)
            yield None
        if self.directory == directory and cleaned in self.segments:
            cleaned.change_suffix("")
            yield partial(self.disk.sync_directory, directory)
        return to_delete

    @property
    def is_changed(self) -> bool:
        """Whether `close` has something to write."""
        return self.buffer.is_changed

    def write_down(self) -> None:
        """Write what `close` writes, without a sync: for who syncs the file system and then calls
        `is_safe`, since many are to be closed; so only what is worth its file. Forgets what is staged.
        """
        self.rollback()
        if self.buffer.is_cut_wanted:
            self._cut()
        self._written_checkpoint = None
        if not self._is_read_sooner():
            for segment in self._segments_after(self._indexes_end):
                segment.save_indexes()
            self._written_checkpoint = self._write_scan_checkpoint_at_end()
        if self.leader_epochs.dirty:
            self.save_leader_epochs(sync=False)
            # Until `is_safe`: who closes without it has to write them again, and sync them.
            self.leader_epochs.dirty = True

    def _write_scan_checkpoint_at_end(self, *, sync: bool = False) -> ScanCheckpoint | None:
        """Write indexes and a snapshot that say all of the log; the scan checkpoint that they make where they
        are safe. None where there is none: the active segment is empty, or its transaction index damaged.
        """
        active = self.active
        active.indexes.seal()
        active.save_indexes(sync=sync)
        self._write_snapshot(self.log_end_offset, encode_snapshot(self.producers.producers), sync=sync)
        if active.size_bytes == 0:
            return None
        try:
            aborted_count = len(active.transactions.index)
        except KafkaError:
            return None
        return ScanCheckpoint(
            active.base_offset,
            self.log_end_offset,
            active.size_bytes,
            len(active.indexes.offset_index),
            len(active.indexes.time_index),
            aborted_count,
            active.extent.bytes_since_index,
            *active.indexes.latest_timestamp(),
        )

    def is_safe(self) -> None:
        """What `write_down` wrote will survive a loss of power: `close` has only the files to close."""
        self.recovery_point = self.buffer.durable_offset = self._indexes_end = self.log_end_offset
        self._directory_is_synced = True
        self._directory_is_new = self.buffer.is_changed = self.leader_epochs.dirty = self._is_unsafe_place = (
            False
        )
        self._is_written_down = True

    def close(self, scan_checkpoint: ScanCheckpoint | None = None) -> ScanCheckpoint | None:
        """Flush, and leave on the disk what makes the next start fast: indexes, a snapshot of the
        producers. Returns the scan checkpoint that they make; `scan_checkpoint`, the one that there was,
        where nothing has changed.
        """
        self.rollback()
        if self.buffer.is_cut_wanted:
            self._cut()
        self.active.file.release_reserved()
        if self.buffer.is_changed:
            self.flush()
            try:
                scan_checkpoint = self._write_scan_checkpoint_at_end(sync=True)
            except SyncFailed:
                note_failed_sync(self.disk, self.directory)
                raise
            # Their names, too: the recovery point is going to pass over what they index.
            self.disk.sync_directory(self.directory)
        elif self._is_written_down:
            scan_checkpoint = self._written_checkpoint
        if self.leader_epochs.dirty:
            self.save_leader_epochs()
        self._indexes_end = self.log_end_offset
        self.release_files()
        return scan_checkpoint

    def mark_flushed_until(self, offset: int) -> None:
        """The log was flushed so far before. (Not so the indexes that a recovery has made.)"""
        self.recovery_point = max(self.recovery_point, offset)
        self.buffer.durable_offset = max(self.buffer.durable_offset, offset)

    def end_checkpoint(self) -> EndCheckpoint | None:
        """How the log ends, when a flush has had all of it."""
        if (
            self.buffer.is_cut_wanted
            or self.recovery_point < self.log_end_offset
            or self.has_unsafe_indexes
            or not self._directory_is_synced
        ):
            return None
        return EndCheckpoint(self.active.base_offset, self.active.size_bytes, self.log_end_offset)

    def _is_read_sooner(self) -> bool:
        """Whether the next start can do without indexes and a snapshot: it finds them in a few batches, and
        where the log ends in the recovery point. Those that are there already have to be brought up to date.
        """
        # Of a producer whose last batch is gone only a snapshot knows.
        may_miss_batches = self.config.is_compacted and bool(self.producers.producers)
        return (
            self.bases == [0]
            and self.active.size_bytes <= min(self.config.index_interval_bytes, READ_SOONER_BYTES)
            and not may_miss_batches
            and not any(name.endswith(_OF_A_START) for name in self.disk.list(self.directory))
        )

    def release_files(self) -> None:
        """Close the files; whoever reads on opens them again."""
        for segment in self.segments:
            segment.file.close()

    def move_to(self, directory: str) -> None:
        """The directory has been renamed."""
        self.directory = directory
        for segment in self.segments:
            segment.paths.directory = directory
            segment.paths.deleted = True

    def relocate(self, directory: str, synced_offset: int) -> None:
        """Go on in `directory`, which has a copy of everything that is committed, flushed up to an offset,
        but for the name of the directory itself.
        """
        active = self.active
        # Before the directory changes: these are not in the new one yet, and nothing else has to be read.
        active.indexes.unmap()
        active.indexes.offset_index.saved_count = active.indexes.time_index.saved_count = 0
        for segment in self.segments:
            segment.file.close()
            segment.paths.directory = directory
            # Though compaction may just be about to take it away.
            segment.paths.suffix = ""
        self.directory = directory
        self.recovery_point = self.buffer.durable_offset = synced_offset
        self._indexes_end = active.base_offset
        self.invalidate_flushed_position()
        self._directory_is_synced = False
        self._directory_is_new = True
        self._is_unsafe_place = True
        self.buffer.is_cut_wanted = False
        self.buffer.is_changed = True

    # Reading

    def locate(self, offset: int, prompt: bool = False) -> tuple[Segment, int, int] | None:
        """Segment, position and size of the first batch that ends at or after `offset`; None when there is
        none.

        The size is 0 where nothing had to be read to find the batch.
        """
        hint = self.buffer.hints.get(offset) or self.buffer.older_hints.get(offset)
        if hint is not None:
            return *hint, 0
        # Not a slice of the list: it would touch every segment of a long log.
        for place in range(max(segment_holding(self.bases, offset), 0), len(self.segments)):
            segment = self.segments[place]
            found = segment.find(offset, prompt)
            if found is not None:
                return segment, *found
        return None

    def read(
        self,
        offset: int,
        end_offset: int,
        max_bytes: int,
        minimum_one_batch: bool,
        cut_first_batch: bool,
        prompt: bool = False,
    ) -> Slice:
        """`max_bytes` of one segment from the batch that holds `offset`, ending before `end_offset`.

        As `LogSegment.read`: the end is where the limit is, be it within a batch. The first batch alone is
        not cut, unless `cut_first_batch` says so: one that is too large comes whole or not at all.
        """
        if offset >= end_offset:
            return EMPTY
        found = self.locate(offset, prompt)
        if found is None:
            return EMPTY
        segment, position, first_bytes = found
        extent = segment.extent
        end = extent.size_bytes
        if end_offset < self.log_end_offset:
            end = min(end, self._position_of(segment, end_offset, prompt))
        if position >= end:
            return EMPTY
        if position + max_bytes < end:
            if max_bytes == 0 and not minimum_one_batch:
                return EMPTY
            first_bytes = first_bytes or segment.batch_bytes(position, prompt)
            if max_bytes >= first_bytes or cut_first_batch:
                end = position + max_bytes
            elif minimum_one_batch:
                end = position + first_bytes
            else:
                return FIRST_TOO_LARGE
        if position < extent.inherited_bytes:
            end = min(end, segment.inherited.sound_until(position, end, prompt))
        return Slice(segment.file, position, end - position)

    def finding_timestamp(
        self, timestamp_ms: int, start_offset: int
    ) -> Work[tuple[Segment, StoredBatch] | None]:
        """The first batch not wholly before `start_offset` that may hold a record of `timestamp_ms` or
        later.
        """
        # A copy: between the steps segments may come and go; those that went can be read for a while.
        for segment in list(self.segments):
            yield None if segment.indexes.knows_latest_timestamp else segment.preload_for_retention
            if segment.indexes.latest_timestamp()[0] < timestamp_ms:
                continue
            if not segment.indexes.are_loaded:
                yield segment.indexes.preload
            position = segment.indexes.lookup(max(segment.indexes.lookup_time(timestamp_ms), start_offset))
            for batch in segment.stepping(position):
                if not isinstance(batch, StoredBatch):
                    yield batch
                    continue
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    return segment, batch
                yield None
        return None

    def _forget_hints(self) -> None:
        """There are other segments than before."""
        self.buffer.hints.clear()
        self.buffer.older_hints.clear()
        self._with_aborted = None
        self._bound = None

    def _position_of(self, segment: Segment, end_offset: int, prompt: bool) -> int:
        """Where the part of a segment ends that is before `end_offset`."""
        bound = self._bound
        if bound is not None and bound[0] is segment and bound[1] == end_offset:
            # As long as a transaction is open, everybody who reads behind it asks for the same.
            return bound[2]
        found = segment.find(end_offset, prompt)
        position = segment.size_bytes if found is None else found[0]
        self._bound = (segment, end_offset, position)
        return position

    def aborted_in(self, offset: int, records: Slice, prompt: bool = False) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that a reader has to know of who got
        `records` for `offset`, in the order of their markers; some more as long as they begin before the next
        entry of the offset index, as in Kafka (`LocalLog.addAbortedTransactions`).
        """
        if self._with_aborted is None:
            self._with_aborted = [segment for segment in self.segments if segment.transactions.has_aborted()]
        if not self._with_aborted:
            return []
        assert isinstance(records.source, SegmentFile)
        place = segment_holding(self.bases, records.source.paths.base_offset)
        segment = self.segments[place]
        end_offset = segment.indexes.offset_bound(records.end_position, prompt)
        if end_offset is None:
            following = place + 1
            end_offset = self.bases[following] if following < len(self.bases) else self.log_end_offset
        found: list[tuple[int, int]] = []
        first = bisect_left(self._with_aborted, segment.base_offset, key=_base_offset_of)
        for place in range(first, len(self._with_aborted)):
            some, is_all = self._with_aborted[place].transactions.index.find(offset, end_offset)
            found += some
            if is_all:
                break
        return found


def first_timestamp(segment: Segment) -> int:
    """The latest timestamp of a segment's first batch, -1 when it has none."""
    for batch in scan(segment.file.read, 0, segment.size_bytes, window_bytes=HEADER_BYTES):
        return batch.max_timestamp
    return -1
