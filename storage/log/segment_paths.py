"""The names of a segment's files, and the operations by name (rename, remove, sync).

The names are Kafka's. Files with a further suffix are not in use by the log: `.cleaned` (written by
compaction), `.swap` (about to replace others), `.deleted` (wait for their removal).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.storage.disk import Disk, File, sync_file

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
INDEX_KINDS = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
ALL_KINDS = (LOG, *INDEX_KINDS, SNAPSHOT)
SYNC_FAILED = "sync-failed"
"""A file in a partition's directory after a failed sync: the kernel marks pages as clean that may not be on
the disk."""


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str, suffix: str) -> int | None:
    """The offset in a segment file's name; None for other names."""
    digits = name.removesuffix(suffix)
    return int(digits) if len(digits) == 20 and digits != name and digits.isdecimal() else None


class SegmentPaths:
    """See the module. Each method may raise `OSError`."""

    __slots__ = ("_next_log_path", "base_offset", "deleted", "directory", "disk", "suffix")

    def __init__(self, disk: Disk, directory: str, base_offset: int, suffix: str = "") -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.deleted = False
        """Whether the log has deleted the segment. A flush in its thread may not find the files any more."""
        # The path of the log file after a rename that is under way.
        self._next_log_path = ""

    def path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{kind}{self.suffix}"

    def exists(self, kind: str) -> bool:
        return self.disk.exists(self.path(kind))

    def modified_ms(self) -> int:
        """The time of the last write to the log file."""
        return self.disk.modified_ms(self.path(LOG))

    def open_log(self) -> File:
        """Open the log file. For any thread: tries the next name, too, since a rename may be under way."""
        try:
            return self.disk.open(self.path(LOG))
        except FileNotFoundError:
            return self.disk.open(self._next_log_path or self.path(LOG))

    def change_suffix(self, suffix: str) -> None:
        """Rename the files, the log last: a start uses its name to find the segment. The caller syncs the
        directory. `FileNotFoundError` if there is no log: only the other files may be missing.
        """
        with self._renaming_log(suffix):
            for kind in (*INDEX_KINDS, LOG):
                source = self.path(kind)
                if kind == LOG or self.disk.exists(source):
                    self.disk.rename(source, f"{self.directory}/{file_name(self.base_offset, kind)}{suffix}")

    @contextmanager
    def _renaming_log(self, suffix: str) -> Iterator[None]:
        """Sets the new suffix after the log file was renamed in the `with` block."""
        self._next_log_path = f"{self.directory}/{file_name(self.base_offset, LOG)}{suffix}"
        try:
            yield
            self.suffix = suffix
        finally:
            self._next_log_path = ""

    def mark_deleted(self) -> None:
        """Rename the files to `.deleted`. They can still be read until `remove`.

        `OSError`: nothing has changed. Only errors of the log file are raised: another file that keeps its
        name has no log any more, and the next start removes it.
        """
        disk = self.disk
        paths = [self.path(kind) for kind in ALL_KINDS]
        suffix, number = DELETED, 0
        # An earlier segment of this offset, replaced by compaction, may still have readers and wait for its
        # removal.
        while disk.exists(paths[0] + suffix):
            number += 1
            suffix = f".{number}{DELETED}"
        # Set first, for a flush in its thread that does not find the file.
        self.deleted = True
        with self._renaming_log(self.suffix + suffix):
            try:
                disk.rename(paths[0], paths[0] + suffix)
            except FileNotFoundError:
                pass
            except OSError:
                self.deleted = False
                raise
        for path in paths[1:]:
            try:
                disk.rename(path, path + suffix)
            except OSError:
                # Most segments have no transaction index. A check for it first would double the system calls.
                pass

    def remove(self) -> None:
        for kind in ALL_KINDS:
            self.disk.remove(self.path(kind))

    def sync(self, kind: str) -> None:
        """Make a file survive a loss of power. May run in a worker thread."""
        path = self.path(kind)
        file = self.disk.open(path)
        try:
            sync_file(file, path)
        finally:
            file.close()

    def sync_index_files(self) -> None:
        """Sync the saved index files. May run in a worker thread."""
        for kind in INDEX_KINDS:
            # A missing file has no entries, or is made when it is needed.
            if self.exists(kind):
                self.sync(kind)

    def sync_snapshot(self) -> None:
        """Sync the snapshot of the producers before this segment. May run in a worker thread."""
        if self.exists(SNAPSHOT):
            self.sync(SNAPSHOT)


def note_failed_sync(disk: Disk, directory: str) -> None:
    """Make the file `SYNC_FAILED` for the next start: the disk may not have all bytes that can be read of a
    partition.
    """
    try:
        disk.open(f"{directory}/{SYNC_FAILED}", create=True).close()
    except OSError:
        # On a disk where no file can be made, no flush succeeds either.
        pass
