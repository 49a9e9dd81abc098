"""One call that makes all files of a file system survive a loss of power: `syncfs` of Linux.

Fifty `fdatasync`s are fifty commits of the journal, `syncfs` is one. It is only used where it promises as
much as they do:
- ext4 and xfs. Both write back all dirty pages, commit the journal and flush the drive's cache before they
  return; on others (FUSE, for one) the call may do nothing.
- Linux 5.17 and later. Since 5.8 a failed write is reported by the next `syncfs` of every descriptor that was
  open then (`errseq` of the superblock), since 5.17 so is a failed commit of the journal.

An error does not say which file it is about, and is told once. So whoever gets one has to go on with
`File.sync`, for good: that tells for each file what is not on the disk.
"""

import errno
import os
import re
from typing import Any

_KINDS = frozenset({"ext4", "xfs"})
_KERNEL_MIN = (5, 17)
MOUNTS = "/proc/self/mountinfo"


class FileSystem:
    """Holds a descriptor from the first write on: errors are reported to those who had one by then.

    One thread at a time may call `sync`: with two, only one of them would hear of an error.
    """

    __slots__ = ("_descriptor", "_syncfs", "device")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.device = os.fstat(descriptor).st_dev
        self._syncfs: Any = None

    def holds(self, path: str) -> bool:
        """Whether a directory is on this file system; `OSError` when it is not there."""
        return os.stat(path).st_dev == self.device

    def sync(self) -> None:
        """Return when all that was written to any file will survive a loss of power. Raises `OSError`."""
        import ctypes  # not before somebody flushes: most brokers never do

        if self._syncfs is None:
            try:
                self._syncfs = ctypes.CDLL(None, use_errno=True).syncfs
            except AttributeError:
                raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        if self._syncfs(self._descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def open_file_system(directory: str) -> FileSystem | None:
    """The file system that a directory is on; None where syncing all of it promises less than a file's."""
    if not _kernel_reports_errors() or _kind_of(os.stat(directory).st_dev) not in _KINDS:
        return None
    return FileSystem(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _kernel_reports_errors() -> bool:
    system = os.uname()
    found = re.match(r"(\d+)\.(\d+)", system.release)
    return system.sysname == "Linux" and found is not None and (int(found[1]), int(found[2])) >= _KERNEL_MIN


def _kind_of(device: int) -> str | None:
    """What the kernel calls the file system of a device; None when it does not say."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split(" ", 3)[2] == wanted:
                    return after.split(" ", 1)[0]
    except (OSError, IndexError):
        pass
    return None
