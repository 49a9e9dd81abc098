"""Opening a partition's directory: finds its segments, checks them, and rebuilds damaged files.

After a clean stop only the last segment's end is read. After any other stop the log is read from the segment
that holds the recovery point (up to which it is flushed), or from the scan checkpoint of that segment
(`scan_checkpoint.py`), and cut at the first unsound batch; segments after a cut are removed, indexes are
rebuilt. Indexes, snapshots and checkpoints are caches: missing or damaged ones are rebuilt. So are
transaction indexes, from the markers and the snapshot before them; a missing one is noticed only if the log
is read for another reason.

Flushed batches that the medium has damaged since are not cut: their readers get an error
(`InheritedBatches`), and the log continues at its old end offset.
"""

from dataclasses import dataclass
from enum import Enum

from odradek.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_leader_epochs
from odradek.storage.config import LONG_MAX, LogConfig
from odradek.storage.disk import Disk, SyncFailed, read_file, replace_file, sync_file, write_all
from odradek.storage.log.batches import scan
from odradek.storage.log.durability import EndCheckpoint
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log import READ_SOONER_BYTES, Log
from odradek.storage.log.producer_state import EXPIRATION_MS, ProducerState, decode_snapshot
from odradek.storage.log.scan_checkpoint import RestoredSegment, ScanCheckpoint, restore_segment
from odradek.storage.log.segment import Segment, segment_holding
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    SYNC_FAILED,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
    note_failed_sync,
)
from odradek.storage.log.transaction_index import AbortedTransaction, TransactionIndex, encode_aborted
from odradek.wire.errors import KafkaError
from odradek.wire.record_layout import HEADER_SIZE_BYTES

_INDEX_KINDS = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
_KINDS = (LOG, *_INDEX_KINDS)
_COPIED_BYTES = 1_048_576


@dataclass(slots=True, eq=False)
class Recovered:
    """An opened log, the number of unsound bytes that were cut, and the number of batches read."""

    log: Log
    log_start_offset: int
    cut_bytes: int = 0
    damage: str | None = None
    """A sentence about damage that was not cut."""
    scan_checkpoint: ScanCheckpoint | None = None
    """The given scan checkpoint; None if it is not valid any more."""


def open_log(
    pool: FilePool,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
    gaps_until: int = 0,
    may_skip: bool = False,
    producer_expiration_ms: int = EXPIRATION_MS,
    is_rescan: bool = False,
    scan_checkpoint: ScanCheckpoint | None = None,
    end_checkpoint: EndCheckpoint | None = None,
) -> Recovered:
    """Open (or begin) the log in `directory`. `recovery_point`, `log_start_offset`, `scan_checkpoint` and
    `end_checkpoint` are from the checkpoints, or 0 and None. `gaps_until` is the offset up to which
    compaction may have removed offsets, also after the recovery point. `may_skip`: the log was a
    follower's, so within a segment any offsets may be missing, as at the leader. `is_rescan`: bytes that can
    be read of other files may not be on the disk; the log files have been written again.
    """
    names = finish_interrupted(pool.disk, directory, pool.disk.list(directory))
    opening = _Opening(
        pool,
        directory,
        config,
        clean,
        recovery_point,
        log_start_offset,
        gaps_until,
        may_skip,
        scan_checkpoint,
        end_checkpoint,
    )
    opening.find_segments(names, now_ms)
    sync_has_failed = SYNC_FAILED in names
    try:
        if not clean:
            opening.recover_from_point(uses_checkpoint=not (sync_has_failed or is_rescan))
            if sync_has_failed:
                _write_again(opening.segments, recovery_point)
        opening.find_end(now_ms)
        opening.find_start(now_ms)
        opening.settle_epochs()
        producers = opening.load_producers(writes_again=sync_has_failed or is_rescan)
    except SyncFailed:
        # The next attempt would find a log without damage and take it for synced.
        note_failed_sync(pool.disk, directory)
        raise
    producers.expire(now_ms, producer_expiration_ms)
    return opening.recovered(producers)


