"""One data directory: its checkpoint files, and whether the disk under it answers.

Four checkpoint files are Kafka's: one offset for each partition that lies in the directory. A fifth is ours
and has heads (`heads.py`). The thread that owns the store keeps what they say and tells which files it wants
brought up to date (`want`); `write` does that in any thread, one after the other. What is on the disk is
never older than what was wanted before the `write` that returned.

A partition's name says nothing of the topic's id. So whoever makes a partition has to `forget` what an
earlier one of its name left behind, on the disk too: else a start after a kill would take that for its own.
"""

import errno
from collections.abc import Container
from contextlib import AbstractContextManager

from odradek.storage import checkpoints
from odradek.storage.checkpoints import FIRST_DIRTY, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from odradek.storage.disk import Disk, Lock, write_all
from odradek.storage.heads import HEADS, Head, read_heads, write_heads

Key = tuple[str, int]

CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, FIRST_DIRTY)
PROBE = ".odradek-probe"
PROBE_BYTES = 4096
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk is full, or as much of it as this process may have."""
NO_FAILURE_OF_A_DISK = NO_ROOM | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}
"""What a sound disk answers, too: it is full, or this process has too much open."""


def is_failure(error: OSError) -> bool:
    """Whether the disk may be broken that answered so."""
    return error.errno not in NO_FAILURE_OF_A_DISK


class DataDirectory:
    """See the module. `failure` is why it is offline, None while it serves; `writing` lets one thread in."""

    __slots__ = (
        "_wanted",
        "_wanted_heads",
        "_writing",
        "_written",
        "_written_heads",
        "disk",
        "failure",
        "heads",
        "is_vouched",
        "lock",
        "offsets",
        "partition_count",
        "path",
        "was_opened",
    )

    def __init__(self, disk: Disk, path: str, writing: AbstractContextManager) -> None:
        self.disk = disk
        self.path = path
        self.lock: Lock | None = None
        self.failure: str | None = None
        self.was_opened = False
        self.is_vouched = True
        """Whether it is known what flushes before this start have vouched for."""
        self.partition_count = 0
        self.offsets: dict[str, dict[Key, int]] = {name: {} for name in CHECKPOINTS}
        self.heads: dict[Key, Head] = {}
        self._writing = writing
        self._wanted: dict[str, dict[Key, int]] = {}
        self._written: dict[str, dict[Key, int]] = {}
        self._wanted_heads: dict[Key, Head] = {}
        self._written_heads: dict[Key, Head] | None = {}

    def __repr__(self) -> str:
        return f"DataDirectory({self.path})"

    # Checkpoints

    def read_checkpoints(self) -> list[str]:
        """Take over what the files say. Those that are damaged say nothing; their names are returned."""
        damaged = []
        for name, offsets in self.offsets.items():
            found = checkpoints.read_offsets(self.disk, f"{self.path}/{name}")
            if found is None:
                damaged.append(name)
                self.is_vouched = self.is_vouched and name != RECOVERY_POINTS
            elif found:
                offsets |= found
                self._written[name] = dict(found)
        heads = read_heads(self.disk, f"{self.path}/{HEADS}")
        if heads is None:
            damaged.append(HEADS)
            self._written_heads = None
        else:
            self.heads, self._wanted_heads, self._written_heads = heads, dict(heads), dict(heads)
        return damaged

    def offset(self, name: str, key: Key) -> int:
        """What is known of a partition, 0 when nothing is."""
        return self.offsets[name].get(key, 0)

    def written(self, name: str, key: Key) -> int:
        """The same, as it is on the disk."""
        return self._written.get(name, {}).get(key, 0)

    def forget(self, key: Key) -> bool:
        """Nothing is known of that partition any more; whether a file on the disk still says something."""
        for offsets in self.offsets.values():
            offsets.pop(key, None)
        self.heads.pop(key, None)
        is_said = any(key in said for said in (*self._written.values(), *self._wanted.values()))
        return is_said or key in self._wanted_heads or key in (self._written_heads or ())

    def keep_only(self, keys: Container[Key]) -> None:
        """Forget all other partitions; the files may go on speaking of them."""
        for key in set(self.heads).union(*self.offsets.values()):
            if key not in keys:
                self.forget(key)

    def want(self, *names: str) -> None:
        """The next `write` shall put these on the disk (all, when none is named) as they are now, and the
        heads.
        """
        for name in names or CHECKPOINTS:
            self._wanted[name] = dict(self.offsets[name])
        self._wanted_heads = dict(self.heads)

    def write(self) -> None:
        """Return when the disk has what is wanted. Raises `OSError`. May run in any thread."""
        with self._writing:
            for name, wanted in list(self._wanted.items()):
                if self._written.get(name) != wanted:
                    checkpoints.write_offsets(self.disk, f"{self.path}/{name}", wanted)
                    self._written[name] = wanted
            # After the recovery points: a head before which nobody vouches is none.
            heads = self._wanted_heads
            if self._written_heads != heads:
                write_heads(self.disk, f"{self.path}/{HEADS}", heads)
                self._written_heads = heads

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
