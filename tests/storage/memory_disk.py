"""A disk in memory that loses power, runs full, fails and writes short, on command and repeatably.

It keeps two truths: what a running process sees, and what has reached the platter. `File.sync` brings a
file's content there, `sync_directory` a directory's names. `lose_power` makes a new disk of what a machine
could find after the plug was pulled. What the model promises, and what it does not:

- Of writes that were not synced any subset is there, in any order, each whole, torn at sectors, or not at
  all. Where only its length came through, zeros stand in its place, or garbage: random bytes, or a stale
  block of the same file. (Kafka's documentation of its log names these two kinds of corruption: an unwritten
  block lost, a nonsense block added.) A truncation that was not synced has happened or not.
- Names that were created, renamed or removed, directories too, are there as a journal would have them: of
  each directory's changes since its last sync the first few. A rename is one change. What a lost directory
  held is lost with it, synced or not. (What stands at the top, the data directories, is safe at once.)
- A `sync` that fails leaves the pages marked as clean, as Linux does: some of what was not synced has reached
  the platter, the rest never will, though the process goes on seeing it, and a later `sync` succeeds.
- Any operation can fail with any errno (`fail`); a write that does so may have written a part. A full disk
  (`room_bytes`) takes what there is room for and then nothing; `short_writes` takes less than was given.
- Synced bytes stay as they are: damage by the medium is not here but in `test_corruption.py`. A mapping has
  the bytes of the moment in which it was made, and never fails; on a real disk that would be a SIGBUS.

Everything random comes from seeds.
"""

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from odradek.storage.disk import Buffer

SECTOR_BYTES = 64
"""Small, so that small batches tear too."""

Write = tuple[int, bytes | None]
"""(position, bytes) of a write, or (size, None) of a truncation."""


class Inode:
    """A file's content: as the process sees it, as it is safe, and the writes in between."""

    def __init__(self, content: bytes | bytearray = b"") -> None:
        self.data = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[Write] = []
        self.modified_ms = 0

    def sync(self) -> None:
        for write in self.pending:
            _apply(self.durable, write)
        self.pending.clear()

    def fail_to_sync(self, chance: random.Random) -> None:
        """What was pending is on the platter or will never be; nobody is going to write it again."""
        for position, content in self.pending:
            if content is None or chance.random() < 0.5:
                _apply(self.durable, (position, content))
        self.pending.clear()

    def after_power_loss(self, chance: random.Random) -> "Inode":
        survivor = Inode(self.durable)
        pending = list(self.pending)
        if chance.random() < 0.3:
            chance.shuffle(pending)
        for position, written in pending:
            _survive(survivor.data, position, written, chance)
        survivor.durable = bytearray(survivor.data)
        survivor.modified_ms = self.modified_ms
        return survivor


def _apply(data: bytearray, write: Write) -> None:
    position, content = write
    if content is None:
        del data[position:]
        data.extend(bytes(position - len(data)))
        return
    data.extend(bytes(max(position + len(content) - len(data), 0)))
    data[position : position + len(content)] = content


def _survive(data: bytearray, position: int, written: bytes | None, chance: random.Random) -> None:
    """Let a write or a truncation that was not synced happen, or a part of it, or not."""
    if written is None:
        if chance.random() < 0.5:
            _apply(data, (position, None))
        return
    fate = chance.random()
    if fate < 0.3:
        return
    if fate < 0.45:
        # The length came through, the content did not.
        missing = max(position + len(written) - len(data), 0)
        data.extend(bytes(missing) if fate < 0.4 else _garbage(data, missing, chance))
        return
    _apply(data, (position, written if fate < 0.8 else _torn(written, chance)))


def _torn(written: bytes, chance: random.Random) -> bytes:
    """The write up to some sector, or with some sectors left as zeros or as garbage."""
    if chance.random() < 0.5:
        return written[: chance.randrange(len(written) + 1)]
    torn = bytearray(written)
    for start in range(0, len(torn), SECTOR_BYTES):
        if chance.random() < 0.4:
            size_bytes = len(torn[start : start + SECTOR_BYTES])
            other = bytes(size_bytes) if chance.random() < 0.7 else _garbage(torn, size_bytes, chance)
            torn[start : start + SECTOR_BYTES] = other
    return bytes(torn)


def _garbage(data: bytearray, size_bytes: int, chance: random.Random) -> bytes:
    """What may stand in a block that was never written: anything, or what an older block had."""
    if data and chance.random() < 0.5:
        start = chance.randrange(0, len(data), SECTOR_BYTES)
        stale = bytes(data[start : start + size_bytes])
        return stale + bytes(size_bytes - len(stale))
    return chance.randbytes(size_bytes)


