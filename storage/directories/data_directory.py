"""One data directory: its checkpoint files, and whether the disk under it answers.

Four checkpoint files are Kafka's: one offset for each partition that lies in the directory. Two are ours, of
scan checkpoints (`scan_checkpoint.py`) and end checkpoints (`end_checkpoint.py`). The thread that owns the
store keeps what they say and tells which files it wants brought up to date (`want`); `write` does that in any
thread, one after the other. What is on the disk is never older than what was wanted before the `write` that
returned.

A partition's name says nothing of the topic's id. So whoever makes a partition has to `forget` what an
earlier one of its name left behind, on the disk too: else a start after a kill would take that for its own.
"""

import errno
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeVar

from odradek.storage import checkpoints
from odradek.storage.checkpoints import FIRST_DIRTY, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.storage.disk import NO_ROOM, Disk, Lock, write_all
from odradek.storage.log.end_checkpoint import END_CHECKPOINTS, EndCheckpoint
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS, ScanCheckpoint

Key = tuple[str, int]

CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, FIRST_DIRTY)
PROBE = ".odradek-probe"
PROBE_BYTES = 4096
NO_FAILURE_OF_A_DISK = NO_ROOM | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}
"""What a sound disk answers, too: it is full, or this process has too much open."""


def is_failure(error: OSError) -> bool:
    """Whether the disk may be broken that answered so."""
    return error.errno not in NO_FAILURE_OF_A_DISK


_What = TypeVar("_What")


class _Checkpoint(Generic[_What]):
    """What one file says of each partition: as it is `now`, and as it is on the disk."""

    __slots__ = ("_is_kafkas", "_read", "_wanted", "_write", "now", "written")

    def __init__(
        self,
        read: Callable[[Disk, str], dict[Key, _What] | None],
        write: Callable[[Disk, str, dict[Key, _What]], None],
        *,
        is_kafkas: bool,
    ) -> None:
        self._read, self._write, self._is_kafkas = read, write, is_kafkas
        self.now: dict[Key, _What] = {}
        self.written: dict[Key, _What] | None = None
        """None: to be written even when there is nothing to say. Kafka has its files in every directory."""
        self._wanted: dict[Key, _What] | None = None

    def read(self, disk: Disk, path: str) -> bool:
        """Take over what the file says; False when it is damaged, which says nothing."""
        found = self._read(disk, path)
        if found is None:
            return False
        self.now |= found
        if found or not self._is_kafkas:
            self.written = found
        return True

    def want(self) -> None:
        self._wanted = dict(self.now)

    def write(self, disk: Disk, path: str) -> None:
        wanted = self._wanted
        if wanted is not None and wanted != self.written:
            self._write(disk, path, wanted)
            self.written = wanted

    def forget(self, key: Key) -> bool:
        """Whether the file says something of it, or is about to."""
        self.now.pop(key, None)
        return key in (self._wanted or ()) or key in (self.written or ())


class DataDirectory:
    """See the module. `failure` is why it is offline, None while it serves; `writing` lets one thread in."""

    __slots__ = (
        "_files",
        "_writing",
        "disk",
        "end_checkpoints",
        "failure",
        "knows_recovery_points",
        "lock",
        "offsets",
        "partition_count",
        "path",
        "scan_checkpoints",
        "was_opened",
    )

    def __init__(self, disk: Disk, path: str, writing: AbstractContextManager[object]) -> None:
        self.disk = disk
        self.path = path
        self.lock: Lock | None = None
        self.failure: str | None = None
        self.was_opened = False
        self.knows_recovery_points = True
        """Whether it is known how far the logs had been flushed before this start."""
        self.partition_count = 0
        read, write, read_facts = checkpoints.read_offsets, checkpoints.write_offsets, checkpoints.read_facts
        offsets = {name: _Checkpoint(read, write, is_kafkas=True) for name in CHECKPOINTS}
        scan_checkpoints = _Checkpoint(
            partial(read_facts, of_numbers=ScanCheckpoint), checkpoints.write_facts, is_kafkas=False
        )
        end_checkpoints = _Checkpoint(
            partial(read_facts, of_numbers=EndCheckpoint), checkpoints.write_facts, is_kafkas=False
        )
        self.offsets: dict[str, dict[Key, int]] = {name: file.now for name, file in offsets.items()}
        self.scan_checkpoints: dict[Key, ScanCheckpoint] = scan_checkpoints.now
        self.end_checkpoints: dict[Key, EndCheckpoint] = end_checkpoints.now
        self._writing = writing
        # In the order in which they are written: one of ours holds only with the recovery point before it.
        self._files: dict[str, _Checkpoint[Any]] = {
            **offsets,
            SCAN_CHECKPOINTS: scan_checkpoints,
            END_CHECKPOINTS: end_checkpoints,
        }

    def __repr__(self) -> str:
        return f"DataDirectory({self.path})"

    # Checkpoints

    def read_checkpoints(self) -> list[str]:
        """Take over what the files say. Those that are damaged say nothing; their names are returned."""
        damaged = [
            name for name, file in self._files.items() if not file.read(self.disk, self._path_of(name))
        ]
        self.knows_recovery_points = self.knows_recovery_points and RECOVERY_POINTS not in damaged
        return damaged

    def _path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def offset(self, name: str, key: Key) -> int:
        """What is known of a partition, 0 when nothing is."""
        return self.offsets[name].get(key, 0)

    def written(self, name: str, key: Key) -> int:
        """The same, as it is on the disk."""
        written: dict[Key, int] = self._files[name].written or {}
        return written.get(key, 0)

    def forget(self, key: Key) -> bool:
        """Nothing is known of that partition any more; whether a file on the disk still says something."""
        is_said = False
        for file in self._files.values():
            is_said |= file.forget(key)
        return is_said

    def keep_only(self, keys: Container[Key]) -> None:
        """Forget all other partitions; the files may go on speaking of them."""
        for key in {key for file in self._files.values() for key in file.now}:
            if key not in keys:
                self.forget(key)

    def want(self, *names: str) -> None:
        """The next `write` shall put these on the disk as they are now (all, when none is named), and the
        scan and end checkpoints.
        """
        for name in (*(names or CHECKPOINTS), SCAN_CHECKPOINTS, END_CHECKPOINTS):
            self._files[name].want()

    def write(self) -> None:
        """Return when the disk has what is wanted. Raises `OSError`. May run in any thread."""
        with self._writing:
            for name, file in self._files.items():
                file.write(self.disk, self._path_of(name))

    # The disk

    def probe(self) -> None:
        """Raise `OSError` when the disk does not take, keep and give back a few bytes. May run in any
        thread. A full disk is a sound one.
        """
        disk, path, content = self.disk, f"{self.path}/{PROBE}", bytes(range(256)) * (PROBE_BYTES // 256)
        try:
            disk.list(self.path)
            file = disk.open(path, create=True)
            try:
                write_all(file, 0, [content], len(content))
                file.sync()
                if file.read(0, len(content)) != content:
                    raise OSError(errno.EIO, "the disk gives back other bytes than it took")
            finally:
                file.close()
            disk.remove(path)
        except OSError as error:
            if is_failure(error):
                raise

    def unlock(self) -> None:
        if self.lock is not None:
            lock, self.lock = self.lock, None
            lock.release()
