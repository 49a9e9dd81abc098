"""Whether a directory is one of a broker at all: most often a name that is nothing of a broker has a slip."""

import os
import re
from collections.abc import Iterable

from odradek.server.metadata.meta_properties import FILE_NAME
from odradek.storage.checkpoints import CLEAN_SHUTDOWN, LEADER_EPOCHS, PARTITION_METADATA
from odradek.storage.directories import data_directory
from odradek.storage.log import flush_journal
from odradek.storage.log.durability import END_CHECKPOINTS
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS

CHECKPOINTS = (*data_directory.CHECKPOINTS, SCAN_CHECKPOINTS, END_CHECKPOINTS)
JOURNALS = flush_journal.NAMES
NEITHER = "is neither a data directory nor the directory of a partition"
_OF_DATA = frozenset({FILE_NAME, CLEAN_SHUTDOWN, *CHECKPOINTS, *JOURNALS})
_SEGMENT = re.compile(r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)")
_OF_A_PARTITION = frozenset({PARTITION_METADATA, LEADER_EPOCHS})


def is_of_a_broker(path: str, names: Iterable[str]) -> bool:
    """Look at the names in a directory. A data directory may have lost all beside its partitions, and a
    partition its segments."""
    names = list(names)
    return (
        not _OF_DATA.isdisjoint(names)
        or _is_partition(names)
        or any(_is_partition(_names_in(os.path.join(path, one))) for one in names)
    )


def _is_partition(names: Iterable[str]) -> bool:
    return any(name in _OF_A_PARTITION or _SEGMENT.match(name) for name in names)


def _names_in(path: str) -> list[str]:
    """Empty for what is no directory, or cannot be listed."""
    try:
        return os.listdir(path) if os.path.isdir(path) else []
    except OSError:
        return []
