"""Bringing a partition back after the disk has let it down: what is there is read, written again and flushed.

After a failed flush nobody knows what the disk has. The kernel counts the pages whose writing failed as
clean: to ask for another flush would be answered with success, and to read them back shows what is in
memory. So nothing that is not flushed is believed to be on the disk, however well it reads:

1. What the flush journal holds of the partition is put back where it belongs.
2. Every segment that reaches behind the recovery point is copied to a new file: as far as its batches are
   whole, in order and right by their checksums. That reads from memory what is still there and from the disk
   what is not, and a batch that has come to harm shows in its checksum.
3. The copies are flushed, renamed over the segments, and the directory is flushed. They are written to other
   blocks than those that failed. Only when all of that has succeeded does the partition come back.
4. The log is then opened as after a crash.

What is promised: after a rescan the disk has every record that the partition serves. What cannot be: that
it serves all that it served before. Records of which memory had been given up and which the disk never got
are gone, as after a loss of power; they and all that follow are cut off, and `Recovered.cut_bytes` says how
much that was. Before the recovery point nothing is cut: what was flushed and the disk does not give back
is an error of reading, and the partition stays offline.

What readers have in their hands stays valid: the old files live on under their mappings.

All that takes a worker seconds; meanwhile the topic may be deleted and made anew under the same name: see
`DiskWhileHeld`.
"""

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from odradek.storage.config import LogConfig
from odradek.storage.disk import Disk, File, write_all
from odradek.storage.log.batches import scan
from odradek.storage.log.flush_journal import read_entries
from odradek.storage.log.log import Log
from odradek.storage.log.scan_checkpoint import ScanCheckpoint
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import LOG, file_name
from odradek.storage.recovery.recovery import Recovered, open_log

COPY = ".log.tmp"
"""What a crash leaves under that name goes at the next start."""
COPIED_BYTES = 1_048_576


class DiskWhileHeld:
    """A `Disk` for who works in a partition's directory while the thread that owns the store may delete the
    partition: the next topic of that name has its directory at the same path.

    What it is asked of a path it asks under `gate`, and while `is_held`; from then on `OSError`. Whoever lets
    go of the partition does it under the gate, and waits for one such question at the most. Files that are
    open stay what they were, wherever their directory goes.
    """

    def __init__(self, disk: Disk, gate: AbstractContextManager[Any], is_held: Callable[[], bool]) -> None:
        self._disk = disk
        self._gate = gate
        self._is_held = is_held
        # They take long, and do no harm to whoever has the path by then.
        self.sync_directory = disk.sync_directory
        self.sync_file_system = disk.sync_file_system

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._disk, name)

        def asked(path: str, *arguments: Any, **options: Any) -> Any:
            with self._gate:
                if not self._is_held():
                    raise OSError(errno.ESTALE, "its partition is not there any more", path)
                return ask(path, *arguments, **options)

        return asked


def rescan(
    log: Log,
    pool: FilePool,
    config: LogConfig,
    *,
    topic_id: bytes,
    log_start_offset: int,
    now_ms: int,
    producer_expiration_ms: int,
    may_skip: bool = False,
    scan_checkpoint: ScanCheckpoint | None = None,
) -> Recovered:
    """The log anew, from files that the disk has for sure. `OSError`: it has not, and nothing is lost by
    trying again. `scan_checkpoint` is the one of the checkpoint, which does not hold any more then; for
    `may_skip` see `open_log`.

    Nobody else may write to the partition meanwhile, nor may a block with something of it be on its way to
    the flush journal; runs in any thread, and for seconds where segments are large. The new log opens its
    files in `pool`: see `take_over`.
    """
    disk, directory = pool.disk, log.files.directory
    recovery_point = log.durability.recovery_checkpoint
    names = set(disk.list(directory))
    _put_back(disk, directory, topic_id, recovery_point)
    cut_bytes = 0
    ends = [*log.bases[1:], log.log_end_offset]
    for segment, end_offset in zip(list(log.segments), ends, strict=True):
        if end_offset <= recovery_point or not segment.size_bytes:
            continue
        if file_name(segment.base_offset, LOG) not in names:
            cut_bytes += segment.size_bytes
        elif cut_bytes:
            # Not cut but removed: somebody may have it mapped.
            disk.remove(segment.paths.path(LOG))
            cut_bytes += segment.size_bytes
        else:
            cut_bytes += _copy_over(disk, segment, recovery_point, may_skip=may_skip)
    disk.sync_directory(directory)
    recovered = open_log(
        pool,
        directory,
        config,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        may_skip=may_skip,
        producer_expiration_ms=producer_expiration_ms,
        is_rescan=True,
        scan_checkpoint=scan_checkpoint,
    )
    recovered.cut_bytes += cut_bytes
    return recovered


def _put_back(disk: Disk, directory: str, topic_id: bytes, recovery_point: int) -> None:
    """What the flush journal has is on the disk: where memory says otherwise now, it was right."""
    home, _, name = directory.rpartition("/")
    for entry in read_entries(disk, home):
        path = f"{directory}/{file_name(entry.base_offset, LOG)}"
        if (
            (entry.name, entry.topic_id) != (name, topic_id)
            or entry.end_offset <= recovery_point
            or not disk.exists(path)
        ):
            continue
        file = disk.open(path)
        try:
            length = len(entry.content)
            if file.size() >= entry.position and file.read(entry.position, length) != entry.content:
                write_all(file, entry.position, [entry.content], length)
        finally:
            file.close()


def take_over(log: Log, pool: FilePool) -> None:
    """Let the segments of a log open their files in `pool` from now on."""
    for segment in log.segments:
        segment.use_pool(pool)
    log.files.pool = pool


def _copy_over(disk: Disk, segment: Segment, recovery_point: int, *, may_skip: bool) -> int:
    """Put a flushed copy of what is sound in the place of a segment's file; returns how many bytes were
    not.
    """
    path = segment.paths.path(LOG)
    copy_path = f"{path.removesuffix(LOG)}{COPY}"
    source = disk.open(path)
    try:
        size_bytes = _sound_bytes(source, segment, recovery_point, may_skip=may_skip)
        copy = disk.open(copy_path, create=True)
        try:
            copy.truncate(0)
            for position in range(0, size_bytes, COPIED_BYTES):
                wanted_bytes = min(COPIED_BYTES, size_bytes - position)
                part = source.read(position, wanted_bytes)
                if len(part) < wanted_bytes:
                    raise OSError(errno.EIO, f"{path} has become shorter")
                write_all(copy, position, [part], len(part))
            copy.sync()
        except OSError:
            disk.remove(copy_path)
            raise
        finally:
            copy.close()
    finally:
        source.close()
    disk.rename(copy_path, path)
    return segment.size_bytes - size_bytes


def _sound_bytes(file: File, segment: Segment, recovery_point: int, *, may_skip: bool) -> int:
    """How far a segment is what it should be. What was flushed is, or cannot be read."""
    expected, size_bytes = segment.base_offset, 0
    for batch in scan(file.read, 0, segment.size_bytes, window_bytes=COPIED_BYTES, verify=True):
        # Only what is not flushed has no gaps of compaction, unless it came from a leader.
        if batch.base_offset > max(expected, recovery_point) and not may_skip:
            break
        expected, size_bytes = batch.last_offset + 1, batch.end_position
    if size_bytes < segment.size_bytes and expected < recovery_point:
        raise OSError(errno.EIO, f"{segment.paths.path(LOG)} is damaged at position {size_bytes}")
    return size_bytes
