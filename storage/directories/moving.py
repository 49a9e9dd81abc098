"""Moving a partition to another data directory while it is written and read.

The files of its log are copied byte by byte into a directory `topic-0.<id>-future`, in passes: each pass
copies and flushes the bytes added since the last pass. When little is left, the rest is copied in the event
loop, the directory gets its final name, and the log continues in it; for writers and readers this is one
step. Later, after a flush of the new directory, the old directory is removed.

After a kill or a loss of power at any point the partition is complete:
- Before the new directory has its name, the old one is used; the copy is removed, and the move begins again.
- While both have it, the one with the longer sound log is used. Before the flush of the new directory, all
  flushed records (in the files or in the flush journal) are in the old one. Records that are appended and
  flushed afterwards are only in the new one, which is then longer. (Without appends they are equal.) The log
  start, which the files do not contain, is written to the checkpoints of both data directories.
- If the new name did not survive a loss of power, no flush of the new directory had ended.

Segments that retention or compaction removes meanwhile are removed from the copy in the next pass. The rate
is limited by `replica.alter.log.dirs.io.max.bytes.per.second`. A log that is written faster than this never
completes its move, as in Kafka.
"""

import errno
from functools import partial

from odradek.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    write_leader_epochs,
    write_partition_metadata,
)
from odradek.storage.directories.data_directory import DataDirectory
from odradek.storage.disk import Disk, read_file, write_all
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment
from odradek.storage.log.segment_paths import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, file_name
from odradek.storage.throttle import Allowance
from odradek.wire.work import Work

COPIED_BYTES = 4_194_304
"""Bytes copied by one step in the worker."""
REST_BYTES_MAX = 262_144
"""Bytes that may be left for the event loop: a fraction of a millisecond."""
_INDEXES = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


