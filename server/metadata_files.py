"""The files of the cluster's metadata: the store, SQLite's log beside it, and a store that replaces it.

A start looks here before SQLite reads anything: it finishes a repair that a kill has interrupted, and chooses
between several ways to mend the write-ahead log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.server.write_ahead_log import Patch

__all__ = [
    "LOG",
    "READING",
    "REPAIRED",
    "choose",
    "copy_store",
    "finish_repair",
    "remove_store",
    "sync_directory_of",
]

REPAIRED = ".repaired"
"""Ending of what `metadata_repair` has made whole, until it stands in the place of the damaged file."""
LOG = "-wal"
"""Ending of SQLite's write-ahead log, which only a kill leaves behind."""
READING = ".reading"
"""Ending of a copy that is read in the place of a damaged file."""
_BESIDE = (LOG, "-shm")


def finish_repair(path: str, *, tell: Callable[[str], object]) -> None:
    """Let a store that was made anew take its place at `path`, and keep the one that was there. Raises
    OSError.
    """
    number = 0
    while os.path.exists(kept := f"{path}.{number}.damaged"):
        number += 1
    # The log first: it would be taken for the new store's.
    for suffix in (*_BESIDE, ""):
        if os.path.exists(path + suffix):
            os.replace(path + suffix, kept + suffix)
            if not suffix:
                tell(f"the damaged metadata are kept as {kept}")
    os.replace(path + REPAIRED, path)
    sync_directory_of(path)


def choose(path: str, choices: Sequence[Patch], is_sound: Callable[[str], bool]) -> Patch:
    """Of several ways to mend the write-ahead log of a store the one that gives sound rows only. Raises
    OSError.
    """
    from odradek.server.write_ahead_log import likeliest_first, patch

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
    # What is wrong stands elsewhere as well: the rows will tell.
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