class _Opening:
    """The state of a log that is being opened; `open_log` has the order of the steps."""

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        config: LogConfig,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        gaps_until: int,
        may_skip: bool,
        scan_checkpoint: ScanCheckpoint | None,
        end_checkpoint: EndCheckpoint | None,
    ) -> None:
        self.pool, self.directory, self.config = pool, directory, config
        self.clean = clean
        """Whether the stop was clean and the files agree with its checkpoints."""
        self.recovery_point, self.gaps_until, self.scan_checkpoint = (
            recovery_point,
            gaps_until,
            scan_checkpoint,
        )
        self.may_skip = may_skip
        self.end_checkpoint = end_checkpoint
        self.log_start_offset = log_start_offset
        self.segments: list[Segment] = []
        self.end_offset = 0
        self.known_epochs = read_leader_epochs(pool.disk, f"{directory}/{LEADER_EPOCHS}")
        self.epochs = LeaderEpochs(self.known_epochs)
        self.restored: RestoredSegment | None = None
        self.kept_checkpoint: ScanCheckpoint | None = None
        self.unsure_from = LONG_MAX
        """Transaction indexes from this offset on are rebuilt."""
        self.known_end: int | None = None
        """The end of the log by its checkpoints or snapshot, not by its last batches."""
        self.cut_bytes = 0
        self.damage: str | None = None

    def find_segments(self, names: list[str], now_ms: int) -> None:
        self.segments = _segments_of(self.pool, self.directory, names, now_ms)
        if self.clean:
            self.known_end = _end_of_stop(names, self.recovery_point)
            _drop_left_behind(self.segments, self.known_end)
        if not self.segments:
            start = max(self.log_start_offset, 0)
            self.segments = [Segment.create(self.pool, self.directory, start, now_ms)]
            self.recovery_point = min(self.recovery_point, start)

    def recover_from_point(self, *, uses_checkpoint: bool) -> None:
        """Read and check the batches after the recovery point, or after a valid scan checkpoint."""
        first = _segment_to_recover(self.segments, self.recovery_point)
        self.unsure_from = first.base_offset
        scan_checkpoint = self.scan_checkpoint
        # The recovery point is then the log's end, or an offset before it (`Durability.recovery_checkpoint`).
        if (
            scan_checkpoint is not None
            and uses_checkpoint
            and scan_checkpoint.offset <= self.recovery_point + 1
        ):
            self.restored = restore_segment(first, scan_checkpoint)
        has_lost_checkpoint = scan_checkpoint is not None and self.restored is None
        self._recover(self.recovery_point, self.restored, takes_place=has_lost_checkpoint)

    def _recover(self, recovery_point: int, restored: RestoredSegment | None, *, takes_place: bool) -> None:
        cut_bytes, self.known_end = _recover(
            self.segments,
            self.config,
            self.epochs,
            recovery_point,
            self.gaps_until,
            restored,
            may_skip=self.may_skip,
            takes_place=takes_place,
        )
        self.cut_bytes += cut_bytes

    def find_end(self, now_ms: int) -> None:
        last = self.segments[-1]
        end_offset = _read_end(last)
        is_certain = not self.clean
        if self.clean and self.end_checkpoint is not None and self.end_checkpoint.matches_segment(last):
            self.known_end, is_certain = self.end_checkpoint.offset, True
        if self.known_end is not None and _is_end_damaged(
            last, end_offset, self.known_end, certain=is_certain
        ):
            # Readers of the last batches get an error. Later appends are not affected.
            end_offset = self.known_end
            path = last.paths.path(LOG)
            self.damage = f"The last batches of {path} are damaged; the log continues at offset {end_offset}."
            self.segments.append(Segment.create(self.pool, self.directory, end_offset, now_ms))
        if end_offset is None:
            # The index was damaged, or the stop was not clean.
            self.unsure_from = min(self.unsure_from, last.base_offset)
            self._recover(last.base_offset, None, takes_place=self.scan_checkpoint is not None)
            self._give_up_claims()
            end_offset = _read_end(self.segments[-1])
            assert end_offset is not None
        self.end_offset = end_offset

    def find_start(self, now_ms: int) -> None:
        start = self.log_start_offset
        if self.end_offset < start:
            # The checkpoint of log starts is after the log's end: all earlier records are deleted, so the log
            # begins there.
            _remove(self.segments)
            self.segments = [Segment.create(self.pool, self.directory, start, now_ms)]
            self.end_offset = start
            self._give_up_claims()
        self.log_start_offset = max(start, self.segments[0].base_offset)

    def _give_up_claims(self) -> None:
        self.restored = None
        self.clean = False

    def settle_epochs(self) -> None:
        path = f"{self.directory}/{LEADER_EPOCHS}"
        starts = self.epochs.starts
        if self.known_epochs is None and (self.clean or self.recovery_point > self.segments[0].base_offset):
            self.epochs = _epochs_of(self.segments)
            if self.pool.disk.exists(path):
                self.damage = self.damage or f"{path} is damaged and is rebuilt."
        elif not self.clean and starts and starts[0] > self.log_start_offset:
            # Deleted records are back: the checkpoint of epochs was written, but not the checkpoint of log
            # starts.
            self.epochs = _epochs_of(self.segments)
        self.epochs.truncate_end(self.end_offset)
        self.epochs.truncate_start(self.log_start_offset)

    def load_producers(self, *, writes_again: bool) -> ProducerState:
        """Load the producers from snapshots and batches; also checks whether the scan checkpoint is still
        valid."""
        self.unsure_from = min(self.unsure_from, _look_at_aborted(self.segments, self.end_offset))
        scan_checkpoint = self.scan_checkpoint
        if self.restored is not None and self.unsure_from < self.restored.checkpoint.base_offset:
            self.restored = None
        if (
            scan_checkpoint is not None
            and scan_checkpoint.offset <= self.end_offset
            and (self.clean or self.restored is not None)
        ):
            self.kept_checkpoint = scan_checkpoint
        producers = _load_producers(
            self.segments,
            self.end_offset,
            self.unsure_from,
            self.kept_checkpoint,
            self.restored,
            writes_again=writes_again,
        )
        if self.kept_checkpoint is not scan_checkpoint:
            # The snapshot of an invalid scan checkpoint must not come back after a loss of power.
            self.pool.disk.sync_directory(self.directory)
        return producers

    def recovered(self, producers: ProducerState) -> Recovered:
        log = Log(
            self.pool,
            self.directory,
            self.config,
            self.segments,
            self.end_offset,
            producers,
            self.epochs,
            recovery_point=self.end_offset if self.clean else min(self.recovery_point, self.end_offset),
        )
        return Recovered(log, self.log_start_offset, self.cut_bytes, self.damage, self.kept_checkpoint)