class Move:
    """The move of one partition. First `catching_up`, then `finish`; both again when `finish` returns
    False."""

    __slots__ = (
        "_complete",
        "_copied",
        "_disk",
        "_epochs",
        "_unsynced",
        "end_offset",
        "future",
        "log_start_offset",
        "partition",
        "synced_offset",
        "target",
    )

    def __init__(self, partition: Partition, target: DataDirectory, future: str) -> None:
        self.partition = partition
        self.target = target
        self.future = future
        # Bytes of the segments copied before the current one.
        self.end_offset = partition.log_start_offset
        self.synced_offset = 0
        self.log_start_offset = -1
        self._disk: Disk = target.disk
        self._copied: dict[Segment, int] = {}
        # Sealed segments whose indexes are copied, too.
        self._complete: set[Segment] = set()
        self._unsynced: set[str] = set()
        self._epochs: list[tuple[int, int]] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(self._copied.values())

    def catching_up(self, allowance: Allowance) -> Work[bool]:
        """Copy and flush until only a little is left; False when the allowance is used up before. Raises
        `OSError`.
        """
        yield self._begin
        log = self.partition.log
        while True:
            end_offset, epochs = log.log_end_offset, log.leader_epochs.entries()
            segments = list(log.segments)
            sizes = [segment.size_bytes for segment in segments]
            left = sum(sizes) - sum(self._copied.get(segment, 0) for segment in segments)
            for segment in [one for one in self._copied if one not in segments]:
                yield partial(self._forget, segment)
            for segment, size_bytes in zip(segments, sizes, strict=True):
                is_sealed = segment is not segments[-1]
                if not (yield from self._copying(segment, size_bytes, allowance, is_sealed=is_sealed)):
                    return False
            yield partial(self._flush, epochs)
            self.end_offset = self.synced_offset = end_offset
            self.log_start_offset = self.partition.log_start_offset
            self._epochs = epochs
            if left <= REST_BYTES_MAX:
                return True

    def finish(self, path: str) -> bool:
        """Continue the log in the copy, whose directory becomes `path`. False, without a change, if the copy
        is too far behind. `OSError`: the partition stays in its old directory.
        """
        log = self.partition.log
        *sealed, active = log.segments
        left = active.size_bytes - self._copied.get(active, 0)
        if (
            left > REST_BYTES_MAX
            or self._copied.keys() - set(log.segments)
            or not self._complete.issuperset(sealed)
            or log.leader_epochs.entries() != self._epochs
            or self.partition.log_start_offset != self.log_start_offset
        ):
            return False
        self._copy(active, active.size_bytes, COPIED_BYTES)
        self._copy_file(active, TRANSACTION_INDEX)
        self._disk.rename(self.future, path)
        log.relocate(path, self.synced_offset)
        return True

    def abandon(self) -> None:
        """Remove the copy. May run in a worker thread. Raises `OSError`."""
        if self._disk.exists(self.future):
            for name in self._disk.list(self.future):
                self._disk.remove(f"{self.future}/{name}")
            self._disk.remove_directory(self.future)

    # In the worker

    def _begin(self) -> None:
        if self._disk.make_directory(self.future):
            path = f"{self.future}/{PARTITION_METADATA}"
            write_partition_metadata(self._disk, path, self.partition.topic_id)
            self._unsynced.add(path)

    def _copying(
        self, segment: Segment, size_bytes: int, allowance: Allowance, *, is_sealed: bool
    ) -> Work[bool]:
        self.end_offset = max(self.end_offset, segment.base_offset)
        try:
            while (copied := self._copied.get(segment, -1)) < size_bytes:
                allowed_bytes = allowance.take(min(size_bytes - max(copied, 0), COPIED_BYTES))
                if not allowed_bytes and size_bytes:
                    return False
                yield partial(self._copy, segment, size_bytes, allowed_bytes)
            if is_sealed and segment not in self._complete:
                yield partial(self._copy_beside, segment)
        except FileNotFoundError:
            if segment in self.partition.log.segments:
                raise
            # Retention or compaction removed the segment: the next pass leaves it out.
        return True

    def _copy(self, segment: Segment, size_bytes: int, allowed_bytes: int) -> None:
        """Copy the next part of a segment."""
        start = self._copied.get(segment, 0)
        wanted_bytes = min(size_bytes - start, allowed_bytes)
        with segment.file.pinned() as source:
            content = source.read(start, wanted_bytes)
        if len(content) < wanted_bytes:
            raise OSError(errno.EIO, f"{segment.paths.path(LOG)} has become shorter")
        self._write(file_name(segment.base_offset, LOG), start, content)
        if start == 0:
            self._copy_file(segment, SNAPSHOT)
        self._copied[segment] = start + wanted_bytes

    def _copy_beside(self, segment: Segment) -> None:
        segment.save_indexes()
        for kind in _INDEXES:
            self._copy_file(segment, kind)
        # Retention uses the file time where records have no timestamps.
        self._disk.set_modified_ms(
            f"{self.future}/{file_name(segment.base_offset, LOG)}", segment.paths.modified_ms()
        )
        self._complete.add(segment)

    def _copy_file(self, segment: Segment, kind: str) -> None:
        path = segment.paths.path(kind)
        if self._disk.exists(path):
            self._write(file_name(segment.base_offset, kind), 0, read_file(self._disk, path))

    def _write(self, name: str, position: int, content: bytes) -> None:
        path = f"{self.future}/{name}"
        file = self._disk.open(path, create=True)
        try:
            if content:
                write_all(file, position, [content], len(content))
        finally:
            file.close()
        self._unsynced.add(path)

    def _forget(self, segment: Segment) -> None:
        for kind in (LOG, *_INDEXES, SNAPSHOT):
            path = f"{self.future}/{file_name(segment.base_offset, kind)}"
            self._disk.remove(path)
            self._unsynced.discard(path)
        del self._copied[segment]
        self._complete.discard(segment)

    def _flush(self, epochs: list[tuple[int, int]]) -> None:
        disk = self._disk
        while self._unsynced:
            file = disk.open(self._unsynced.pop())
            try:
                file.sync()
            finally:
                file.close()
        if epochs != self._epochs:
            write_leader_epochs(disk, f"{self.future}/{LEADER_EPOCHS}", epochs)
        disk.sync_directory(self.future)
