"""Migration of a node alone: the rows of `odradek-metadata.db` become the first records of a metadata log.

The log is made complete in another directory (`__cluster_metadata-0.building`), and renamed. Only then the
store is renamed to `odradek-metadata.db.migrated`. So after a crash at any point the next start begins again,
or only renames: a log beside the store has all of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.view import UNASSIGNED
from odradek.coordinator.controller.from_rows import LOG_DIRECTORY, FromRows, Row, from_rows
from odradek.coordinator.controller.record_versions import TRANSACTIONS_SINCE, version_of
from odradek.server.metadata.meta_properties import METADATA_LOG
from odradek.server.metadata.metadata_batches import BATCH_RECORDS_MAX
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.server.metadata.old_store import read_rows, verify
from odradek.storage.directories.places import (
    DELETE_SUFFIX,
    FILE_NAME_BYTES_MAX,
    key_of,
    remove_with_files,
    topic_id_in,
)
from odradek.storage.disk import Disk
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
)

MIGRATED = ".migrated"
"""Suffix of the store whose rows are in the log."""
BUILDING = ".building"
_BESIDE = ("-wal", "-shm", "")

logger = logging.getLogger("odradek.metadata")


class Node(NamedTuple):
    """The node whose metadata are migrated."""

    voter: ThisVoter
    directory_ids: Mapping[str, bytes]
    """Ids of its log directories that can be used, by their path."""
    metadata_directory: str
    """The log directory in which the metadata log belongs."""


def migrate(
    disk: Disk,
    path: str,
    node: Node,
    *,
    now_ms: Callable[[], int],
    rows_of: Callable[[str], list[Row]] = read_rows,
    tell: Callable[[str], object] = logger.info,
) -> bool:
    """Migrate the store at `path`, or end a migration; False if there is none.

    ConfigError: the store, or the disk, does not let it be done; the store is as it was then.
    """
    if not disk.exists(path):
        return False
    target = f"{node.metadata_directory}/{METADATA_LOG}"
    try:
        if not disk.exists(target):
            rows = rows_of(path)
            taken = _records_of(disk, path, rows, node)
            _build(disk, target, taken, node, now_ms)
            _finish_deletions(disk, taken, node)
            disk.rename(target + BUILDING, target)
            disk.sync_directory(node.metadata_directory)
            tell(f"the metadata in {path} are taken over into {target}: {len(taken.records)} records")
        # The store itself last: a start looks for it.
        for suffix in _BESIDE:
            if disk.exists(path + suffix):
                disk.rename(path + suffix, path + MIGRATED + suffix)
        disk.sync_directory(os.path.dirname(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be taken over into {target}: {error}.") from error
    return True


def check_migration(path: str) -> tuple[bool, list[str]]:
    """Whether the store at `path` can be taken over, and a clause for each thing that would be, or cannot be.
    Nothing is changed.
    """
    rows, wrong = verify(path)
    if wrong:
        return False, wrong
    try:
        taken = from_rows(rows, {})
    except (ValueError, KafkaError) as error:
        return False, [f"its rows cannot be taken over: {error}"]
    refused = {type(one).__name__ for one in taken.records if not _is_known(one, taken.metadata_version)}
    if refused:
        names = ", ".join(sorted(refused))
        return False, [f"{names} cannot be written at metadata.version {taken.metadata_version}"]
    view = taken.view
    partitions = sum(len(topic.partitions) for topic in view.topics.values())
    acls = 0 if view.acls is None else len(view.acls)
    told = [
        f"{len(view.topics)} topics with {partitions} partitions, {acls} ACLs and "
        f"{len(view.scram_users.credentials)} credentials of users can be taken over into the metadata log"
    ]
    if taken.deletions:
        told.append(f"the deletion of {len(taken.deletions)} topics has to be finished")
    return True, told


def _is_known(record: MetadataRecord, metadata_version: int) -> bool:
    try:
        version_of(record, metadata_version)
    except ValueError:
        return False
    return True


def _records_of(disk: Disk, path: str, rows: Iterable[Row], node: Node) -> FromRows:
    """ConfigError: the rows cannot be understood."""
    rows = list(rows)
    places = {
        key: id_
        for directory, id_ in node.directory_ids.items()
        for name in disk.list(directory)
        if (key := key_of(name)) is not None
    }
    try:
        return from_rows(rows, places, _default_directory(rows, node))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be taken over: {error}.") from error


def _default_directory(rows: Iterable[Row], node: Node) -> bytes:
    """The directory of partitions that are in none of the present ones: a missing one, if the rows know one.
    Without it the broker would make them anew."""
    from odradek.wire.schema import uuid_from_text

    present = set(node.directory_ids.values())
    for table, key, _ in sorted(rows):
        owner, _, text = key.partition("/")
        if table == LOG_DIRECTORY and owner == str(node.voter.node_id):
            id_ = uuid_from_text(text)
            if id_ not in present:
                return id_
    return next(iter(present)) if len(present) == 1 else UNASSIGNED


def _build(disk: Disk, target: str, taken: FromRows, node: Node, now_ms: Callable[[], int]) -> None:
    """Make the log complete, and durable, under another name."""
    building = target + BUILDING
    if disk.exists(building):
        remove_with_files(disk, building)
    log = DiskMetadataLog(disk, building, node.voter, now_ms=now_ms)
    level = taken.metadata_version
    try:
        if level >= TRANSACTIONS_SINCE:
            begin = BeginTransactionRecord(name="Migration from odradek-metadata.db")
            log.append([begin, *taken.records, EndTransactionRecord()], level)
        else:
            for first in range(0, len(taken.records), BATCH_RECORDS_MAX):
                log.append(taken.records[first : first + BATCH_RECORDS_MAX], level)
        log.close()
    except KafkaError as error:
        raise ConfigError(f"{target} cannot be written: {error}.") from error


def _finish_deletions(disk: Disk, taken: FromRows, node: Node) -> None:
    """Rename directories of deleted topics, so that the broker removes them."""
    if not taken.deletions:
        return
    for directory in node.directory_ids:
        for name in disk.list(directory):
            topic_id = topic_id_in(disk, f"{directory}/{name}") if key_of(name) is not None else None
            if topic_id in taken.deletions:
                assert topic_id is not None
                ending = f".{topic_id.hex()}{DELETE_SUFFIX}"
                stem = name[: FILE_NAME_BYTES_MAX - len(ending)]
                disk.rename(f"{directory}/{name}", f"{directory}/{stem}{ending}")
        disk.sync_directory(directory)
