"""The files of a table, in the local file system or in any that Hadoop knows; paths are texts.

`open_files(spark, path)` chooses. All steps that have to survive a kill use three atomic operations: `rename`
of one file, `write_new` of a small one, and, in the local file system only, `exchange` of two directories.
"""

import ctypes
import errno
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from odradek.spark.jobs.errors import JobError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Files(Protocol):
    """The file operations of a job on one table."""

    def exists(self, path: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """The sorted names in a directory; none if it does not exist."""
        ...

    def walk(self, directory: str) -> Iterator[tuple[str, int]]:
        """Every file below a directory: its path, and its size in bytes."""
        ...

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Renames a file atomically; replaces a file of that name."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with its content, if it exists."""
        ...

    def read_text(self, path: str) -> str | None:
        """The text of a file; None if it does not exist."""
        ...

    def write_new(self, path: str, text: str) -> None:
        """Writes a small file atomically; replaces a file of that name."""
        ...

    def lock(self, path: str) -> Any:
        """Locks the table for this process until the result is closed; JobError while another holds it."""
        ...


def open_files(spark: Any, path: str) -> Files:
    """The files of the file system that `path` is in, as Spark resolves it."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return LocalFiles()
    jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()
    system = jvm.org.apache.hadoop.fs.Path(path).getFileSystem(configuration)
    if system.getUri().getScheme() == "file":
        return LocalFiles()
    return HadoopFiles(jvm, system)


def read_note(files: Files, path: str) -> dict[str, Any] | None:
    """The JSON object in a small file of a job; None if the file does not exist, JobError if it is
    damaged."""
    try:
        text = files.read_text(path)
        if text is None:
            return None
        note = json.loads(text)
    except ValueError:
        note = None
    if not isinstance(note, dict):
        raise JobError(f"{path} is damaged: bring it back as the job wrote it, or use another table")
    return note


def local_path(path: str) -> str:
    """The plain path of a `file:` URL or of a plain path."""
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else path


class LocalFiles:
    """The local file system, by Python's own calls."""

    def exists(self, path: str) -> bool:
        return os.path.exists(local_path(path))

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(local_path(directory)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def walk(self, directory: str) -> Iterator[tuple[str, int]]:
        for folder, folders, files in os.walk(local_path(directory)):
            folders.sort()
            for name in sorted(files):
                path = os.path.join(folder, name)
                yield path, os.path.getsize(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(local_path(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(local_path(source), local_path(target))

    def remove(self, path: str) -> None:
        path = local_path(path)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def read_text(self, path: str) -> str | None:
        try:
            with open(local_path(path), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write_new(self, path: str, text: str) -> None:
        path = local_path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # A name that no reader of tables takes for data, whatever directory it is in.
        written = os.path.join(os.path.dirname(path), f"._{os.path.basename(path)}")
        with open(written, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, path)

    def lock(self, path: str) -> Any:
        path = local_path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = open(path, "a")  # noqa: SIM115  # the lock is held while it is open
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise JobError(
                    f"another job is writing the table at {os.path.dirname(os.path.dirname(path))}: wait for "
                    "its end, or stop it first"
                ) from None
            raise
        return file

    def link(self, source: str, target: str) -> None:
        """Makes a hard link."""
        os.link(local_path(source), local_path(target))

    def exchange(self, one: str, other: str) -> None:
        """Exchanges the names of two directories in one step: a reader sees the one or the other, whole.

        OSError if the system or the file system cannot do that (Linux can, in ext4, xfs, btrfs and tmpfs).
        """
        renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if renameat2 is None:
            raise OSError(errno.ENOSYS, "this system has no renameat2")
        paths = [os.fsencode(local_path(path)) for path in (one, other)]
        if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], ctypes.c_uint(_RENAME_EXCHANGE)) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), local_path(one))


class HadoopFiles:
    """HDFS, S3 and others, through the `FileSystem` of Spark's driver."""

    def __init__(self, jvm: Any, system: Any) -> None:
        self._jvm, self._system = jvm, system

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(path)))

    def names(self, directory: str) -> list[str]:
        if not self.exists(directory):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path(directory)))

    def walk(self, directory: str) -> Iterator[tuple[str, int]]:
        if not self.exists(directory):
            return
        files = self._system.listFiles(self._path(directory), True)
        while files.hasNext():
            status = files.next()
            yield str(status.getPath().toString()), int(status.getLen())

    def make_directory(self, path: str) -> None:
        self._system.mkdirs(self._path(path))

    def rename(self, source: str, target: str) -> None:
        if not self._system.rename(self._path(source), self._path(target)):
            # HDFS does not rename over an existing file, such as one of an earlier attempt.
            self._system.delete(self._path(target), False)
            if not self._system.rename(self._path(source), self._path(target)):
                raise JobError(f"{source} cannot be renamed to {target}: does this user own the table?")

    def remove(self, path: str) -> None:
        self._system.delete(self._path(path), True)

    def read_text(self, path: str) -> str | None:
        if not self.exists(path):
            return None
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write_new(self, path: str, text: str) -> None:
        directory, _, name = path.rpartition("/")
        written = f"{directory}/._{name}"
        stream = self._system.create(self._path(written), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.rename(written, path)

    def lock(self, path: str) -> Any:
        """No lock: Hadoop has none that ends with the process. Spark's checkpoint refuses a second writer."""
        return open(os.devnull)