def _segments_of(pool: FilePool, directory: str, names: list[str], now_ms: int) -> list[Segment]:
    """The segments with a log file in the directory."""
    bases = sorted(offset for name in names if (offset := base_offset_of(name, LOG)) is not None)
    return [
        Segment(pool, directory, base, pool.disk.size(f"{directory}/{base:020d}{LOG}"), now_ms)
        for base in bases
    ]


def _look_at_aborted(segments: list[Segment], end_offset: int) -> int:
    """Notes for each segment whether it has a transaction index; returns the base offset of the first segment
    with an unsound one, LONG_MAX if all are sound.
    """
    unsure_from = LONG_MAX
    present = set(segments[0].paths.disk.list(segments[0].paths.directory))
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, segment_end in zip(segments, ends, strict=True):
        segment.transactions.is_there = file_name(segment.base_offset, TRANSACTION_INDEX) in present
        if segment.transactions.is_there and not _has_sound_aborted(segment, segment_end):
            unsure_from = min(unsure_from, segment.base_offset)
    return unsure_from


def begin_log(pool: FilePool, directory: str, config: LogConfig, now_ms: int) -> Log:
    """Begin the log of a partition whose directory has just been made."""
    segment = Segment.create(pool, directory, 0, now_ms, directory_is_empty=True)
    if config.preallocate:
        segment.file.reserve(config.segment_bytes)
    return Log(pool, directory, config, [segment], 0, ProducerState(), LeaderEpochs(), recovery_point=0)


