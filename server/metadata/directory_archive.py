"""A data directory as one tar file, also while a broker uses the directory; and back again.

`odradek backup` and `odradek snapshot` write it; the latter packs it, for a file beside a test.

Without a broker the directory is locked and copied as it is. With one the copy is what a kill would have left
at one moment, and its first start recovers it as after a kill:

1. The files of the metadata log are opened, as below, then the recovery points and log starts are copied:
   what comes later is newer than these say.
2. All files of all partitions are opened, and their sizes are noted. No bytes are copied yet, so this takes
   milliseconds for a hundred partitions. The listing of a partition is compared before and after: compaction
   and retention exchange files by renames, and an open file stays what it was. Coordinators' topics come
   first: no commit is of a record that the copy does not have.
   `cleaner-offset-checkpoint` is read after that: it has to know all gaps that compaction has made in them.
3. The files are copied up to these sizes. Logs only grow, so the bytes up to there stay as they are; half a
   batch at the end is cut by the first start.

Left out is what a start finds again: heads, ends, the flush journal (its bytes are in the files, too), and
the mark of a clean stop. A transaction that is under way at that moment may be complete in one partition and
not in another; its coordinator, which was copied first, ends it.
"""

import io
import lzma
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import BinaryIO

from odradek.storage import checkpoints
from odradek.storage.directories.data_directory import Key
from odradek.storage.directories.store import key_of
from odradek.storage.disk import OsDisk

META = "meta.properties"
METADATA_LOG = "__cluster_metadata-0"
_DATABASES = ("kafka07-positions.sqlite",)
_FIRST = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)
_SMALL = (META, "odradek-scram-secret", "topology-descriptions", *_FIRST)
_TRANSIENT = (".lock", ".odradek-probe")
_COORDINATORS = ("__transaction_state", "__consumer_offsets", "__share_group_state")
_COPIED_BYTES = 1_048_576
_LISTINGS_MAX = 100
"""Looks at a partition whose files are being exchanged."""


Progressed = Callable[[int, int], object]
"""Called with the bytes that are copied, and those that there are."""


class CannotBackUp(Exception):
    """Nothing was written; the text is one sentence for the user."""


class CannotUnpack(Exception):
    """The file is not an archive of a data directory; the text is one sentence for the user."""


@dataclass(slots=True)
class BackedUp:
    """Content of a backup."""

    was_running: bool
    partitions: int
    size_bytes: int
    """Size of the file."""


@dataclass(slots=True)
class _Opened:
    """A file, and how much of it is copied."""

    name: str
    file: BinaryIO
    size_bytes: int
    modified_s: float


