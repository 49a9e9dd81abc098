"""One data directory: its checkpoint files, and the state of its disk.

Four checkpoint files are Kafka's: one offset for each partition in the directory. Two are ours, of scan
checkpoints (`scan_checkpoint.py`) and end checkpoints (`durability.py`). The thread that owns the store
keeps their values and marks the files to be updated (`want`); `write` updates them, in any thread, one file
after the other. When `write` returns, the disk has at least the values of all earlier `want` calls.

A partition's name does not include the topic's id. So the entries of an earlier partition of the same name
have to be removed (`forget`) when a partition is made, on the disk too: after a kill the start would use
them.
"""

import errno
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, TypeVar

from odradek.storage import checkpoints
from odradek.storage.checkpoints import FIRST_DIRTY, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.storage.disk import NO_ROOM, Disk, Lock, write_all
from odradek.storage.log.durability import END_CHECKPOINTS, EndCheckpoint
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS, ScanCheckpoint

Key = tuple[str, int]

CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, FIRST_DIRTY)
PROBE = ".odradek-probe"
PROBE_BYTES = 4096
NO_FAILURE_OF_A_DISK = NO_ROOM | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}
"""Errors that a sound disk gives, too: it is full, or this process has too many open files."""


def is_failure(error: OSError) -> bool:
    """Whether the disk that gave this error may be broken."""
    return error.errno not in NO_FAILURE_OF_A_DISK


_What = TypeVar("_What")


class _Checkpoint(Generic[_What]):
    """The entries of one file by partition: current (`now`), and on the disk."""

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
        """None: written even without entries. Kafka has its files in every directory."""
        self._wanted: dict[Key, _What] | None = None

    def read(self, disk: Disk, path: str) -> bool:
        """Read the entries; False when the file is damaged, then there are none."""
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
        """Whether the file has an entry of the partition, or will have after a write."""
        self.now.pop(key, None)
        return key in (self._wanted or ()) or key in (self.written or ())


class DataDirectory:
    """See the module. `failure` is the reason why it is offline, None while it serves; `writing` is the lock
    of writes."""

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
        """Whether the recovery points of the last run are known."""
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
        # In the order of writing: a scan or end checkpoint is valid only with the recovery point written
        # before it.
        self._files: dict[str, _Checkpoint[Any]] = {
            **offsets,
            SCAN_CHECKPOINTS: scan_checkpoints,
            END_CHECKPOINTS: end_checkpoints,
        }

    def __repr__(self) -> str:
        return f"DataDirectory({self.path})"

    # Checkpoints

    def read_checkpoints(self) -> list[str]:
        """Read the files. Returns the names of damaged files, whose entries are lost."""
        damaged = [
            name for name, file in self._files.items() if not file.read(self.disk, self._path_of(name))
        ]
        self.knows_recovery_points = self.knows_recovery_points and RECOVERY_POINTS not in damaged
        return damaged

    def _path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def offset(self, name: str, key: Key) -> int:
        """The offset of a partition, 0 if there is none."""
        return self.offsets[name].get(key, 0)

    def written(self, name: str, key: Key) -> int:
        """The offset on the disk."""
        written: dict[Key, int] = self._files[name].written or {}
        return written.get(key, 0)

    def forget(self, key: Key) -> bool:
        """Remove the entries of a partition; returns whether a file on the disk still has one."""
        is_said = False
        for file in self._files.values():
            is_said |= file.forget(key)
        return is_said

    def keep_only(self, keys: Container[Key]) -> None:
        """Remove the entries of all other partitions; the files may still have them."""
        for key in {key for file in self._files.values() for key in file.now}:
            if key not in keys:
                self.forget(key)

    def want(self, *names: str) -> None:
        """Let the next `write` put the current values of these files on the disk (without names, of all
        files), and the scan and end checkpoints.
        """
        for name in (*(names or CHECKPOINTS), SCAN_CHECKPOINTS, END_CHECKPOINTS):
            self._files[name].want()

    def write(self) -> None:
        """Write the wanted files; returns when the disk has them. Raises `OSError`. May run in any thread."""
        with self._writing:
            for name, file in self._files.items():
                file.write(self.disk, self._path_of(name))

    # The disk

    def probe(self) -> None:
        """Raise `OSError` if the disk cannot write, sync and read a few bytes. May run in any thread. A full
        disk counts as sound.
        """
        disk, path, content = self.disk, f"{self.path}/{PROBE}", bytes(range(256)) * (PROBE_BYTES // 256)
        try:
            disk.list(self.path)
            file = disk.open(path, create=True)
            try:
                write_all(file, 0, [content], len(content))
                file.sync()
                if file.read(0, len(content)) != content:
                    raise OSError(errno.EIO, "the disk returns other bytes than were written")
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