class Names:
    """A directory: its names as the process sees them, as they are safe, and the changes in between."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Names] = {}
        self.durable: dict[str, Inode | Names] = {}
        # Each is what came true at once: a name and what it now stands for, None for nothing.
        self.pending: list[dict[str, Inode | Names | None]] = []

    def change(self, changes: "dict[str, Inode | Names | None]") -> None:
        _rename(self.entries, changes)
        self.pending.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def after_power_loss(self, chance: random.Random) -> "Names":
        names = dict(self.durable)
        for changes in self.pending[: chance.choice((0, len(self.pending), self._somewhere(chance)))]:
            _rename(names, changes)
        survivor = Names()
        survivor.entries = {name: node.after_power_loss(chance) for name, node in names.items()}
        survivor.durable = dict(survivor.entries)
        return survivor

    def _somewhere(self, chance: random.Random) -> int:
        return chance.randrange(len(self.pending) + 1)


def _rename(entries: dict[str, Inode | Names], changes: dict[str, Inode | Names | None]) -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class PowerLost(BaseException):
    """The plug was pulled in the middle of an operation. No `except Exception` may swallow it."""


class MemoryFile:
    def __init__(self, disk: "MemoryDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def read(self, position: int, size_bytes: int) -> bytes:
        self._disk.step("read", self._path)
        content = bytes(self._inode.data[position : position + size_bytes])
        self._disk.bytes_read[self._path] += len(content)
        return content

    def read_now(self, position: int, size_bytes: int) -> bytes | None:
        return self.read(position, size_bytes) if self.is_resident(position, size_bytes) else None

    def is_resident(self, position: int, size_bytes: int) -> bool:
        cold = self._disk.cold.get(self._path)
        return cold is None or position + size_bytes <= cold[0] or position >= cold[1]

    def load(self, position: int, size_bytes: int) -> None:
        self.read(position, size_bytes)
        self._disk.cold.pop(self._path, None)

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        self._disk.need_power()
        content = b"".join(parts)
        allowed = self._disk.room_for(self._path, self._inode, position, content)
        content = content[:allowed]
        _apply(self._inode.data, (position, content))
        self._inode.pending.append((position, content))
        self._disk.step("write", self._path)
        return len(content)

    def size(self) -> int:
        return len(self._inode.data)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step("truncate", self._path)
        _apply(self._inode.data, (size_bytes, None))
        self._inode.pending.append((size_bytes, None))

    def reserve(self, size_bytes: int) -> None:
        self._disk.step("reserve", self._path)

    def sync(self) -> None:
        try:
            self._disk.step("sync", self._path)
        except OSError:
            self._inode.fail_to_sync(self._disk.chance)
            raise
        self._inode.sync()

    def map(self, size_bytes: int) -> memoryview:
        self._disk.step("map", self._path)
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
    seed for them. `operations` counts all but reads and mappings, and power goes at number `lose_power_at`.

    What a device cannot read under a mapping is an error of `load`, which comes before: a page that is
    touched all the same is a SIGBUS, of which there is no model.
    """

    def __init__(self) -> None:
        self.root = Names()
        self.held: set[str] = set()
        self.forgotten: list[str] = []
        self.operations = 0
        self.failures = 0
        self.lose_power_at: int | None = None
        self.fail: Callable[[str, str], int | None] = lambda operation, path: None
        self.room_bytes: int | None = None
        self.short_writes: random.Random | None = None
        self.chance = random.Random(0)
        self.cold: dict[str, tuple[int, int]] = {}
        """Of a file, from where to where it is not in the system's memory until somebody loads it."""
        self.bytes_read: Counter[str] = Counter()
        """From each file, by its path; what is looked at in a mapping is read before."""

    @classmethod
    def of(cls, contents: dict[str, bytes]) -> "MemoryDisk":
        """One on which these files are, by their paths, and safe."""
        disk = cls()
        for path, content in contents.items():
            disk.make_directory(path.rpartition("/")[0])
            parent, name = disk._place(path)
            parent.entries[name] = Inode(content)
        for _, node in _walk(disk.root, ""):
            if isinstance(node, Names):
                node.sync()
        disk.operations = 0
        return disk

    @property
    def files(self) -> dict[str, Inode]:
        """Every file that the process sees, by its path; the dictionary is a copy, the inodes are not."""
        return {path: node for path, node in _walk(self.root, "") if isinstance(node, Inode)}

    @property
    def directories(self) -> set[str]:
        return {path for path, node in _walk(self.root, "") if isinstance(node, Names)}

    def step(self, operation: str, path: str) -> None:
        """Count an operation that matters, and let it fail or the power go where a test wants it."""
        if operation not in ("read", "map"):
            self.operations += 1
            self.need_power()
        code = self.fail(operation, path)
        if code is not None:
            self.failures += 1
            raise OSError(code, os.strerror(code), path)

    def need_power(self) -> None:
        """Once the power is gone nothing works any more, whatever the dying program still tries."""
        if self.lose_power_at is not None and self.operations >= self.lose_power_at:
            raise PowerLost

    def room_for(self, path: str, inode: Inode, position: int, content: bytes) -> int:
        """How much of a write is taken: all, what there is room for, or, with short writes, some of it."""
        allowed = len(content)
        if self.room_bytes is not None:
            used = sum(len(one.data) for one in self.files.values())
            overwritten = max(len(inode.data) - position, 0)
            allowed = min(allowed, max(self.room_bytes - used + overwritten, 0))
            if allowed == 0 and content:
                self.failures += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.short_writes is not None and allowed > 1 and self.short_writes.random() < 0.5:
            allowed = self.short_writes.randrange(1, allowed)
        return allowed

    def lose_power(self, seed: int) -> "MemoryDisk":
        """The disk that the next start finds."""
        after = MemoryDisk()
        after.root = self.root.after_power_loss(random.Random(seed))
        after.chance = random.Random(seed + 1)
        after.failures = self.failures
        return after

    # Disk

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        parent, name = self._place(path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                raise _no_such(path)
            self.step("create", path)
            node = Inode()
            parent.change({name: node})
        if isinstance(node, Names):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def list(self, path: str) -> list[str]:
        return list(self._directory(path).entries)

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def make_directory(self, path: str) -> bool:
        self.step("mkdir", path)
        at, is_new = self.root, False
        for name in path.split("/"):
            node = at.entries.get(name)
            if node is None:
                node, is_new = Names(), True
                at.change({name: node})
                if at is self.root:
                    at.sync()
            if isinstance(node, Inode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            at = node
        return is_new

    def forget(self, path: str) -> None:
        assert self._node(path) is not None, path
        self.forgotten.append(path)

    def remove(self, path: str) -> None:
        if self._node(path) is None:
            return
        self.step("remove", path)
        parent, name = self._place(path)
        parent.change({name: None})

    def remove_directory(self, path: str) -> None:
        if self._node(path) is None:
            return
        self.step("rmdir", path)
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        parent, name = self._place(path)
        parent.change({name: None})

    def rename(self, source: str, target: str) -> None:
        self.step("rename", target)
        node = self._node(source)
        if node is None:
            raise _no_such(source)
        parent, old = self._place(source)
        other, new = self._place(target)
        assert parent is other, (
            "between directories a crash may lose one half of a rename: this disk has none"
        )
        taken = parent.entries.get(new)
        if isinstance(taken, Names) and (isinstance(node, Inode) or taken.entries):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        parent.change({old: None, new: node})

    def sync_directory(self, path: str) -> None:
        self.step("syncdir", path)
        self._directory(path).sync()

    def sync_file_system(self, path: str) -> None:
        # When it fails nothing is lost without a word: of what is, the sync of each file tells, too.
        self.step("syncfs", path)
        for _, node in _walk(self.root, ""):
            node.sync()

    def lock(self, path: str) -> MemoryLock:
        if path in self.held:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.held.add(path)
        return MemoryLock(self.held, path)

    # Paths

    def _node(self, path: str) -> Inode | Names | None:
        node: Inode | Names | None = self.root
        for name in path.split("/"):
            if not isinstance(node, Names):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> Names:
        node = self._node(path)
        if node is None:
            raise _no_such(path)
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _file(self, path: str) -> Inode:
        node = self._node(path)
        if not isinstance(node, Inode):
            raise _no_such(path)
        return node

    def _place(self, path: str) -> tuple[Names, str]:
        parent, _, name = path.rpartition("/")
        return (self._directory(parent) if parent else self.root), name


def _walk(names: Names, prefix: str) -> Iterator[tuple[str, Inode | Names]]:
    for name, node in names.entries.items():
        path = prefix + name
        yield path, node
        if isinstance(node, Names):
            yield from _walk(node, path + "/")


def _no_such(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
