"""The disk as an argument: the Protocols `Disk` and `File`, and the real file system.

All modules of storage use files through `Disk` and `File`, so that tests can use a disk that loses power, is
full or writes short. Paths are plain strings with `/`. Every method may raise `OSError` and no other error.

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
"""The flag of Linux for a read that fails instead of waiting."""
SAMPLE_EVERY_BYTES = 65_536
"""The distance of samples of pages: half of the default read-ahead of Linux."""
LOAD_BYTES = 1_048_576
FIRST_LINUX_WITH_ERRORS_OF_SYNCFS = (5, 8)

CAN_FORGET = hasattr(os, "posix_fadvise") and hasattr(os, "sched_yield")
FORGOTTEN_BYTES = 256 * 1024
"""Bytes of a file that `forget` frees with one call. To free 64 MB takes a core for 4 ms; the event loop, if
it shares the core, continues after Linux's time slice of 3 ms."""

BUFFERS_PER_WRITE_MAX = 1024
"""IOV_MAX of Linux and the BSDs: `pwritev` refuses more."""
FALLOC_FL_KEEP_SIZE = 1


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk or the quota of this process is full."""


class SyncFailed(OSError):
    """A sync failed. It is not known which bytes the disk has, and another sync would not write them: the
    kernel marks the pages as clean (`fsync` of Linux).
    """


class File(Protocol):
    """An open file. Positions and sizes in bytes."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file."""
        ...

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        """Read as `read`, but return None if that would wait for the device."""
        ...

    def is_resident(self, position: int, size_bytes: int) -> bool:
        """Whether the system has this range in memory; for a file that is not mapped, by samples."""
        ...

    def load(self, position: int, size_bytes: int) -> None:
        """Load this range into the system's memory, and begin to load the same size after it. Waits for the
        device: for a worker thread.
        """
        ...

    def write(self, position: int, parts: Sequence[Buffer]) -> int:
        """Write the parts one after the other; returns the number of bytes written, which may be less than
        their size.
        """
        ...

    def size(self) -> int: ...

    def truncate(self, size_bytes: int) -> None: ...

    def reserve(self, size_bytes: int) -> None:
        """Reserve space for the first `size_bytes`; the size of the file stays. `truncate` frees it."""
        ...

    def sync(self) -> None:
        """Return when the content, and the size needed to read it, will survive a loss of power."""
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
        """Make a directory and its parents; no error if it exists. Returns whether it is new."""
        ...

    def forget(self, path: str) -> None:
        """Free the memory of a file's content, before the file is removed; no error if that is not possible.
        Later reads come from the disk. Bytes that the disk does not have are written first.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it does not exist."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error if it does not exist."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_file_system(self, path: str) -> None:
        """Return when all data and names written to the file system of `path` will survive a loss of power.
        `OSError` also where the system does not report success.
        """
        ...

    def lock(self, path: str) -> Lock:
        """Lock a file for this process; `BlockingIOError` if another process has the lock."""
        ...


def write_all(file: File, position: int, parts: Sequence[Buffer], size_bytes: int) -> None:
    """Write all of `parts` (`size_bytes` together), continuing after a short write. A write of 0 bytes counts
    as a full disk.
    """
    written = file.write(position, parts)
    if written < size_bytes:
        write_rest(file, position, parts, size_bytes, written)


def write_rest(file: File, position: int, parts: Sequence[Buffer], size_bytes: int, written: int) -> None:
    """Continue after a write that took only `written` bytes."""
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
    """Sync the file at `path`; any `OSError` becomes `SyncFailed`."""
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

    Without `sync` the content survives only a crash of the process; a loss of power may leave any bytes.
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
    """A file descriptor, used with positions: no seek, so that threads may share it."""

    __slots__ = ("_descriptor", "_mapped", "_tells_waits")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._tells_waits = CAN_TELL_WAITS
        self._mapped = memoryview(b"")

    def read(self, position: int, size_bytes: int) -> bytes:
        data = os.pread(self._descriptor, size_bytes, position)
        if 0 < len(data) < size_bytes:
            # One call reads at most 2 GiB, and a signal may cut it: repeat until the end.
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
                # The missing bytes are not in memory or after the end of the file: only `read` can tell.
                return None
        return self.read(position, size_bytes)

    def is_resident(self, position: int, size_bytes: int) -> bool:
        if position + size_bytes <= len(self._mapped):
            known = is_in_memory(self._mapped, position, size_bytes)
            if known is not None:
                return known
        sample = bytearray(1)
        # The last page, too: read-ahead may have stopped, or be under way, before it.
        for place in (*range(position, position + size_bytes, SAMPLE_EVERY_BYTES), position + size_bytes - 1):
            if not self._tells_waits:
                break
            if self._take_now(sample, place) != 1 and self._tells_waits:
                return False
        return True

    def _take_now(self, buffer: bytearray, position: int) -> int:
        """Fill `buffer` as far as possible without waiting; returns the number of bytes."""
        try:
            return os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            # This file system does not support the flag.
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
            # The file is shorter than the bytes written to it: another process has cut it.
            raise OSError(errno.EIO, str(error)) from error

    def close(self) -> None:
        self._mapped = memoryview(b"")
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        # A segment that is removed while another thread reads its file leaves it open.
        self.close()


_nothing = -1
"""The descriptor of the null device, opened at first use."""
_can_throw_away = hasattr(os, "sendfile")


def _wait_for(descriptor: int, position: int, size_bytes: int) -> int:
    """Wait until some bytes of a file are in the system's memory; returns their number, 0 at the end.

    They are sent to the null device, which does not touch the pages: less than a tenth of the processor time
    of a read that copies them.
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
            # Not Linux, or a file system without sendfile.
            _can_throw_away = False
    return len(os.pread(descriptor, size_bytes, position))


@cache
def _read_ahead_bytes(device: int) -> int:
    """The read-ahead of Linux for sequential reads in bytes; 0 if it is not known.

    If it is larger than the wanted range, no request of our own is made: WILLNEED loads single pages, which
    cost ten times as much as the large pages of the read-ahead.
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
    """fallocate(2) with FALLOC_FL_KEEP_SIZE. Python has only posix_fallocate, which makes the file longer:
    the space after the records would look like content.
    """
    import ctypes  # few topics use it

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
        import ctypes  # Python has only os.sync, which reports no error
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
            # flock separates two brokers of one process; a Java broker on the same directory uses lockf.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process") from error
        except OSError:
            os.close(descriptor)
            raise
        return OsLock(descriptor)
