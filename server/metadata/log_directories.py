"""The log directories that a broker has used.

A start without one of them, or with another order, would create partitions at offset 0 while their records
are elsewhere, or find no topics at all. Kafka does not start then. So the cluster's metadata store the ids
(`meta.properties`) and paths of the directories: an obvious mistake is refused before a partition is touched,
and partitions of a directory that is missing in log.dirs are offline (KAFKA_STORAGE_ERROR), as after a failed
disk, until it is back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from odradek.config.config_error import ConfigError
from odradek.server.metadata import meta_properties, metadata_store


def refuse_misplaced(directories: Sequence[str]) -> None:
    """ConfigError if the first directory is not the one with the cluster's metadata."""
    first, *others = directories
    for other in others:
        if _has(other, metadata_store.FILE_NAME):
            if _has(first, metadata_store.FILE_NAME):
                raise ConfigError(
                    f"Directories {first} and {other} of log.dirs hold the metadata of a cluster each "
                    f"({metadata_store.FILE_NAME}): name one of them, and take topics of the other over "
                    f"with odradek import-log."
                )
            raise ConfigError(
                f"Directory {other} of log.dirs holds the metadata of the cluster "
                f"({metadata_store.FILE_NAME}), which belong in the first one: name it first."
            )
    used = [other for other in others if _is_used(other)]
    if used and not _has(first, meta_properties.FILE_NAME):
        raise ConfigError(
            f"Directory {first} is the first of log.dirs and has no {meta_properties.FILE_NAME}, while "
            f"{used[0]} has been used: is its disk mounted? The metadata of the cluster are in the first one."
        )


def _is_used(directory: str) -> bool:
    """Used by Odradek. Kafka's directories and unreadable ones are refused elsewhere."""
    try:
        return _has(directory, meta_properties.FILE_NAME) and not meta_properties.is_kafkas(directory)
    except OSError:
        return False


def _has(directory: str, name: str) -> bool:
    return os.path.exists(os.path.join(directory, name))


def absent_directories(
    noted: Mapping[str, str], directory_ids: Mapping[str, str], failures: Mapping[str, str]
) -> dict[str, str]:
    """Paths by id of the stored directories that are neither present nor known to have failed.

    `directory_ids` are the ids of the present ones by path, `failures` are by path. ConfigError if a path has
    another directory now: its partitions would be lost without notice.
    """
    there = set(directory_ids.values())
    absent = {id_: path for id_, path in noted.items() if id_ not in there and path not in failures}
    for path in absent.values():
        if path in directory_ids:
            raise ConfigError(
                f"Directory {path} of log.dirs is not the one that this broker had there: is its disk "
                "mounted? To go on without it leave it out of log.dirs, and give a new one another name; "
                "partitions that it had are offline then."
            )
    return absent
