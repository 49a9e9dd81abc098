"""The directory arguments of a tool: data directories and partition directories."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek.config.os_reason import reason_of
from odradek.offline.check_partition import lost_logs
from odradek.offline.kinds import NEITHER, is_of_a_broker
from odradek.server.metadata import meta_properties
from odradek.storage import checkpoints
from odradek.storage.directories.data_directory import Key
from odradek.storage.directories.store import key_of
from odradek.storage.disk import Disk, Lock, OsDisk, OsFile
from odradek.storage.log.segment_paths import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from odradek.storage.recovery.recovery import finish_interrupted

IMPORT_SUFFIX = "-import"
OFFSET_FILES = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.FIRST_DIRTY,
)
_SEGMENT_KINDS = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
_PARTITION_FILES = (checkpoints.PARTITION_METADATA, checkpoints.LEADER_EPOCHS)


class CannotCheck(Exception):
    """The check cannot run; the text is one sentence for the user."""


class ReadingDisk(OsDisk):
    """Opens files for reading only: the directory may belong to another user, the disk may be read-only."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        assert not create
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def finish_work(disk: Disk, path: str) -> list[str]:
    """Finish or undo interrupted operations in a partition's directory; returns the names of their files.
    Indexes without a log file, which a start would remove, are left for the check.
    """
    all_names = disk.list(path)
    lost = {file_name(base, "") for base in lost_logs(all_names)}
    names = [name for name in all_names if name.partition(".")[0] not in lost]
    left = [name for name in names if name.endswith((DELETED, CLEANED, SWAP, ".tmp"))]
    if left:
        finish_interrupted(disk, path, names)
    return left


@dataclass(slots=True)
class Directory:
    """A data directory; `only` are the partition directories in it that were arguments."""

    path: str
    only: set[str] | None = None
    is_data_directory: bool = True
    was_clean: bool = False
    offsets: dict[str, dict[Key, int]] = field(default_factory=dict)
    """Offsets by the name of the checkpoint."""
    unreadable: set[str] = field(default_factory=set)
    waiting: dict[str, int] = field(default_factory=dict)
    """Bytes in the flush journal by the name of the partition's directory."""


def directories_of(disk: Disk, paths: Sequence[str]) -> list[Directory]:
    # By the real path: a second name of the same directory would wait for the lock of the first.
    found: dict[str, Directory] = {}
    for path in paths:
        path = os.path.normpath(path)
        if not os.path.isdir(path):
            raise CannotCheck(f"{path} is not a directory: name a data directory or a partition's directory.")
        parent, name, has_data = surroundings(disk, path)
        if _is_partition(disk, path) or (has_data and key_of(name) is not None):
            directory = found.setdefault(os.path.realpath(parent), Directory(parent, set(), has_data))
            if directory.only is not None:
                directory.only.add(name)
        elif not is_of_a_broker(path, disk.list(path)):
            raise CannotCheck(f"{path} {NEITHER}.")
        else:
            directory = found.setdefault(os.path.realpath(path), Directory(path))
            directory.only, directory.is_data_directory = None, True
    for directory in found.values():
        directory.was_clean = disk.exists(f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN}")
    return list(found.values())


def surroundings(disk: Disk, path: str) -> tuple[str, str, bool]:
    """The data directory of a partition's directory, its name in it, and whether it is a data directory.

    For an operator's link to a partition, lock and checkpoints are in the parent of its target; for a link in
    a data directory they are in the parent of the link.
    """
    path = os.path.normpath(path)
    parent, name = _parted(path)
    if _has_data(disk, parent) or not os.path.islink(path):
        return parent, name, _has_data(disk, parent)
    parent, name = _parted(os.path.realpath(path))
    return parent, name, _has_data(disk, parent)


def _parted(path: str) -> tuple[str, str]:
    """The parent of a directory, and the name in it."""
    name = os.path.basename(os.path.abspath(path))
    return os.path.normpath(os.path.join(path, os.pardir)) if name != path else os.curdir, name


def _has_data(disk: Disk, path: str) -> bool:
    return any(disk.exists(f"{path}/{name}") for name in (meta_properties.FILE_NAME, *OFFSET_FILES))


def _is_partition(disk: Disk, path: str) -> bool:
    return any(
        name in _PARTITION_FILES or any(base_offset_of(name, kind) is not None for kind in _SEGMENT_KINDS)
        for name in disk.list(path)
    )


def lock_directory(path: str, *, repair: bool) -> Lock | None:
    """Lock a directory against brokers; None if no broker can have used it."""
    lock_path = f"{path}/{checkpoints.LOCK}"
    if not os.path.exists(lock_path):
        return None
    try:
        return OsDisk().lock(lock_path)
    except BlockingIOError:
        raise CannotCheck(
            f"The data directory {path} is in use by a broker: stop the broker first."
        ) from None
    except OSError as error:
        if repair:
            raise CannotCheck(f"{path} cannot be written: {reason_of(error)}.") from None
        return None
