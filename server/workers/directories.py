"""Data directories and the number of workers: which start would leave partitions without a node.

Nothing is written here. Directories of another node or cluster are refused later, by the workers themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from odradek.config.config_error import ConfigError
from odradek.server.metadata import meta_properties, metadata_store
from odradek.storage.directories.places import CLUSTER_METADATA
from odradek.storage.directories.store import key_of

_OF_WORKER = re.compile(r"\.w([0-9]{1,4})")


def refuse_directories(directories: Sequence[str], workers: int) -> None:
    """ConfigError: a directory is that of a node alone, or has partitions of a worker that will not be
    there."""
    for path in directories:
        if _is_of_node_alone(path):
            raise ConfigError(
                f"Directory {path} of log.dirs belongs to a node without workers, and taking its partitions "
                "over is not built yet: leave odradek.workers out, or name an empty directory and copy the "
                "topics (odradek spark mirror)."
            )
        for index, other in _of_workers(path):
            if index >= workers and (partition := _a_partition(other)) is not None:
                raise ConfigError(
                    f"{other} has partitions of worker {index} ({partition}), and odradek.workers={workers} "
                    f"leave it out: start {index + 1} workers, and move its partitions to the others first "
                    "(odradek topics move)."
                )


def _is_of_node_alone(path: str) -> bool:
    if os.path.exists(os.path.join(path, metadata_store.FILE_NAME)):
        return True
    return meta_properties.is_ours(path) and not meta_properties.is_member(path)


def _of_workers(path: str) -> list[tuple[int, str]]:
    """The directories beside this one that are of other workers."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        entries = os.listdir(folder)
    except OSError:
        return []
    found = []
    for entry in entries:
        match = _OF_WORKER.fullmatch(entry[len(name) :]) if entry.startswith(name) else None
        if match is not None:
            found.append((int(match[1]), os.path.join(folder, entry)))
    return sorted(found)


def _a_partition(path: str) -> str | None:
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return None
    for name in names:
        key = key_of(name)
        if key is not None and key[0] != CLUSTER_METADATA and os.path.isdir(os.path.join(path, name)):
            return name
    return None
