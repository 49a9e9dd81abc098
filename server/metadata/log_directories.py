"""The log directories that a broker has used.

A start without one of them, or with another order, would create partitions at offset 0 while their records
are elsewhere, or find no topics at all. So an obvious mistake is refused before a partition is touched. The
registration of a node alone has the ids of its directories (`meta.properties`), and the record of a partition
has the id of the directory that it is in: partitions of a directory that is missing in log.dirs are offline
(KAFKA_STORAGE_ERROR), as after a failed disk, until it is back.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.server.metadata import meta_properties
from odradek.server.metadata.meta_properties import METADATA_LOG, OLD_STORE
from odradek.wire.schema import uuid_to_text

if TYPE_CHECKING:
    from odradek.storage.disk import Disk


def refuse_misplaced(directories: Sequence[str], metadata_directory: str | None = None) -> None:
    """ConfigError if the cluster's metadata are not where they have to be: in `metadata_directory`, by
    default the first directory."""
    first = directories[0] if metadata_directory is None else metadata_directory
    place = "the first one" if first == directories[0] else f"{first} (metadata.log.dir)"
    others = [one for one in directories if one != first]
    for other in others:
        name = _name_of_metadata(other)
        if name is None or (name == OLD_STORE and other == directories[0]):
            continue
        if _name_of_metadata(first) is not None:
            raise ConfigError(
                f"Directories {first} and {other} of log.dirs hold the metadata of a cluster each "
                f"({name}): name one of them, and take topics of the other over with odradek import-log."
            )
        raise ConfigError(
            f"Directory {other} of log.dirs holds the metadata of the cluster ({name}), which belong in "
            f"{place}: " + ("name it first." if first == directories[0] else "move them there.")
        )
    used = [other for other in others if _is_used(other)]
    if used and not _has(first, meta_properties.FILE_NAME):
        what = "is the first of log.dirs" if first == directories[0] else "is for the metadata"
        raise ConfigError(
            f"Directory {first} {what} and has no {meta_properties.FILE_NAME}, while {used[0]} has been "
            f"used: is its disk mounted? The metadata of the cluster are in {place}."
        )


def refuse_replaced(absent: Collection[bytes], new: Sequence[str]) -> None:
    """ConfigError if a new directory may stand where an absent one was: the partitions of that would be lost
    without notice. `absent` are ids of registered directories."""
    if absent and new:
        ids = ", ".join(uuid_to_text(one) for one in absent)
        raise ConfigError(
            f"Directory {new[0]} of log.dirs is new to this broker, and a directory that it had is missing "
            f"(directory.id={ids}): is its disk mounted? To go on without that one start once without "
            f"{new[0]}; partitions that it had are offline then."
        )


def lock_metadata(directory: str, ending: AsyncExitStack | ExitStack, disk: Disk | None = None) -> None:
    """Lock the directory of the metadata log. Raises ConfigError."""
    from odradek.storage.checkpoints import LOCK
    from odradek.storage.disk import OsDisk

    try:
        ending.callback((disk or OsDisk()).lock(f"{directory}/{LOCK}").release)
    except BlockingIOError:
        raise ConfigError(
            f"metadata.log.dir: The directory {directory} is in use by another node. Stop it, or name "
            "another directory."
        ) from None


def _name_of_metadata(directory: str) -> str | None:
    """Name of the metadata of a cluster in a directory; None: there are none."""
    return next((name for name in (METADATA_LOG, OLD_STORE) if _has(directory, name)), None)


def _is_used(directory: str) -> bool:
    """Used by Odradek. Kafka's directories and unreadable ones are refused elsewhere."""
    try:
        return _has(directory, meta_properties.FILE_NAME) and not meta_properties.is_kafkas(directory)
    except OSError:
        return False


def _has(directory: str, name: str) -> bool:
    return os.path.exists(os.path.join(directory, name))
