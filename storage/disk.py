"""The disk as an argument: two Protocols, and the one that is a real file system.

Everything in storage reaches files through `Disk` and `File`, so that tests can hand in a disk that loses
power, runs full or writes short. Paths are plain strings with `/`. Every method may raise `OSError`; nothing
else.

A mapping is read-only and is never longer than what was written: a full disk under a writable sparse
mapping, or a mapped file that shrinks, is a SIGBUS, which Python cannot catch.
"""

import errno
import fcntl
import mmap
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from odradek.storage._reading import is_in_memory

Buffer = bytes | bytearray | memoryview

CAN_TELL_WAITS = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")
"""Linux has a read that fails where it would have to wait."""
SAMPLE_EVERY_BYTES = 65_536
"""Half of what Linux reads ahead by default, for where only samples tell what is in memory."""
LOAD_BYTES = 1_048_576
FIRST_LINUX_WITH_ERRORS_OF_SYNCFS = (5, 8)

CAN_FORGET = hasattr(os, "posix_fadvise") and hasattr(os, "sched_yield")
FORGOTTEN_BYTES = 256 * 1024
"""Of a file that is forgotten so much leaves memory at once. The pages of 64 MB take a core for 4 ms, and who
shares it, as the event loop may, gets it back when Linux's slice of 3 ms is over."""

BUFFERS_PER_WRITE_MAX = 1024
"""IOV_MAX of Linux and the BSDs: `pwritev` refuses more."""
FALLOC_FL_KEEP_SIZE = 1


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk is full, or as much of it as this process may have."""


class SyncFailed(OSError):
    """The disk did not take what had been written. Nobody knows what it has of it, and it will not be tried
    again: the kernel takes the pages for clean (`fsync` of Linux).
    """


class File(Protocol):
    """An open file. Positions and sizes in bytes."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file."""
        ...

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        """As `read`, but None where that would have to wait for the device."""
        ...

    def is_resident(self, position: int, size_bytes: int) -> bool:
        """Whether the system has this stretch in memory. Of what is not mapped only samples tell."""
        ...

    def load(self, position: int, size_bytes: int) -> None:
        """Have the system take this stretch into memory, and begin with as much behind it. Waits for the
        device: for a worker thread.
        """
        ...

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        """Write the parts one after the other; returns how many bytes were taken, which may be fewer than
        given.
        """
        ...

    def size(self) -> int: ...

    def truncate(self, size_bytes: int) -> None: ...

    def reserve(self, size_bytes: int) -> None:
        """Set room aside for the first `size_bytes`; the size stays. `truncate` gives it back."""
        ...

    def sync(self) -> None:
        """Return when the content, and the size that is needed to read it, will survive a loss of power."""
        ...

    def map(self, size_bytes: int) -> memoryview:
        """A read-only view of the first `size_bytes`, which must have been written; it outlives `close`."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Renames replace; they and creations survive a loss of power after `sync_directory`."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, in no order."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def make_directory(self, path: str) -> bool:
        """Make it and its parents; no error when it is there. Whether it was not."""
        ...

    def forget(self, path: str) -> None:
        """Free the memory that has a file's content, before it is removed; no error when that cannot be.

        Who still reads it finds it on the disk. What the disk does not have is written first.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is gone already."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error when it is gone already."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_file_system(self, path: str) -> None:
        """Return when all that was written to the file system of `path`, names too, will survive a loss of
        power. `OSError` also where that cannot be told.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Take a file for this process alone; `BlockingIOError` when another has it."""
        ...


def write_all(file: File, position: int, parts: Sequence[Buffer], size_bytes: int) -> None:
    """Write all of `parts` (`size_bytes` together), going on after a short write. A write of nothing is a
    full disk.
    """
    written = file.write(position, parts)
    if written < size_bytes:
        write_rest(file, position, parts, size_bytes, written)


def write_rest(file: File, position: int, parts: Sequence[Buffer], size_bytes: int, written: int) -> None:
    """Go on where a write has taken `written` bytes only."""
    while written < size_bytes:
        rest = parts_after(parts, written)
        more = file.write(position + written, rest)
        if more <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more


def parts_after(parts: Sequence[Buffer], skip_bytes: int) -> list[Buffer]:
    """The parts without their first `skip_bytes`."""
    rest: list[Buffer] = []
    for part in parts:
        if skip_bytes >= len(part):
            skip_bytes -= len(part)
        elif skip_bytes:
            rest.append(memoryview(part)[skip_bytes:])
            skip_bytes = 0
        else:
            rest.append(part)
    return rest


