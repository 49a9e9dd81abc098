"""Moving a partition to another data directory while it is written and read.

The files of its log are copied byte by byte into a directory `topic-0.<id>-future`, in passes: each takes
what has come since the one before, and flushes it. When little is left that is copied in the loop, the
directory gets its name, and the log goes on in it, all at once for whoever appends or reads. Later, when the
new directory has been flushed under its name, the old one goes.

A kill, or a loss of power, at any point leaves a whole partition:
- Before the new directory has its name, the old one is it; the copy goes, and the move begins anew.
- While both have it, the one that is sound for longer is it. Until the new one has been flushed, what was
  flushed, to the files or to the flush journal, is in the old one. What is appended and flushed afterwards is
  in the new one alone, which is longer then. (With nothing appended they are the same.) Where the log begins,
  which nobody can see in the files, both data directories are told.
- Where the new name did not survive a loss of power, no flush of the new directory had come to its end.

What goes away meanwhile (retention, compaction) is left out of the copy with the next pass. No more of a log
is copied than `replica.alter.log.dirs.io.max.bytes.per.second` allows; when more is allowed, it goes on. So
one that is written faster than that is never there, as in Kafka.
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
"""By one step in the worker."""
REST_BYTES_MAX = 262_144
"""What may be left for the loop: a fraction of a millisecond."""
_INDEXES = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


class Move:
    """One partition on its way. First `catching_up`, then `finish`, and again when that says no."""

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
        # Of the whole segments that have been copied before the one at work.
        self.end_offset = partition.log_start_offset
        self.synced_offset = 0
        self.log_start_offset = -1
        self._disk: Disk = target.disk
        self._copied: dict[Segment, int] = {}
        # Sealed segments whose indexes are there, too.
        self._complete: set[Segment] = set()
        self._unsynced: set[str] = set()
        self._epochs: list[tuple[int, int]] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(self._copied.values())

    def catching_up(self, allowance: Allowance) -> Work[bool]:
        """Copy and flush what there is, until only a little has come in the meantime; False when no more of
        it is allowed before. Raises `OSError`.
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
        """Let the log go on in the copy, which gets its name, `path`. False, and nothing done, when the copy
        is too far behind. `OSError`: the partition is where it was.
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
            # Retention or compaction took it: the next pass leaves it out.
        return True

    def _copy(self, segment: Segment, size_bytes: int, allowed_bytes: int) -> None:
        """The next piece of a segment."""
        start = self._copied.get(segment, 0)
        wanted_bytes = min(size_bytes - start, allowed_bytes)
        with segment.file.pinned() as source:
            content = source.read(start, wanted_bytes)
        if len(content) < wanted_bytes:
            raise OSError(errno.EIO, f"{segment.paths.path(LOG)} is shorter than it was")
        self._write(file_name(segment.base_offset, LOG), start, content)
        if start == 0:
            self._copy_file(segment, SNAPSHOT)
        self._copied[segment] = start + wanted_bytes

    def _copy_beside(self, segment: Segment) -> None:
        segment.save_indexes()
        for kind in _INDEXES:
            self._copy_file(segment, kind)
        # Retention goes by it where records have no timestamps.
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