class AfterCrash(Enum):
    """The state of a partition's directory after a crash."""

    EMPTY = "nothing to recover"
    """One empty log file, and no files of a deletion or compaction."""
    AS_FLUSHED = "what a flush has had, and no more"
    UNKNOWN = "to be recovered"


def look_after_crash(disk: Disk, directory: str, end_checkpoint: EndCheckpoint | None) -> AfterCrash:
    """One listing and one file size. `end_checkpoint` has the last known end of the log. Raises `OSError`."""
    names = disk.list(directory)
    if end_checkpoint is not None:
        return (
            AfterCrash.AS_FLUSHED
            if end_checkpoint.matches_directory(disk, directory, names)
            else AfterCrash.UNKNOWN
        )
    logs = [name for name in names if base_offset_of(name, LOG) is not None]
    others = set(names).difference(logs, (PARTITION_METADATA, LEADER_EPOCHS))
    if len(logs) != 1 or others or disk.size(f"{directory}/{logs[0]}") > 0:
        return AfterCrash.UNKNOWN
    return AfterCrash.EMPTY


def finish_interrupted(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Finish or undo deletions and compactions that a crash interrupted. Returns the remaining file names.

    As in `LogLoader.java`: `.cleaned` files of an unfinished compaction are removed; `.swap` files of a
    finished one replace the segments that they cover; `.deleted` files and indexes without a log are removed.
    """
    swaps = sorted(offset for name in names if (offset := base_offset_of(name, LOG + SWAP)) is not None)
    leftovers = [name for name in names if name.endswith((DELETED, CLEANED, SWAP, ".tmp"))]
    present = set(names)
    # Indexes without a log: left from an interrupted deletion.
    leftovers += [
        name for name in names if name.endswith(_INDEX_KINDS) and name.rpartition(".")[0] + LOG not in present
    ]
    for name in leftovers:
        if not name.endswith(SWAP):
            disk.remove(f"{directory}/{name}")
    if swaps:
        disk.sync_directory(directory)
        for base_offset in swaps:
            _finish_swap(disk, directory, base_offset)
    for name in leftovers:
        if name.endswith(SWAP) and disk.exists(f"{directory}/{name}"):
            disk.remove(f"{directory}/{name}")
    return disk.list(directory) if leftovers else names


def _finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Replace all segments whose records a cleaned segment holds."""
    swap = f"{directory}/{base_offset:020d}{LOG}{SWAP}"
    file = disk.open(swap)
    try:
        last_offset = -1
        for batch in scan(file.read, 0, file.size()):
            last_offset = batch.last_offset
    finally:
        file.close()
    for name in disk.list(directory):
        other = base_offset_of(name, LOG)
        if other is not None and base_offset <= other <= max(last_offset, base_offset):
            for kind in _KINDS:
                disk.remove(f"{directory}/{other:020d}{kind}")
            if other != base_offset:
                disk.remove(f"{directory}/{other:020d}{SNAPSHOT}")
    for kind in (INDEX, TIME_INDEX, TRANSACTION_INDEX, LOG):
        source = f"{directory}/{base_offset:020d}{kind}{SWAP}"
        if disk.exists(source):
            disk.rename(source, f"{directory}/{base_offset:020d}{kind}")
    disk.sync_directory(directory)


def _drop_left_behind(segments: list[Segment], known_end: int | None) -> None:
    """Remove empty segments at the end, left from failed rolls.

    The empty segment of a successful roll stays: it begins at the log's end, so no earlier segment has its
    offset, and the snapshot of the stop has this offset, too.
    """
    while len(segments) > 1 and segments[-1].size_bytes == 0 and known_end != segments[-1].base_offset:
        end_offset = _read_end(segments[-2])
        if end_offset is None or end_offset <= segments[-1].base_offset:
            break
        _remove([segments.pop()])


def _end_of_stop(names: list[str], recovery_point: int) -> int:
    """The log's end by a clean stop: the offset of its snapshot, or the recovery point for a small log
    without a snapshot. 0 if it is not known.
    """
    return max(
        (offset for name in names if (offset := base_offset_of(name, SNAPSHOT)) is not None),
        default=recovery_point,
    )


def _is_end_damaged(segment: Segment, end_offset: int | None, known_end: int, *, certain: bool) -> bool:
    """Whether the end of the last batches differs from the known end of the log.

    The known end is from the check just made, or after a clean stop the end checkpoint for this file size, or
    else `_end_of_stop`, which may be out of date.
    """
    if end_offset == known_end or known_end <= segment.base_offset:
        return False
    return certain or end_offset is None or _counted_end(segment) == known_end


def _counted_end(segment: Segment) -> int:
    """The end of a segment, by the offset counts of the batches after its last index entry."""
    # Called first, since it may repair the index.
    segment.indexes.offset_before(segment.indexes.offset_index.last_position_until(segment.size_bytes))
    index = segment.indexes.offset_index
    position = index.last_position_until(segment.size_bytes)
    end_offset = index.offset_before(position) + 1
    for batch in segment.batches(position):
        if len(index) and batch.position == position:
            end_offset = index.entry(len(index) - 1)[0] + segment.base_offset + 1
        else:
            end_offset += batch.last_offset_delta + 1
    return end_offset


def _epochs_of(segments: list[Segment]) -> LeaderEpochs:
    """Rebuild the leader epochs from the batches, for a lost checkpoint."""
    epochs = LeaderEpochs()
    for segment in segments:
        for batch in segment.batches():
            epochs.assign(batch.leader_epoch, batch.base_offset)
    return epochs


def _segment_to_recover(segments: list[Segment], recovery_point: int) -> Segment:
    """The first segment that a start after a crash reads."""
    return segments[max(segment_holding([segment.base_offset for segment in segments], recovery_point), 0)]


def _recover(
    segments: list[Segment],
    config: LogConfig,
    epochs: LeaderEpochs,
    recovery_point: int,
    gaps_until: int,
    restored: RestoredSegment | None = None,
    *,
    may_skip: bool = False,
    takes_place: bool = False,
) -> tuple[int, int | None]:
    """Check all batches after the recovery point, or after a scan checkpoint that fits; cut the log at the
    first unsound batch. `takes_place`: a later start may use the existing index files, so rebuilt ones
    replace them at once and durably.

    Returns the number of bytes cut, and the log's end if damaged last batches do not have it.
    """
    first = segments.index(_segment_to_recover(segments, recovery_point))
    expected = segments[first].base_offset
    known_end: int | None = None
    for place in range(first, len(segments)):
        segment = segments[place]
        # A gap before a segment: the end of the previous one did not reach the disk. (Compaction makes gaps
        # too, but only before the recovery point, or before `gaps_until`.)
        if segment.base_offset != expected and not expected < segment.base_offset <= gaps_until:
            return _cut_from(segments, place, 0), None
        valid_bytes, expected, is_known_end = _check_segment(
            segment,
            config,
            epochs,
            recovery_point,
            gaps_until,
            restored if place == first else None,
            may_skip=may_skip,
            takes_place=takes_place,
        )
        if valid_bytes < segment.size_bytes:
            return _cut_from(segments, place, valid_bytes), None
        known_end = expected if is_known_end else None
    return 0, known_end


def _cut_from(segments: list[Segment], place: int, valid_bytes: int) -> int:
    """End the log in the segment at `place`; returns the number of bytes cut."""
    cut_bytes = sum(segment.size_bytes for segment in segments[place:]) - valid_bytes
    _cut(segments[place], valid_bytes)
    keep = place + 1 if valid_bytes or place == 0 else place
    _remove(segments[keep:])
    del segments[keep:]
    return cut_bytes


def _check_segment(
    segment: Segment,
    config: LogConfig,
    epochs: LeaderEpochs,
    recovery_point: int,
    gaps_until: int,
    restored: RestoredSegment | None,
    *,
    may_skip: bool,
    takes_place: bool,
) -> tuple[int, int, bool]:
    """Read a segment with checksums, from its scan checkpoint on if that fits, and rebuild its indexes. With
    `may_skip` a batch may have any later offset: a loss of power does not remove bytes between two batches.

    Returns the end position and the end offset of the sound part, and whether the offset is from the recovery
    point or the scan checkpoint because the last batch is damaged.
    """
    size_bytes = segment.size_bytes
    if restored is None:
        segment.indexes.reset()
        position, expected, counted, is_known_end = 0, segment.base_offset, -1, False
    else:
        checkpoint = restored.checkpoint
        # Without later batches the last batch is not read here: the scan checkpoint has the log's end.
        position, expected, counted = checkpoint.position, checkpoint.offset, -1
        is_known_end = checkpoint.position == size_bytes
    while True:
        for batch in scan(segment.file.read, position, size_bytes, window_bytes=1_048_576, verify=True):
            if batch.base_offset < expected:
                break
            if not may_skip and batch.base_offset > max(expected, recovery_point, gaps_until):
                break
            segment.indexes.add(batch, config.index_interval_bytes)
            epochs.assign(batch.leader_epoch, batch.base_offset)
            counted = expected + batch.last_offset_delta + 1
            # The recovery point is the end, or an offset before it (`Durability.recovery_checkpoint`). If
            # offsets may be missing, a later base offset is no damage.
            is_known_end = not may_skip and counted != batch.last_offset + 1
            is_known_end = is_known_end and counted - 1 <= recovery_point <= counted
            expected = batch.last_offset + 1
            position = batch.end_position
        if position == size_bytes:
            break
        following = next(scan(segment.file.read, position, size_bytes, verify=True), None)
        if following is not None and following.base_offset == counted < expected and not may_skip:
            # The base offset of the batch before this one is too high.
            expected = counted
            continue
        passed = _pass_damaged(segment, position, expected, recovery_point)
        if passed is None:
            break
        position, expected = passed
        counted, is_known_end = expected, position == size_bytes
    segment.indexes.seal()
    end_offset = counted if is_known_end and counted >= 0 else expected
    _replace_indexes(segment, restored, is_flushed=end_offset <= recovery_point, takes_place=takes_place)
    return position, end_offset, is_known_end


def _replace_indexes(
    segment: Segment, restored: RestoredSegment | None, *, is_flushed: bool, takes_place: bool
) -> None:
    """Write the indexes of a segment that was just read; durably if the segment is before the recovery
    point."""
    has_checkpoint = restored is not None
    disk = segment.paths.disk
    was_replaced = False
    is_short = segment.size_bytes <= READ_SOONER_BYTES and not len(segment.indexes.offset_index)
    for index, kind in ((segment.indexes.offset_index, INDEX), (segment.indexes.time_index, TIME_INDEX)):
        path = segment.paths.path(kind)
        if restored is not None and restored.had_nothing_else and index.saved_count == len(index):
            # By the scan checkpoint the existing files are sound.
            continue
        if not has_checkpoint and not takes_place:
            if is_flushed and _says(disk, path, index.encode()):
                index.saved_count = len(index)
                continue
            if is_flushed and is_short and not disk.exists(path):
                # A stop does not write this file either.
                continue
            disk.remove(path)
        index.is_rebuilt = takes_place
        has_entries = len(segment.indexes.offset_index) > 0
        if has_entries or has_checkpoint or takes_place or (is_flushed and segment.size_bytes):
            # For an unsealed segment a start reads the few batches faster than two files. But a sealed
            # segment before the recovery point is not read again.
            try:
                index.save(disk, path, sync=is_flushed)
                was_replaced = True
            except OSError:
                # The disk is full: the next flush writes the indexes.
                pass
    if is_flushed and was_replaced:
        disk.sync_directory(segment.paths.directory)


def _says(disk: Disk, path: str, content: bytes) -> bool:
    try:
        return read_file(disk, path) == content
    except OSError:
        return False


def _pass_damaged(
    segment: Segment, position: int, expected: int, recovery_point: int
) -> tuple[int, int] | None:
    """The position and offset after a flushed batch that is damaged now. None if there is no such batch, or
    the next one cannot be found.
    """
    size_bytes = segment.size_bytes
    damaged = next(scan(segment.file.read, position, size_bytes, window_bytes=HEADER_SIZE_BYTES), None)
    if expected >= recovery_point or damaged is None:
        return None
    if damaged.end_position == size_bytes:
        end_offset = expected + damaged.last_offset_delta + 1
        return (size_bytes, end_offset) if end_offset - 1 <= recovery_point <= end_offset else None
    following = next(scan(segment.file.read, damaged.end_position, size_bytes, verify=True), None)
    if following is None or not expected < following.base_offset <= recovery_point + 1:
        return None
    return damaged.end_position, following.base_offset


def _write_again(segments: list[Segment], recovery_point: int) -> None:
    """Write unflushed bytes again, and sync them.

    After a failed sync the kernel marks the pages as written. While the machine runs they can be read, even
    if the disk does not have them, and a later sync would succeed without writing.
    """
    disk, directory = segments[0].paths.disk, segments[0].paths.directory
    for segment in segments[segments.index(_segment_to_recover(segments, recovery_point)) :]:
        file = segment.file.open()
        for position in range(0, segment.size_bytes, _COPIED_BYTES):
            content = file.read(position, min(_COPIED_BYTES, segment.size_bytes - position))
            write_all(file, position, [content], len(content))
        sync_file(file, segment.paths.path(LOG))
    metadata = f"{directory}/{PARTITION_METADATA}"
    if disk.exists(metadata):
        replace_file(disk, metadata, read_file(disk, metadata))
    disk.remove(f"{directory}/{SYNC_FAILED}")
    disk.sync_directory(directory)


def _cut(segment: Segment, size_bytes: int) -> None:
    file = segment.file.open()
    file.truncate(size_bytes)
    sync_file(file, segment.paths.path(LOG))
    segment.extent.size_bytes = size_bytes


def _remove(segments: list[Segment]) -> None:
    """Remove segments durably: the log continues at their offsets, and they must not come back after a loss
    of power."""
    for segment in segments:
        segment.file.close()
        for kind in (*_KINDS, SNAPSHOT):
            segment.paths.disk.remove(segment.paths.path(kind))
    if segments:
        segments[0].paths.disk.sync_directory(segments[0].paths.directory)


def _read_end(segment: Segment) -> int | None:
    """The log's end; None if the last segment does not end with a whole batch.

    Batches after the last index entry are indexed on the way.
    """
    if segment.size_bytes == 0:
        segment.indexes.reset()
        return segment.base_offset
    latest, latest_offset = segment.indexes.latest_timestamp()
    start = segment.indexes.offset_index.last_position_until(segment.size_bytes)
    end_offset, position = segment.base_offset, start
    for batch in segment.batches(start):
        end_offset, position = batch.last_offset + 1, batch.end_position
        if batch.max_timestamp > latest:
            latest, latest_offset = batch.max_timestamp, batch.last_offset
    segment.extent.max_timestamp_ms, segment.extent.max_timestamp_offset = latest, latest_offset
    segment.extent.bytes_since_index = position - start
    return end_offset if position == segment.size_bytes else None


def _load_producers(
    segments: list[Segment],
    end_offset: int,
    unsure_from: int,
    scan_checkpoint: ScanCheckpoint | None,
    restored: RestoredSegment | None,
    *,
    writes_again: bool,
) -> ProducerState:
    """Load the producers from the snapshot of a scan checkpoint that fits, else from the newest sound
    snapshot not after `unsure_from`, and from every batch after it. Transaction indexes from `unsure_from`
    on, and missing ones of the batches read, are rebuilt; with `writes_again` also correct ones are written.
    """
    disk, directory = segments[0].paths.disk, segments[0].paths.directory
    state = ProducerState()
    replay_from = segments[0].base_offset
    snapshots = sorted(
        (offset for name in disk.list(directory) if (offset := base_offset_of(name, SNAPSHOT)) is not None),
        reverse=True,
    )
    bases = {segment.base_offset for segment in segments}
    found = restored is not None
    if restored is not None:
        state, replay_from = restored.producers, restored.checkpoint.offset
    for offset in snapshots:
        path = f"{directory}/{offset:020d}{SNAPSHOT}"
        if unsure_from < offset <= end_offset and offset in bases:
            continue
        usable = not found and replay_from <= offset <= min(end_offset, unsure_from)
        producers = decode_snapshot(read_file(disk, path)) if usable else None
        if producers is not None:
            state = ProducerState(producers)
            replay_from = offset
            found = True
        elif scan_checkpoint is not None and offset == scan_checkpoint.offset <= end_offset:
            continue
        elif not found or offset not in bases:
            # The snapshot is damaged, of a longer log, or left from an earlier clean stop in the middle of a
            # segment.
            disk.remove(path)
    if replay_from < end_offset or segments[-1].base_offset >= unsure_from:
        place = max(segment_holding([segment.base_offset for segment in segments], replay_from), 0)
        if restored is not None:
            place = segments.index(restored.segment)
        for segment in segments[place:]:
            position, aborted = 0, list[AbortedTransaction]()
            if restored is not None and segment is restored.segment:
                position, aborted = restored.checkpoint.position, restored.aborted
            aborted += [
                one
                for batch in segment.batches(position)
                if batch.base_offset >= replay_from
                if (one := state.replay(batch, segment.file.read)) is not None
            ]
            is_unsure = segment.base_offset >= unsure_from
            is_missing = bool(aborted) and not segment.transactions.has_aborted()
            if is_unsure or (is_missing and segment.base_offset >= replay_from):
                _replace_aborted(segment, aborted, writes_again=writes_again)
    return state


def _has_sound_aborted(segment: Segment, end_offset: int) -> bool:
    """Whether a segment's transaction index is sound. Kafka checks it at each start, too."""
    try:
        index = TransactionIndex.load(segment.paths.disk, segment.paths.path(TRANSACTION_INDEX))
    except KafkaError:
        return False
    return index.is_within(segment.base_offset, end_offset)


def _replace_aborted(segment: Segment, aborted: list[AbortedTransaction], *, writes_again: bool) -> None:
    """Replace the transaction index of a segment."""
    disk, path = segment.paths.disk, segment.paths.path(TRANSACTION_INDEX)
    if aborted:
        content = encode_aborted(aborted)
        if writes_again or not segment.transactions.has_aborted() or not _says(disk, path, content):
            replace_file(disk, path, content)
    elif segment.transactions.has_aborted():
        disk.remove(path)
        # The old file must not come back beside other records.
        disk.sync_directory(segment.paths.directory)
    segment.transactions.is_there = bool(aborted)