def sync_file(file: File, path: str) -> None:
    """Sync a file that is at `path`; `SyncFailed` instead of whatever `OSError` that raises."""
    try:
        file.sync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a small file."""
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def replace_file(disk: Disk, path: str, content: bytes, *, sync: bool = True) -> None:
    """Put `content` at `path` so that a crash leaves the old content or the new, whole (as Kafka's
    checkpoints do).

    Without `sync` only a crash of the process is survived; a loss of power may leave anything.
    """
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        if file.size():
            file.truncate(0)
        write_all(file, 0, [content], len(content))
        if sync:
            file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    if sync:
        disk.sync_directory(path.rpartition("/")[0])


class OsFile:
    """A file descriptor with positions: no seek, so that threads may share it."""

    __slots__ = ("_descriptor", "_mapped", "_tells_waits")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._tells_waits = CAN_TELL_WAITS
        self._mapped = memoryview(b"")

    def read(self, position: int, size_bytes: int) -> bytes:
        data = os.pread(self._descriptor, size_bytes, position)
        if 0 < len(data) < size_bytes:
            # One call moves at most 2 GiB, and signals may cut it: ask until there is nothing more.
            pieces = [data]
            got = len(data)
            while got < size_bytes and (more := os.pread(self._descriptor, size_bytes - got, position + got)):
                pieces.append(more)
                got += len(more)
            return b"".join(pieces)
        return data

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        if self._tells_waits:
            buffer = bytearray(size_bytes)
            taken = self._take_now(buffer, position)
            if taken == size_bytes:
                return buffer
            if self._tells_waits:
                # What is missing is not in memory, or it is behind the end of the file: `read` knows.
                return None
        return self.read(position, size_bytes)

    def is_resident(self, position: int, size_bytes: int) -> bool:
        if position + size_bytes <= len(self._mapped):
            answer = is_in_memory(self._mapped, position, size_bytes)
            if answer is not None:
                return answer
        sample = bytearray(1)
        # The last one, too: what is read ahead may end, or still be on its way, anywhere before it.
        for place in (*range(position, position + size_bytes, SAMPLE_EVERY_BYTES), position + size_bytes - 1):
            if not self._tells_waits:
                break
            if self._take_now(sample, place) != 1 and self._tells_waits:
                return False
        return True

    def _take_now(self, buffer: bytearray, position: int) -> int:
        """Fills `buffer` as far as that needs no waiting; returns how many bytes that are."""
        try:
            return os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            # This file system has no answer to the question.
            self._tells_waits = False
            return 0

    def load(self, position: int, size_bytes: int) -> None:
        end = position + size_bytes
        if _read_ahead_bytes(os.fstat(self._descriptor).st_dev) < size_bytes and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, position, 2 * size_bytes, os.POSIX_FADV_WILLNEED)
        while position < end:
            taken = _wait_for(self._descriptor, position, min(LOAD_BYTES, end - position))
            if taken == 0:
                return
            position += taken

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        if len(parts) == 1:
            return os.pwrite(self._descriptor, parts[0], position)
        if len(parts) <= BUFFERS_PER_WRITE_MAX:
            return os.pwritev(self._descriptor, parts, position)
        written = 0
        for start in range(0, len(parts), BUFFERS_PER_WRITE_MAX):
            chunk = parts[start : start + BUFFERS_PER_WRITE_MAX]
            taken = os.pwritev(self._descriptor, chunk, position + written)
            written += taken
            if taken < sum(map(len, chunk)):
                break
        return written

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def reserve(self, size_bytes: int) -> None:
        _reserve(self._descriptor, size_bytes)

    def sync(self) -> None:
        _sync_data(self._descriptor)

    def map(self, size_bytes: int) -> memoryview:
        if size_bytes == 0:
            return memoryview(b"")
        try:
            self._mapped = memoryview(mmap.mmap(self._descriptor, size_bytes, prot=mmap.PROT_READ))
            return self._mapped
        except ValueError as error:
            # The file is shorter than what was written to it: somebody has cut it.
            raise OSError(errno.EIO, str(error)) from error

    def close(self) -> None:
        self._mapped = memoryview(b"")
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        # A segment that goes while another thread reads its file leaves it open.
        self.close()


_nothing = -1
"""The null device, to be written to, once it is needed."""
_can_throw_away = hasattr(os, "sendfile")


def _wait_for(descriptor: int, position: int, size_bytes: int) -> int:
    """Return when some bytes of a file are in the system's memory; how many, 0 at its end.

    They are sent to the null device, which takes the pages and looks at none: less than a tenth of the
    processor time of a read that copies them.
    """
    global _nothing, _can_throw_away
    if _can_throw_away:
        try:
            if _nothing < 0:
                _nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            return os.sendfile(_nothing, descriptor, position, size_bytes)
        except OSError as error:
            if error.errno == errno.EIO:
                raise
            # Not Linux, or a file system whose pages cannot be handed on.
            _can_throw_away = False
    return len(os.pread(descriptor, size_bytes, position))


@cache
def _read_ahead_bytes(device: int) -> int:
    """How much Linux reads ahead of who reads in order; 0 where that cannot be told.

    Where it is more than what is wanted, that is left to it: pages that come in at a request of their own
    (WILLNEED) are single ones, and cost ten times as much as the large ones of its own reading.
    """
    try:
        with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb") as file:
            return int(file.read()) * 1024
    except (OSError, ValueError):
        return 0


def _sync_data(descriptor: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        # macOS: fsync stops at the drive's cache there, F_FULLFSYNC does not.
        fcntl.fcntl(descriptor, getattr(fcntl, "F_FULLFSYNC"))  # noqa: B009


def _reserve(descriptor: int, size_bytes: int) -> None:
    """fallocate(2) with FALLOC_FL_KEEP_SIZE. Python has posix_fallocate only, which makes the file longer:
    what follows the records would then have to be told from them.
    """
    import ctypes  # few topics ask for it

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, size_bytes) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class OsLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class OsDisk:
    """The machine's file system."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> bool:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
            return False
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)
        return True

    def forget(self, path: str) -> None:
        if not CAN_FORGET:
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for position in range(0, os.fstat(descriptor).st_size, FORGOTTEN_BYTES):
                os.posix_fadvise(descriptor, position, FORGOTTEN_BYTES, os.POSIX_FADV_DONTNEED)
                os.sched_yield()
        except OSError:
            pass
        finally:
            os.close(descriptor)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_directory(self, path: str) -> None:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_file_system(self, path: str) -> None:
        import ctypes  # Python has os.sync only, which tells no error
        import platform

        version = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
        if platform.system() != "Linux" or version < FIRST_LINUX_WITH_ERRORS_OF_SYNCFS:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> OsLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock tells two brokers of one process apart; lockf is what a Java broker on the
            # same directory sees.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process") from error
        except OSError:
            os.close(descriptor)
            raise
        return OsLock(descriptor)
