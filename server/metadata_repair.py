"""The cluster's metadata after its file has been damaged: what can still be read, and what directories tell.

A broker that refused to start for one flipped bit would come back to the same bit. So the damaged file is
kept beside (`odradek-metadata.db.0.damaged`), and a new one is made of the rows that can be read with their
checksums, from either end. Topics whose rows are lost are found again by the directories of their partitions,
which say name, number and topic id; their settings are then the defaults. Ids of producers go on far behind
whatever was given out. Every step is told.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence

from odradek.coordinator.cluster import (
    CLUSTER,
    DELETION,
    PARTITION,
    TOPIC,
    PartitionView,
    Row,
    partition_row,
)
from odradek.server.metadata_store import SqliteMetadataStore, checksum
from odradek.storage.checkpoints import PARTITION_METADATA, read_partition_metadata
from odradek.storage.disk import Disk
from odradek.storage.store import key_of

__all__ = ["repair"]

_FILES = ("", "-wal", "-shm")


def repair(
    path: str,
    disk: Disk,
    directories: Sequence[str],
    *,
    node_id: int,
    now_ms: int,
    tell: Callable[[str], object],
) -> SqliteMetadataStore:
    """A new store at `path` in the place of a damaged one that nobody has open. Raises ConfigError."""
    rows = _readable_rows(path)
    kept = _set_aside(path)
    tell(f"{path} is damaged: kept as {kept}; {len(rows)} of its rows could be read")
    for name, topic_id, count in _topics_on_disk(disk, directories, rows):
        tell(f"topic {name}: found again by its directories, where settings were lost they are the defaults")
        rows[TOPIC, name] = topic_id.hex()
        for index in range(count):
            view = PartitionView(index, node_id, 0, (node_id,), (node_id,))
            row = partition_row(name, view)
            assert row.value is not None
            rows.setdefault((PARTITION, row.key), row.value)
    # One id a microsecond at the most has been given out since 1970.
    rows[CLUSTER, "next_producer_id"] = str(
        max(int(rows.get((CLUSTER, "next_producer_id"), "0")), now_ms * 1000)
    )
    store = SqliteMetadataStore(path)
    store.write(Row(kind, key, value) for (kind, key), value in rows.items())
    return store


def _readable_rows(path: str) -> dict[tuple[str, str], str]:
    rows: dict[tuple[str, str], str] = {}
    for order in ("ASC", "DESC"):
        try:
            connection = sqlite3.connect(path)
            try:
                for kind, key, value, crc in connection.execute(
                    f"SELECT kind, key, value, crc FROM facts ORDER BY kind {order}, key {order}"
                ):
                    if crc == checksum(kind, key, value):
                        rows[kind, key] = value
            finally:
                connection.close()
        except (sqlite3.Error, TypeError, UnicodeError):
            pass
    return rows


def _set_aside(path: str) -> str:
    number = 0
    while os.path.exists(kept := f"{path}.{number}.damaged"):
        number += 1
    for suffix in _FILES:
        if os.path.exists(path + suffix):
            os.replace(path + suffix, kept + suffix)
    return kept


def _topics_on_disk(
    disk: Disk, directories: Sequence[str], rows: dict[tuple[str, str], str]
) -> list[tuple[str, bytes, int]]:
    """(name, id, number of partitions) of topics of which a row is missing."""
    ids: dict[str, Counter[bytes]] = {}
    counts: dict[str, int] = {}
    for (kind, key), _ in rows.items():
        if kind == PARTITION:
            name, _, number = key.rpartition("/")
            counts[name] = max(counts.get(name, 0), int(number) + 1)
    for directory in directories:
        for entry in disk.list(directory):
            place = key_of(entry)
            if place is None:
                continue
            try:
                topic_id = read_partition_metadata(disk, f"{directory}/{entry}/{PARTITION_METADATA}")
            except OSError:
                continue
            if topic_id is None or (DELETION, topic_id.hex()) in rows:
                continue
            name, index = place
            known = rows.get((TOPIC, name))
            if known is not None and known != topic_id.hex():
                continue
            ids.setdefault(name, Counter())[topic_id] += 1
            counts[name] = max(counts.get(name, 0), index + 1)
    for (kind, name), value in rows.items():
        if kind == TOPIC:
            ids.setdefault(name, Counter())[bytes.fromhex(value)] += 1
            counts.setdefault(name, 1)
    return [
        (name, found.most_common(1)[0][0], counts[name])
        for name, found in ids.items()
        if (TOPIC, name) not in rows
        or any((PARTITION, f"{name}/{index}") not in rows for index in range(counts[name]))
    ]
