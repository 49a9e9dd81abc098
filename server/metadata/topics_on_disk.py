"""Topics that the directories of their partitions know, for metadata of which a part is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.storage.checkpoints import PARTITION_METADATA, read_partition_metadata
from odradek.storage.directories.places import CLUSTER_METADATA, key_of
from odradek.storage.disk import Disk


class FoundTopic(NamedTuple):
    """A topic of which the metadata lack the id or partitions."""

    name: str
    topic_id: bytes
    partition_count: int


def topics_on_disk(
    disk: Disk,
    directories: Sequence[str],
    known_ids: Mapping[str, bytes],
    known_indexes: Mapping[str, Collection[int]],
    deleted: Collection[bytes],
    tell: Callable[[str], object],
) -> list[FoundTopic]:
    """Topics without an id or a partition in the metadata. `deleted` are ids of topics that are being
    removed. A directory with messages of old formats was never served: it belongs to no topic. Raises
    OSError.
    """
    ids: dict[str, Counter[bytes]] = {}
    counts = {name: max(indexes) + 1 for name, indexes in known_indexes.items() if indexes}
    for directory, name, index, topic_id in _partitions(disk, directories):
        known = known_ids.get(name)
        if topic_id in deleted or (known is not None and known != topic_id):
            continue
        if known is None and _is_old(disk, directory):
            tell(
                f"{directory} has messages of format v0 or v1 and is left alone: odradek import-log takes it "
                "in"
            )
            continue
        ids.setdefault(name, Counter())[topic_id] += 1
        counts[name] = max(counts.get(name, 0), index + 1)
    for name, topic_id in known_ids.items():
        ids.setdefault(name, Counter())[topic_id] += 1
        counts.setdefault(name, 1)
    return [
        FoundTopic(name, found.most_common(1)[0][0], counts[name])
        for name, found in ids.items()
        if name not in known_ids or not set(range(counts[name])) <= set(known_indexes.get(name, ()))
    ]


def _partitions(disk: Disk, directories: Sequence[str]) -> Iterable[tuple[str, str, int, bytes]]:
    """Directory, topic, number and topic id of each partition that has the latter."""
    for directory in directories:
        for entry in disk.list(directory):
            place = key_of(entry)
            if place is None or place[0] == CLUSTER_METADATA:
                continue
            try:
                topic_id = read_partition_metadata(disk, f"{directory}/{entry}/{PARTITION_METADATA}")
            except OSError:
                continue
            if topic_id is not None:
                yield f"{directory}/{entry}", *place, topic_id


def _is_old(disk: Disk, path: str) -> bool:
    from odradek.storage.recovery.log_walk import begins_with_messages  # a repair is rare

    try:
        return begins_with_messages(disk, path)
    except OSError:
        return False
