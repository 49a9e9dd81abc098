"""Bringing a partition back after a disk error: its files are read, written again and flushed.

After a failed flush it is not known which bytes the disk has. The kernel counts the pages whose writing
failed as clean: another flush would succeed without writing, and a read returns the pages in memory. So
unflushed bytes are treated as not on the disk, even if they can be read:

1. The entries of the partition in the flush journal are written to its files.
2. Every segment that ends after the recovery point is copied to a new file, as far as its batches are whole,
   in order and have right checksums. The copy reads pages from memory or from the disk; a checksum shows a
   damaged batch.
3. The copies are flushed, renamed over the segments, and the directory is flushed. They use other blocks than
   those that failed. Only when all of this has succeeded does the partition come back.
4. The log is then opened as after a crash.

After a rescan the disk has every record that the partition serves. But the partition may have lost records:
those that were neither in memory nor on the disk are cut with all later records, as after a loss of power;
`Recovered.cut_bytes` has their size. Before the recovery point nothing is cut: if a flushed record cannot be
read, that is an error, and the partition stays offline.

Slices of readers stay valid: their mappings keep the old files.

A rescan takes seconds in a worker; meanwhile the topic may be deleted and created again: see `DiskWhileHeld`.
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
"""The next start removes files of this name that a crash left."""
COPIED_BYTES = 1_048_576


class DiskWhileHeld:
    """A `Disk` for a worker in a partition's directory, while the thread that owns the store may delete the
    partition: a new topic of that name has its directory at the same path.

    Each operation on a path runs under `gate`, and only while `is_held`; afterwards it raises `OSError`. The
    partition is given up under the gate, so the owner waits for at most one such operation. Open files stay
    valid when their directory is renamed.
    """

    def __init__(self, disk: Disk, gate: AbstractContextManager[Any], is_held: Callable[[], bool]) -> None:
        self._disk = disk
        self._gate = gate
        self._is_held = is_held

    # These operations take long, and do not change another topic at this path.

    def sync_directory(self, path: str) -> None:
        self._disk.sync_directory(path)

    def sync_file_system(self, path: str) -> None:
        self._disk.sync_file_system(path)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        def checked(path: str, *arguments: Any, **options: Any) -> Any:
            with self._gate:
                if not self._is_held():
                    raise OSError(errno.ESTALE, "its partition was deleted", path)
                return method(path, *arguments, **options)

        return checked


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
    """The log, opened again from files that are synced. `OSError`: the sync failed, and the rescan can be
    tried again without a loss. `scan_checkpoint` is from the checkpoint file; it is not valid afterwards. For
    `may_skip` see `open_log`.

    Meanwhile no other operation may write to the partition, and no block of the flush journal with its tail
    may be in progress. Runs in any thread, with large segments for seconds. The new log opens its files in
    `pool`: see `take_over`.
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
            # Removed, not truncated: a reader may have the file mapped.
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
    """Write the journal's entries to the files: the entries are on the disk, and bytes in memory that differ
    are wrong."""
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
    """Move the segments of a log to another pool of open files."""
    for segment in log.segments:
        segment.use_pool(pool)
    log.files.pool = pool


def _copy_over(disk: Disk, segment: Segment, recovery_point: int, *, may_skip: bool) -> int:
    """Replace a segment's file by a flushed copy of its sound part; returns the number of unsound bytes."""
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
    """The size of a segment's sound part. Damage in the flushed part is an `OSError`."""
    expected, size_bytes = segment.base_offset, 0
    for batch in scan(file.read, 0, segment.size_bytes, window_bytes=COPIED_BYTES, verify=True):
        # Only the unflushed part has no gaps by compaction, unless it came from a leader.
        if batch.base_offset > max(expected, recovery_point) and not may_skip:
            break
        expected, size_bytes = batch.last_offset + 1, batch.end_position
    if size_bytes < segment.size_bytes and expected < recovery_point:
        raise OSError(errno.EIO, f"{segment.paths.path(LOG)} is damaged at position {size_bytes}")
    return size_bytes
