"""A data directory at one moment, while its store goes on: what a copy consists of that opens as after a
clean stop.

`storage/log/still.py` says which files a hard link is enough for. The copy's checkpoints say that all of it
is flushed. They are right as long as the machine runs: nobody syncs the files of a copy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    encode_clean_shutdown,
    encode_facts,
    encode_offsets,
)
from odradek.storage.directories.data_directory import CHECKPOINTS, DataDirectory, Key
from odradek.storage.directories.places import Place, Places
from odradek.storage.log.durability import END_CHECKPOINTS
from odradek.storage.log.partition import Partition
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS
from odradek.storage.log.segment_paths import CLEANED, DELETED, INDEX_KINDS, LOG
from odradek.storage.log.still import closed_names, still_of
from odradek.wire.errors import ErrorCode, KafkaError

OF_THE_STORE = (*CHECKPOINTS, SCAN_CHECKPOINTS, END_CHECKPOINTS, CLEAN_SHUTDOWN)
"""Files of the directory itself that `DirectoryStill.made` has."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DirectoryStill:
    """Files by their paths in the data directory. All but log files may be missing there."""

    folders: list[str] = field(default_factory=list)
    """Names of the directories of partitions."""
    closed: list[str] = field(default_factory=list)
    """A hard link is enough."""
    copied: dict[str, int | None] = field(default_factory=dict)
    """These have to be copied, up to so many bytes; None: whole."""
    made: dict[str, bytes] = field(default_factory=dict)
    """Files with this content, in place of files of these names."""


def still_of_directory(
    places: Places, home: DataDirectory, get: Callable[[str, int], Partition | None]
) -> DirectoryStill:
    """The partitions and checkpoints of a data directory as they are now; `get` loads a partition. Nothing
    may be staged, and no work of the store may be under way. Raises `OSError`, and KAFKA_STORAGE_ERROR if a
    partition is offline."""
    found = DirectoryStill()
    offsets = {name: dict(home.offsets[name]) for name in CHECKPOINTS}
    scan_checkpoints, end_checkpoints = dict(home.scan_checkpoints), dict(home.end_checkpoints)
    for key, place in list(places.by_key.items()):
        if place.home is not home or not places.is_known(key):
            continue
        partition = _opened(key, place, get)
        found.folders.append(place.name)
        if partition is None:
            _add_unopened(found, places, place)
            continue
        _add(found, place.name, partition, home.written(RECOVERY_POINTS, key))
        offsets[RECOVERY_POINTS][key] = partition.log_end_offset
        offsets[HIGH_WATERMARKS][key] = partition.high_watermark
        if partition.log_start_offset > 0:
            offsets[LOG_STARTS][key] = partition.log_start_offset
        # They are of an earlier end of the log.
        scan_checkpoints.pop(key, None)
        end_checkpoints.pop(key, None)
    found.made.update({name: encode_offsets(of_name) for name, of_name in offsets.items()})
    found.made[SCAN_CHECKPOINTS] = encode_facts(scan_checkpoints)
    found.made[END_CHECKPOINTS] = encode_facts(end_checkpoints)
    found.made[CLEAN_SHUTDOWN] = encode_clean_shutdown()
    return found


def _opened(key: Key, place: Place, get: Callable[[str, int], Partition | None]) -> Partition | None:
    """The partition; None if it has not been opened since a clean stop."""
    if place.offline_because is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, place.offline_because)
    # A recovery would change closed files of the copy in place.
    return place.partition if place.was_clean else get(*key)


def _add(found: DirectoryStill, folder: str, partition: Partition, recovery_point: int) -> None:
    still = still_of(partition.log, recovery_point)
    found.closed.extend(f"{folder}/{name}" for name in still.closed)
    found.copied.update((f"{folder}/{name}", size_bytes) for name, size_bytes in still.copied.items())
    found.made.update((f"{folder}/{name}", content) for name, content in still.made.items())


def _add_unopened(found: DirectoryStill, places: Places, place: Place) -> None:
    """A partition whose files are as a clean stop has left them. It may be opened while they are copied."""
    names = [name for name in places.disk.list(place.path) if not name.endswith((DELETED, CLEANED, ".tmp"))]
    closed = closed_names(names, lambda name: places.disk.size(f"{place.path}/{name}"))
    found.closed.extend(f"{place.name}/{name}" for name in names if name in closed)
    for name in names:
        if name not in closed:
            # Others do not grow, and to open the partition may remove them.
            grows = name.endswith((LOG, *INDEX_KINDS))
            found.copied[f"{place.name}/{name}"] = places.disk.size(f"{place.path}/{name}") if grows else None
