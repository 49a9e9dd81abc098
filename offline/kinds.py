"""Whether a directory is one of a broker at all: most often a name that is nothing of a broker has a slip."""

import os
import re
from collections.abc import Iterable

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "scan-checkpoint",
    "end-checkpoint",
)
JOURNALS = ("flush-journal.0", "flush-journal.1")
NEITHER = "is neither a data directory nor the directory of a partition"
_OF_DATA = frozenset({"meta.properties", ".kafka_cleanshutdown", *CHECKPOINTS, *JOURNALS})
_SEGMENT = re.compile(r"[0-9]{20}\.(log|index|timeindex|txnindex|snapshot)")
_OF_A_PARTITION = frozenset({"partition.metadata", "leader-epoch-checkpoint"})


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
