"""Opening a partition's directory: what is there, what is sound, and what has to be made anew.

After a clean stop the last segment's end is enough. After any other the log is read from the recovery
point (what a flush vouched for) and cut at the first batch that is not sound; segments after a cut go,
indexes are rebuilt. Indexes, snapshots and checkpoints are caches: whatever of them is missing or damaged
is made anew.
"""

from dataclasses import dataclass

from odradek.storage.batches import scan
from odradek.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_leader_epochs
from odradek.storage.config import LogConfig
from odradek.storage.disk import Disk, read_file
from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.log import Log
from odradek.storage.producer_state import ProducerState, decode_snapshot
from odradek.storage.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    FilePool,
    Segment,
    segment_holding,
)

_INDEX_KINDS = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
_KINDS = (LOG, *_INDEX_KINDS)


@dataclass(slots=True)
class Recovered:
    """An opened log and what it cost: bytes that were not sound and are gone, batches that were read for
    it.
    """

    log: Log
    log_start_offset: int
    cut_bytes: int = 0


def open_log(
    pool: FilePool,
    directory: str,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> Recovered:
    """Open (or begin) the log in `directory`. `recovery_point` and `log_start_offset` are the
    checkpoints', or 0.
    """
    disk = pool.disk
    names = finish_interrupted(disk, directory, disk.list(directory))
    bases = sorted(offset for name in names if (offset := base_offset_of(name, LOG)) is not None)
    segments = [
        Segment(pool, directory, base, disk.size(f"{directory}/{base:020d}{LOG}"), now_ms) for base in bases
    ]
    epochs = LeaderEpochs(read_leader_epochs(disk, f"{directory}/{LEADER_EPOCHS}"))
    cut_bytes = 0
    while clean and len(segments) > 1 and segments[-1].size_bytes == 0:
        # Either just rolled, or left behind by a roll that failed: then records stand before it that have its
        # offset or a later one.
        end_offset = _read_end(segments[-2])
        if end_offset is None or end_offset <= segments[-1].base_offset:
            break
        _remove(segments.pop())
    if not segments:
        start = max(log_start_offset, 0)
        segments = [Segment.create(pool, directory, start, now_ms)]
        recovery_point = min(recovery_point, start)
    if not clean:
        cut_bytes = _recover(segments, config, epochs, recovery_point)
    end_offset = _read_end(segments[-1])
    if end_offset is None:
        # Its index, or the stop that claimed to be clean, was not what it seemed.
        cut_bytes += _recover(segments, config, epochs, segments[-1].base_offset)
        end_offset = _read_end(segments[-1])
        assert end_offset is not None
        clean = False
    if end_offset < log_start_offset:
        # The checkpoint is ahead of what survived: everything before it is deleted anyway, so begin there.
        for segment in segments:
            _remove(segment)
        segments = [Segment.create(pool, directory, log_start_offset, now_ms)]
        end_offset = log_start_offset
        clean = False
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_end(end_offset)
    epochs.truncate_start(log_start_offset)
    if not clean:
        names = disk.list(directory)
    producers = _load_producers(disk, directory, names, segments, end_offset, now_ms)
    log = Log(
        pool,
        directory,
        config,
        segments,
        end_offset,
        producers,
        epochs,
        recovery_point=end_offset if clean else min(recovery_point, end_offset),
    )
    return Recovered(log, log_start_offset, cut_bytes)


def begin_log(pool: FilePool, directory: str, config: LogConfig, now_ms: int) -> Log:
    """Begin the log of a partition whose directory has just been made."""
    segment = Segment.create(pool, directory, 0, now_ms, directory_is_empty=True)
    if config.preallocate:
        segment.reserve(config.segment_bytes)
    return Log(pool, directory, config, [segment], 0, ProducerState(), LeaderEpochs(), recovery_point=0)


def needs_recovery(disk: Disk, directory: str) -> bool:
    """False when there is nothing to recover in a directory after a crash: one log file without a byte in
    it, and none that a deletion or a compaction left. Costs one listing and one look at the file.
    """
    names = disk.list(directory)
    logs = [name for name in names if base_offset_of(name, LOG) is not None]
    others = set(names).difference(logs, (PARTITION_METADATA, LEADER_EPOCHS))
    return len(logs) != 1 or bool(others) or disk.size(f"{directory}/{logs[0]}") > 0


def base_offset_of(name: str, suffix: str) -> int | None:
    """The offset in a segment file's name, None when it is no name of that kind."""
    digits = name.removesuffix(suffix)
    return int(digits) if len(digits) == 20 and digits != name and digits.isdigit() else None


def finish_interrupted(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Finish or take back what a crash interrupted: deletions, compactions. Returns the names that are left.

    As in `LogLoader.java`: `.cleaned` files are an unfinished compaction and go; `.swap` files are a
    finished one that replaces the segments it covers; `.deleted` files and indexes without a log go.
    """
    swaps = sorted(offset for name in names if (offset := base_offset_of(name, LOG + SWAP)) is not None)
    leftovers = [name for name in names if name.endswith((DELETED, CLEANED, SWAP, ".tmp"))]
    present = set(names)
    # Indexes without a log: a deletion that came no further.
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
    """Let a cleaned segment take the place of all whose records it holds."""
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


def _recover(segments: list[Segment], config: LogConfig, epochs: LeaderEpochs, recovery_point: int) -> int:
    """Check everything after the recovery point; cut at the first unsound batch and drop what follows."""
    first = max(segment_holding([segment.base_offset for segment in segments], recovery_point), 0)
    expected = segments[first].base_offset
    for place in range(first, len(segments)):
        segment = segments[place]
        # A gap before a segment: the end of the one before never reached the disk. (Compaction
        # makes gaps too,
        # but only before the recovery point.)
        valid_bytes = _check_segment(segment, config, epochs) if segment.base_offset == expected else 0
        if valid_bytes < segment.size_bytes or segment.base_offset != expected:
            return _cut_from(segments, place, valid_bytes)
        expected = _end_of(segment)
    return 0


def _cut_from(segments: list[Segment], place: int, valid_bytes: int) -> int:
    """End the log in the segment at `place`; returns how many bytes that costs."""
    cut_bytes = sum(segment.size_bytes for segment in segments[place:]) - valid_bytes
    _cut(segments[place], valid_bytes)
    keep = place + 1 if valid_bytes or place == 0 else place
    for segment in segments[keep:]:
        _remove(segment)
    del segments[keep:]
    return cut_bytes


def _check_segment(segment: Segment, config: LogConfig, epochs: LeaderEpochs) -> int:
    """Read a segment with checksums, rebuild its indexes; returns where the sound part ends."""
    segment.reset_indexes()
    valid_bytes = 0
    for batch in scan(segment.read, 0, segment.size_bytes, window_bytes=1_048_576, verify=True):
        if batch.base_offset < segment.base_offset:
            break
        segment.index_batch(batch, config.index_interval_bytes)
        epochs.assign(batch.leader_epoch, batch.base_offset)
        valid_bytes = batch.end_position
    segment.seal()
    disk = segment.pool.disk
    for kind in (INDEX, TIME_INDEX):
        disk.remove(segment.path(kind))
    if len(segment.offset_index):
        # Of the others a start reads the few batches again sooner than two files.
        segment.save_indexes()
    return valid_bytes


def _cut(segment: Segment, size_bytes: int) -> None:
    file = segment.file()
    file.truncate(size_bytes)
    file.sync()
    segment.size_bytes = size_bytes


def _remove(segment: Segment) -> None:
    segment.close()
    for kind in (*_KINDS, SNAPSHOT):
        segment.pool.disk.remove(segment.path(kind))


def _end_of(segment: Segment) -> int:
    """The offset after the last record, by the headers after the last index entry."""
    end_offset = segment.base_offset
    for batch in segment.batches(segment.offset_index.last_position_until(segment.size_bytes)):
        end_offset = batch.last_offset + 1
    return end_offset


def _read_end(segment: Segment) -> int | None:
    """The log's end, None when the last segment does not end with a whole batch.

    What the indexes do not know of the segment is looked up on the way.
    """
    if segment.size_bytes == 0:
        segment.reset_indexes()
        return segment.base_offset
    latest, latest_offset = segment.latest_timestamp()
    start = segment.offset_index.last_position_until(segment.size_bytes)
    end_offset, position = segment.base_offset, start
    for batch in segment.batches(start):
        end_offset, position = batch.last_offset + 1, batch.end_position
        if batch.max_timestamp > latest:
            latest, latest_offset = batch.max_timestamp, batch.last_offset
    segment.max_timestamp_ms, segment.max_timestamp_offset = latest, latest_offset
    segment.bytes_since_index = position - start
    return end_offset if position == segment.size_bytes else None


def _load_producers(
    disk: Disk, directory: str, names: list[str], segments: list[Segment], end_offset: int, now_ms: int
) -> ProducerState:
    """The newest sound snapshot, and every batch after it."""
    state = ProducerState()
    replay_from = segments[0].base_offset
    snapshots = sorted(
        (offset for name in names if (offset := base_offset_of(name, SNAPSHOT)) is not None), reverse=True
    )
    bases = {segment.base_offset for segment in segments}
    found = False
    for offset in snapshots:
        path = f"{directory}/{offset:020d}{SNAPSHOT}"
        usable = not found and replay_from <= offset <= end_offset
        producers = decode_snapshot(read_file(disk, path)) if usable else None
        if producers is not None:
            state.producers = producers
            replay_from = offset
            found = True
        elif not found or offset not in bases:
            # Damaged, of a log that went on further, or left by an earlier clean stop in the
            # middle of a segment.
            disk.remove(path)
    if replay_from < end_offset:
        place = max(segment_holding([segment.base_offset for segment in segments], replay_from), 0)
        for segment in segments[place:]:
            for batch in segment.batches():
                if batch.base_offset >= replay_from:
                    state.replay(batch)
    state.expire(now_ms)
    return state