def back_up(
    directory: str, path: str, progressed: Progressed | None = None, *, is_packed: bool = False
) -> BackedUp:
    """Writes the tar file at `path`, which must not exist, readable by its owner alone; it is there when it
    is complete. `is_packed`: with gzip. Raises CannotBackUp, and OSError for a failure of the disks."""
    directory = _data_directory(directory)
    if os.path.lexists(path):
        raise CannotBackUp(f"{path} exists: no file is replaced.")
    folder = os.path.dirname(os.path.abspath(path))
    if (os.path.realpath(folder) + os.sep).startswith(os.path.realpath(directory) + os.sep):
        raise CannotBackUp(f"{path} is in {directory}: choose a place outside of it.")
    descriptor, temporary = tempfile.mkstemp(prefix=f"{os.path.basename(path)}.", dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as out:
            done = _write(directory, out, progressed, is_packed=is_packed)
            out.flush()
            os.fsync(out.fileno())
            done.size_bytes = out.tell()
        os.link(temporary, path)
    except FileExistsError:
        raise CannotBackUp(f"{path} exists: no file is replaced.") from None
    finally:
        os.unlink(temporary)
    return done


def unpack(path: str, directory: str) -> None:
    """Puts the files of an archive into `directory`, which has none. Raises CannotUnpack, and OSError for a
    failure of the disks."""
    try:
        with tarfile.open(path, mode="r:*") as tar:
            for entry in tar:
                _unpack_one(tar, entry, directory)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise CannotUnpack(f"{path} is not an archive of a data directory: {error}.") from None
    if not os.path.isfile(f"{directory}/{META}"):
        raise CannotUnpack(f"{path} is not an archive of a data directory: it has no {META}.")


def _unpack_one(tar: tarfile.TarFile, entry: tarfile.TarInfo, directory: str) -> None:
    folder, _, name = entry.name.removeprefix("./").rpartition("/")
    if entry.isdir():
        return
    content = tar.extractfile(entry) if entry.isfile() else None
    if content is None or "/" in folder or {folder, name} & {"..", "."} or not name:
        raise CannotUnpack(f"{tar.name!r} is not an archive of a data directory: it has {entry.name!r}.")
    os.makedirs(f"{directory}/{folder}", exist_ok=True)
    with content, open(f"{directory}/{folder}/{name}", "xb") as out:
        shutil.copyfileobj(content, out, _COPIED_BYTES)


def back_up_to(directory: str, out: BinaryIO) -> BackedUp:
    """The same to a stream, which need not be a file."""
    return _write(_data_directory(directory), out, None)


def _data_directory(path: str) -> str:
    path = os.path.normpath(path)
    if not os.path.isfile(f"{path}/{META}"):
        raise CannotBackUp(f"{path} is not a data directory: it has no {META}.")
    return path


def _write(
    directory: str, out: BinaryIO, progressed: Progressed | None, *, is_packed: bool = False
) -> BackedUp:
    _allow_many_files()
    with ExitStack() as closing_all, _new_tar(out, is_packed=is_packed) as tar:
        try:
            closing_all.callback(OsDisk().lock(f"{directory}/{checkpoints.LOCK}").release)
        except BlockingIOError:
            names, was_running = _open_running(directory, closing_all), True
        else:
            names, was_running = _open_stopped(directory, closing_all), False
        partitions, copied, total = set(), 0, sum(one.size_bytes for one in names)
        for one in names:
            entry = tarfile.TarInfo(one.name)
            entry.size, entry.mtime, entry.mode = one.size_bytes, int(one.modified_s), 0o600
            tar.addfile(entry, one.file)
            one.file.close()
            if "/" in one.name and not one.name.startswith(METADATA_LOG):
                partitions.add(one.name.partition("/")[0])
            copied += one.size_bytes
            if progressed is not None:
                progressed(copied, total)
    return BackedUp(was_running, len(partitions), 0)


def _new_tar(out: BinaryIO, *, is_packed: bool) -> tarfile.TarFile:
    if is_packed:
        return tarfile.open(fileobj=out, mode="w|gz")
    return tarfile.open(fileobj=out, mode="w|")


# Without a broker -------------------------------------------------------------------------------------


def _open_stopped(directory: str, closing_all: ExitStack) -> list[_Opened]:
    """All files as they are."""
    found = []
    for name in sorted(os.listdir(directory)):
        path = f"{directory}/{name}"
        if os.path.isdir(path):
            found += [_open(directory, f"{name}/{one}", closing_all) for one in sorted(os.listdir(path))]
        elif name not in _TRANSIENT and not name.endswith("-shm"):
            found.append(_open(directory, name, closing_all))
    return found


# With a broker ----------------------------------------------------------------------------------------


def _open_running(directory: str, closing_all: ExitStack) -> list[_Opened]:
    found = _open_partition(directory, METADATA_LOG, closing_all) if _has(directory, METADATA_LOG) else []
    found += [_copy_of_database(directory, name, closing_all) for name in _DATABASES if _has(directory, name)]
    found += [_in_memory(directory, name) for name in _SMALL if _has(directory, name)]
    for name in _partitions(directory):
        found += _open_partition(directory, name, closing_all)
    if _has(directory, checkpoints.FIRST_DIRTY):
        found.append(_in_memory(directory, checkpoints.FIRST_DIRTY))
    return found


def _has(directory: str, name: str) -> bool:
    return os.path.exists(f"{directory}/{name}")


def _partitions(directory: str) -> Iterator[str]:
    """Names of directories, those of coordinators first."""
    named: dict[str, Key] = {}
    for name in os.listdir(directory):
        key = key_of(name)
        if key is not None and name != METADATA_LOG and os.path.isdir(f"{directory}/{name}"):
            named[name] = key
    yield from sorted(named, key=lambda name: (_rank(named[name][0]), named[name]))


def _rank(topic: str) -> int:
    return _COORDINATORS.index(topic) if topic in _COORDINATORS else len(_COORDINATORS)


def _open_partition(directory: str, name: str, closing_all: ExitStack) -> list[_Opened]:
    """All files of the partition at one moment; none if it has been deleted meanwhile."""
    for _ in range(_LISTINGS_MAX):
        with ExitStack() as attempt:
            try:
                before = _listing(f"{directory}/{name}")
                found = [_open(directory, f"{name}/{one}", attempt) for one in sorted(before)]
                if _listing(f"{directory}/{name}") == before:
                    closing_all.push(attempt.pop_all())
                    return found
            except FileNotFoundError:
                if not _has(directory, name):
                    return []
        time.sleep(0.01)
    raise CannotBackUp(f"the files of {directory}/{name} are exchanged all the time: try again.")


def _listing(path: str) -> dict[str, int]:
    """The inodes by the names of the files that count."""
    with os.scandir(path) as entries:
        return {one.name: one.inode() for one in entries if one.is_file() and not _is_on_the_way(one.name)}


def _is_on_the_way(name: str) -> bool:
    return name.endswith((".tmp", ".part", ".deleted", ".cleaned"))


def _in_memory(directory: str, name: str) -> _Opened:
    with open(f"{directory}/{name}", "rb") as file:
        content = file.read()
    return _Opened(name, io.BytesIO(content), len(content), time.time())


def _copy_of_database(directory: str, name: str, closing_all: ExitStack) -> _Opened:
    folder = closing_all.enter_context(tempfile.TemporaryDirectory(prefix="odradek-backup-"))
    try:
        copy_database(f"{directory}/{name}", f"{folder}/{name}")
    except sqlite3.Error as error:
        raise CannotBackUp(f"{directory}/{name} cannot be read: {error}.") from None
    return _open(folder, name, closing_all)


def is_database(name: str) -> bool:
    """Whether a file of the data directory is one of SQLite, which `copy_database` copies."""
    return name in _DATABASES


def copy_database(path: str, target: str) -> None:
    """SQLite's own copy of one moment, with what is only in the write-ahead log. Raises sqlite3.Error."""
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def _open(directory: str, name: str, closing_all: ExitStack) -> _Opened:
    file = open(f"{directory}/{name}", "rb")  # noqa: SIM115
    closing_all.callback(file.close)
    stat = os.fstat(file.fileno())
    return _Opened(name, file, stat.st_size, stat.st_mtime)


def _allow_many_files() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass  # macOS; a directory with fewer files needs no more
