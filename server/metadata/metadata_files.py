"""The files of the cluster's metadata: the store, SQLite's log beside it, and a store that replaces it.

Before SQLite reads anything a start finishes a repair that a crash has interrupted, and chooses between
several ways to mend the write-ahead log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.server.metadata.write_ahead_log import Patch

REPAIRED = ".repaired"
"""Suffix of the new store of `metadata_repair`, until it replaces the damaged file."""
LOG = "-wal"
"""Suffix of SQLite's write-ahead log, which is there only after a crash."""
READING = ".reading"
"""Suffix of a copy that is read instead of a damaged file."""
_BESIDE = (LOG, "-shm")


def finish_repair(path: str, *, tell: Callable[[str], object]) -> None:
    """Replace the store at `path` by the new one, and keep the old one. Raises OSError."""
    number = 0
    while os.path.exists(kept := f"{path}.{number}.damaged"):
        number += 1
    # The log first: SQLite would apply it to the new store.
    for suffix in (*_BESIDE, ""):
        if os.path.exists(path + suffix):
            os.replace(path + suffix, kept + suffix)
            if not suffix:
                tell(f"the damaged metadata are kept as {kept}")
    os.replace(path + REPAIRED, path)
    sync_directory_of(path)


def choose(path: str, choices: Sequence[Patch], is_sound: Callable[[str], bool]) -> Patch:
    """The way to mend the write-ahead log after which all rows are sound, of several ways. Raises OSError."""
    from odradek.server.metadata.write_ahead_log import likeliest_first, patch

    copy = path + READING
    with open(path + LOG, "rb") as log, open(path, "rb") as database:
        choices = likeliest_first(choices, log.read(), database.read())
    try:
        for choice in choices:
            copy_store(path, copy)
            patch(copy + LOG, [choice])
            if is_sound(copy):
                return choice
    finally:
        remove_store(copy)
    # There is other damage as well: the checksums of the rows show it.
    return choices[0]


def copy_store(source: str, target: str) -> None:
    import shutil  # a repair is rare

    remove_store(target)
    for suffix in ("", LOG):
        if os.path.exists(source + suffix):
            shutil.copyfile(source + suffix, target + suffix)


def remove_store(path: str) -> None:
    for suffix in ("", *_BESIDE):
        if os.path.exists(path + suffix):
            os.remove(path + suffix)


def sync_directory_of(path: str) -> None:
    descriptor = os.open(os.path.dirname(path) or os.curdir, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
