"""A disk in memory that loses power, runs full, fails and writes short, on command and repeatably.

It keeps two truths: what a running process sees, and what has reached the platter. `File.sync` brings a
file's content there, `sync_directory` a directory's names. `lose_power` makes a new disk of what a
machine could find after the plug was pulled: of what had not been synced any subset of writes, torn,
files grown with zeros in place of what was written, names created, renamed and removed or not.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence

from odradek.storage.disk import Buffer

SECTOR_BYTES = 64
"""Small, so that small batches tear too."""


class Inode:
    """A file's content: as the process sees it, as it is safe, and the writes in between."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        # (position, bytes) of a write, or (size, None) of a truncation, since the last sync.
        self.pending: list[tuple[int, bytes | None]] = []
        self.modified_ms = 0

    def after_power_loss(self, chance: random.Random) -> "Inode":
        survivor = Inode()
        data = bytearray(self.durable)
        for position, written in self.pending:
            if written is None:
                if chance.random() < 0.5:
                    del data[position:]
                    data.extend(bytes(position - len(data)))
                continue
            fate = chance.random()
            if fate < 0.3:
                continue
            if fate < 0.45:
                # The size came through, the content did not.
                data.extend(bytes(max(position + len(written) - len(data), 0)))
                continue
            kept = written if fate < 0.8 else _torn(written, chance)
            data.extend(bytes(max(position + len(kept) - len(data), 0)))
            data[position : position + len(kept)] = kept
        survivor.data = data
        survivor.durable = bytes(data)
        return survivor


def _torn(written: bytes, chance: random.Random) -> bytes:
    """The write up to some sector, or with some sectors left as zeros."""
    if chance.random() < 0.5:
        return written[: chance.randrange(len(written) + 1)]
    torn = bytearray(written)
    for start in range(0, len(torn), SECTOR_BYTES):
        if chance.random() < 0.4:
            torn[start : start + SECTOR_BYTES] = bytes(len(torn[start : start + SECTOR_BYTES]))
    return bytes(torn)


class PowerLost(BaseException):
    """The plug was pulled in the middle of an operation. No `except Exception` may swallow it."""


class MemoryFile:
    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def read(self, position: int, size_bytes: int) -> bytes:
        self._disk.step("read", self._path)
        return bytes(self._inode.data[position : position + size_bytes])

    def read_now(self, position: int, size_bytes: int) -> bytes | None:
        return self.read(position, size_bytes) if self.is_resident(position, size_bytes) else None

    def is_resident(self, position: int, size_bytes: int) -> bool:
        cold = self._disk.cold.get(self._path)
        return cold is None or position + size_bytes <= cold[0] or position >= cold[1]

    def load(self, position: int, size_bytes: int) -> None:
        self.read(position, size_bytes)
        self._disk.cold.pop(self._path, None)

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        content = b"".join(parts)
        allowed = self._disk.room_for(self._path, self._inode, position, content)
        content = content[:allowed]
        data = self._inode.data
        data.extend(bytes(max(position + len(content) - len(data), 0)))
        data[position : position + len(content)] = content
        self._inode.pending.append((position, content))
        self._disk.step("write", self._path)
        return len(content)

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step("truncate", self._path)
        data = self._inode.data
        del data[size_bytes:]
        data.extend(bytes(size_bytes - len(data)))
        self._inode.pending.append((size_bytes, None))

    def reserve(self, size_bytes: int) -> None:
        self._disk.step("reserve", self._path)

    def sync(self) -> None:
        self._disk.step("sync", self._path)
        self._inode.durable = bytes(self._inode.data)
        self._inode.pending.clear()

    def map(self, size_bytes: int) -> memoryview:
        assert size_bytes <= len(self._inode.data), "a mapping reaches behind the end of its file"
        return memoryview(bytes(self._inode.data[:size_bytes]))

    def close(self) -> None:
        pass


class MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryDisk:
    """`fail` is asked before each operation ("write", path) and may return an errno; `short_writes` a
    seed for them.
    """

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.durable_files: dict[str, Inode] = {}
        self.directories: set[str] = set()
        self.held: set[str] = set()
        self.operations = 0
        self.lose_power_at: int | None = None
        self.fail: Callable[[str, str], int | None] = lambda operation, path: None
        self.room_bytes: int | None = None
        self.short_writes: random.Random | None = None
        self.cold: dict[str, tuple[int, int]] = {}
        """Of a file, from where to where it is not in the system's memory until somebody loads it."""

    def step(self, operation: str, path: str) -> None:
        """Count an operation that matters, and let it fail or the power go where a test wants it."""
        if operation != "read":
            self.operations += 1
            if self.operations == self.lose_power_at:
                raise PowerLost
        code = self.fail(operation, path)
        if code is not None:
            raise OSError(code, os.strerror(code), path)

    def room_for(self, path: str, inode: Inode, position: int, content: bytes) -> int:
        """How much of a write is taken: all, what there is room for, or, with short writes, some of it."""
        allowed = len(content)
        if self.room_bytes is not None:
            used = sum(len(one.data) for one in self.files.values())
            overwritten = max(len(inode.data) - position, 0)
            allowed = min(allowed, max(self.room_bytes - used + overwritten, 0))
            if allowed == 0 and content:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.short_writes is not None and allowed > 1 and self.short_writes.random() < 0.5:
            allowed = self.short_writes.randrange(1, allowed)
        return allowed

    def lose_power(self, seed: int) -> "MemoryDisk":
        """The disk that the next start finds."""
        chance = random.Random(seed)
        after = MemoryDisk()
        after.directories = set(self.directories)
        for directory in {path.rpartition("/")[0] for path in (*self.files, *self.durable_files)}:
            # A journal keeps the order of changes to names: all since the last sync are there, or none.
            names = self.files if chance.random() < 0.5 else self.durable_files
            for path, inode in names.items():
                if path.rpartition("/")[0] == directory:
                    after.files[path] = inode.after_power_loss(chance)
        after.durable_files = dict(after.files)
        return after

    # Disk

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.step("create", path)
            self.files[path] = Inode()
        return MemoryFile(self, path, self.files[path])

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.directories

    def list(self, path: str) -> list[str]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        inside = path + "/"
        return [
            name.removeprefix(inside)
            for name in (*self.files, *self.directories)
            if name.startswith(inside) and "/" not in name.removeprefix(inside)
        ]

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        return self.files[path].modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.files[path].modified_ms = modified_ms

    def make_directory(self, path: str) -> bool:
        self.step("mkdir", path)
        is_new = path not in self.directories
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            self.directories.add("/".join(parts[:depth]))
        return is_new

    def remove(self, path: str) -> None:
        if path in self.files:
            self.step("remove", path)
            del self.files[path]

    def remove_directory(self, path: str) -> None:
        self.step("rmdir", path)
        assert not self.list(path), f"{path} is not empty"
        self.directories.discard(path)

    def rename(self, source: str, target: str) -> None:
        self.step("rename", target)
        if source in self.directories:
            # Renamed directories survive at once here: what matters to the log is inside them.
            self.directories.remove(source)
            self.directories.add(target)
            for names in (self.files, self.durable_files):
                for path in [path for path in names if path.startswith(source + "/")]:
                    names[target + path.removeprefix(source)] = names.pop(path)
            return
        self.files[target] = self.files.pop(source)

    def sync_directory(self, path: str) -> None:
        self.step("syncdir", path)
        for names in (self.durable_files, self.files):
            for name in [name for name in names if name.rpartition("/")[0] == path]:
                if names is self.durable_files:
                    del names[name]
                else:
                    self.durable_files[name] = names[name]

    def sync_file_system(self, path: str) -> None:
        self.step("syncfs", path)
        for inode in self.files.values():
            inode.durable = bytes(inode.data)
            inode.pending.clear()
        self.durable_files = dict(self.files)

    def lock(self, path: str) -> MemoryLock:
        if path in self.held:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.held.add(path)
        return MemoryLock(self.held, path)
