"""Copies of a data directory beside it, which share the closed files with it by hard links.

A copy is a data directory, too: a broker may be started in it, if nothing else is to be. `begin` makes one of
a broker that serves, in two steps: what must belong to one moment is linked on the event loop, whose pause
grows with the number of files and not with their size; whatever grows is then copied in a thread
(`Begun.finish`). `lay_out` makes a directory for a broker out of such a copy, or of a data directory that
nobody serves.

On another file system, or on one without hard links, everything is copied. Nothing is synced.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.server.metadata.directory_archive import META, copy_database, is_database
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.storage.checkpoints import CLEAN_SHUTDOWN, LOCK
from odradek.storage.directories.data_directory import PROBE
from odradek.storage.directories.places import DELETE_SUFFIX, is_aside, key_of
from odradek.storage.directories.still import OF_THE_STORE
from odradek.storage.disk import OsDisk
from odradek.storage.log.segment_paths import LOG
from odradek.storage.log.still import closed_names

if TYPE_CHECKING:
    from odradek.storage.directories.store import LogStore

_COPIED_BYTES = 1_048_576
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_PASSED_OVER = (LOCK, PROBE)
_TRANSIENT = (".tmp", "-shm", "-wal")
_JOURNAL = "flush-journal."
"""Files of the flush journal: their bytes are in the logs, too."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Begun:
    """A copy whose links are made. `finish` may run in any thread, while the broker goes on."""

    def __init__(self, directory: str, folder: str) -> None:
        self._directory, self._folder = directory, folder
        self._copied: dict[str, int | None] = {}
        self._made: dict[str, bytes] = {}

    def link(self, name: str) -> None:
        _link_or_copy(f"{self._directory}/{name}", f"{self._folder}/{name}")

    def hold(self, name: str, size_bytes: int | None) -> None:
        """A link for now, so that nobody removes the file; `finish` copies it, up to a size."""
        self.link(name)
        self._copied[name] = size_bytes

    def make(self, made: dict[str, bytes]) -> None:
        """`finish` writes these files."""
        self._made.update(made)

    def finish(self) -> None:
        """Raises OSError."""
        for name in self._copied.keys() - self._made.keys():
            path = f"{self._folder}/{name}"
            _copy(path, f"{path}.part", self._copied[name])
            os.replace(f"{path}.part", path)
        for name, content in self._made.items():
            path = f"{self._folder}/{name}"
            with open(f"{path}.part", "wb") as file:
                file.write(content)
            os.replace(f"{path}.part", path)


def begin(store: LogStore, folder: str) -> Begun:
    """Begins a copy of the one data directory of a store in an empty folder. On the event loop, when nothing
    is staged and no work of the store is under way. Raises OSError and KafkaError, as `LogStore.still`."""
    (home,) = store.places.homes.values()
    still = store.still(home)
    begun = Begun(home.path, folder)
    for name in (*still.folders, METADATA_LOG):
        os.mkdir(f"{folder}/{name}")
    for name in still.closed:
        with _may_be_missing(name):
            begun.link(name)
    for name, size_bytes in still.copied.items():
        with _may_be_missing(name):
            begun.hold(name, size_bytes)
    begun.make(still.made)
    # A start may mend wrong bits in place, in all of them.
    for name in os.listdir(f"{home.path}/{METADATA_LOG}"):
        path = f"{METADATA_LOG}/{name}"
        begun.hold(path, os.path.getsize(f"{home.path}/{path}"))
    for name in _of_the_directory(home.path):
        if is_database(name):
            copy_database(f"{home.path}/{name}", f"{folder}/{name}")
        elif name not in OF_THE_STORE and not name.startswith(_JOURNAL):
            begun.hold(name, None)
    return begun


def _of_the_directory(directory: str) -> Iterator[str]:
    """Names of the files in the data directory itself that a copy has."""
    with os.scandir(directory) as entries:
        for one in entries:
            if (
                one.is_file()
                and one.name not in _PASSED_OVER
                and not one.name.endswith((".tmp", "-shm", "-wal"))
            ):
                yield one.name


@contextmanager
def _may_be_missing(name: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        if name.endswith(LOG):
            raise


def lay_out(source: str, target: str) -> None:
    """Makes a data directory of a copy, or of a locked data directory, in an empty folder. What the broker
    there will change in place is copied; after a kill of the broker in `source`, that is all of it. Raises
    OSError."""
    is_clean = os.path.exists(f"{source}/{CLEAN_SHUTDOWN}")
    for name in os.listdir(source):
        if os.path.isdir(f"{source}/{name}"):
            if not is_aside(name, DELETE_SUFFIX):
                _lay_out_folder(f"{source}/{name}", f"{target}/{name}", has_closed=is_clean)
        elif name not in _PASSED_OVER:
            _copy(f"{source}/{name}", f"{target}/{name}")


def lay_out_stopped(source: str, target: str) -> None:
    """The same of a data directory, which is locked meanwhile. BlockingIOError: a broker serves it."""
    if not os.path.isfile(f"{source}/{META}"):
        raise FileNotFoundError(errno.ENOENT, f"it is not a data directory, since it has no {META}", source)
    lock = OsDisk().lock(f"{source}/{LOCK}")
    try:
        lay_out(source, target)
    finally:
        lock.release()


def _lay_out_folder(source: str, target: str, *, has_closed: bool) -> None:
    os.mkdir(target)
    names = os.listdir(source)
    name = os.path.basename(source)
    closed = set[str]()
    if has_closed and key_of(name) and name != METADATA_LOG:
        closed = closed_names(names, lambda name: os.path.getsize(f"{source}/{name}"))
    for name in names:
        if name in closed:
            _link_or_copy(f"{source}/{name}", f"{target}/{name}")
        else:
            _copy(f"{source}/{name}", f"{target}/{name}")


def folder_beside(directory: str, kind: str) -> str:
    """A new folder beside a data directory: on its file system, most probably."""
    parent, prefix = _beside(directory, kind)
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def folders_beside(directory: str, kind: str) -> list[str]:
    """All that `folder_beside` has made for it and that are still there."""
    parent, prefix = _beside(directory, kind)
    return [f"{parent}/{name}" for name in os.listdir(parent) if name.startswith(prefix)]


def _beside(directory: str, kind: str) -> tuple[str, str]:
    parent, name = os.path.split(os.path.realpath(directory))
    return parent, f".{name.lstrip('.')}.{kind}-"


def exchange(one: str, other: str) -> None:
    """Two directories change their names, in one step where the system has that: a kill leaves one of them at
    each name. Raises OSError."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        if not rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
            return
        code = ctypes.get_errno()
        if code in (errno.EBUSY, errno.EXDEV):
            raise OSError(code, "it is a mount point: use a directory in it as data directory", one)
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code), one)
    os.rename(one, f"{other}.former")
    os.rename(other, one)
    os.rename(f"{other}.former", other)


def remove(folder: str) -> None:
    """With all files; what cannot be removed stays."""
    shutil.rmtree(folder, ignore_errors=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(source, target)


def _copy(source: str, target: str, size_bytes: int | None = None) -> None:
    """The first bytes of a file as a new one, with its time of change; None: all."""
    with open(source, "rb", buffering=0) as file:
        stat = os.fstat(file.fileno())
        descriptor = os.open(
            target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.st_mode & 0o777
        )
        left = stat.st_size if size_bytes is None else size_bytes
        with open(descriptor, "wb", buffering=0) as copy:
            while left > 0 and (piece := file.read(min(left, _COPIED_BYTES))):
                left -= copy.write(piece)
            # Retention goes by it, where records have no timestamps.
            os.utime(descriptor, ns=(stat.st_atime_ns, stat.st_mtime_ns))
