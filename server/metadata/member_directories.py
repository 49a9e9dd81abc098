"""The log directories of a node of a cluster.

Controllers know a replica by the id of its log directory, so each directory has `meta.properties` with the
cluster, the node and its own id, as Kafka writes it (version 1, KIP-858). A node of a cluster takes

- its own directories, which have a property more (`MEMBER`), for Kafka a line without a meaning;
- directories that Kafka's tools have formatted, or that have `cluster.id` and `node.id` alone, without
  partitions in them;
- new directories, if none of `log.dirs` has been used. Beside used ones an empty directory is refused, as in
  Kafka: its disk may not be mounted.

It refuses those of a node alone, of another cluster or node, and those in which Kafka has partitions, before
anything in them is touched. One that cannot be used is left out as long as there is another.

Nothing is written before the cluster is known, which the controllers may have to be asked for. The order of
a start: `claim_member_directories`, the store's `lock`, `previous_broker_epoch`, `settle` with the cluster of
the controllers, registration, the store's `open`. Before the store is closed its `broker_epoch` is set.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from odradek.config.config_error import ConfigError
from odradek.config.properties import parse_properties
from odradek.server.metadata import meta_properties
from odradek.server.metadata.meta_properties import FILE_NAME, MEMBER, OLD_STORE, Identity, Unusable, unusable
from odradek.storage.checkpoints import UNKNOWN_BROKER_EPOCH, previous_broker_epoch
from odradek.storage.directories.places import CLUSTER_METADATA
from odradek.storage.directories.store import key_of
from odradek.storage.disk import OsDisk
from odradek.wire.schema import uuid_from_text

RESERVED_IDS = 100
"""Directory ids below this number are Kafka's own: unassigned, lost, migrating (Kafka: DirectoryId)."""

logger = logging.getLogger("odradek.data")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDirectories:
    """Directories that were read and found to be this node's. Nothing in them has changed so far."""

    node_id: int
    cluster_id: str | None
    """Id from a directory or the configuration; None: the controllers have to be asked."""
    directory_ids: Mapping[str, str]
    """By the path of the log directory, as given; those of new directories, too."""
    failures: Mapping[str, str]
    """The reasons why directories cannot be used, by path."""
    said_by: str = ""
    """Where `cluster_id` comes from, for people."""
    unwritten: frozenset[str] = field(default=frozenset())
    """Directories whose file has to be written."""

    def settle(self, cluster_id: str | None = None) -> Identity:
        """Write what is missing; `cluster_id` is the controllers', needed where the claim has none.

        ConfigError: the controllers are another cluster's, or no directory can be written.
        """
        if cluster_id is not None and self.cluster_id not in (None, cluster_id):
            raise ConfigError(
                f"The controllers are those of cluster {cluster_id}, and {self.said_by} {self.cluster_id}: "
                "name the controllers of that cluster, or other directories in log.dirs."
            )
        cluster_id = self.cluster_id or cluster_id
        assert cluster_id is not None, "the controllers have not been asked for their cluster"
        directory_ids, failures = dict(self.directory_ids), dict(self.failures)
        for directory in self.directory_ids:
            if directory not in self.unwritten:
                continue
            try:
                meta_properties.write(
                    directory, cluster_id, self.node_id, directory_ids[directory], for_member=True
                )
            except Unusable as error:
                if len(directory_ids) == 1:
                    raise
                failures[directory] = str(error)
                del directory_ids[directory]
        return Identity(cluster_id, self.node_id, directory_ids, failures)

    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last stop if it was a clean one in all directories, else -1. To be read
        before the logs are opened."""
        if self.failures:
            return UNKNOWN_BROKER_EPOCH
        return previous_broker_epoch(OsDisk(), self.directory_ids)


def claim_member_directories(
    directories: Iterable[str],
    *,
    node_id: int,
    cluster_id: str | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> ClaimedDirectories:
    """Make the directories where they are missing, and read their `meta.properties`.

    `cluster_id` is the configured one. ConfigError: see the module; or none can be made and written.
    """
    found, failures = _read_all(directories)
    used = {directory: properties for directory, properties in found.items() if properties}
    said_by = "--cluster-id or CLUSTER_ID says"
    for directory, properties in used.items():
        meta_properties.check_node(directory, properties, node_id)
        theirs = properties["cluster.id"]
        if cluster_id not in (None, theirs):
            raise ConfigError(
                f"Directory {directory} of log.dirs is of cluster {theirs}, and {said_by} {cluster_id}: "
                "name another directory or cluster."
            )
        cluster_id, said_by = theirs, f"directory {directory} of log.dirs is of cluster"
    _refuse_new_beside_used(found, used)
    directory_ids = {
        directory: properties.get("directory.id") or meta_properties.new_id(random_bytes)
        for directory, properties in found.items()
    }
    _check_directory_ids(directory_ids)
    return ClaimedDirectories(
        node_id=node_id,
        cluster_id=cluster_id,
        directory_ids=directory_ids,
        failures=failures,
        said_by=said_by,
        unwritten=frozenset(directory for directory, properties in found.items() if MEMBER not in properties),
    )


def _read_all(directories: Iterable[str]) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """The properties of each directory, empty for a new one; and the reasons why others cannot be used."""
    found: dict[str, Mapping[str, str]] = {}
    failures: dict[str, str] = {}
    for directory in directories:
        try:
            found[directory] = _read(directory)
        except Unusable as error:
            failures[directory] = str(error)
            last = error
    if not found:
        raise last
    return found, failures


def _read(directory: str) -> Mapping[str, str]:
    """The properties of a directory; empty for a new one. Creates the directory if it is missing."""
    try:
        os.makedirs(directory, exist_ok=True)
        entries = os.listdir(directory)
    except OSError as error:
        raise unusable(directory, error) from None
    meta_properties.check_writable(directory)
    if OLD_STORE in entries:
        raise _alone(directory, f" (it has {OLD_STORE})")
    partition = next((name for name in sorted(entries) if _is_partition(directory, name)), None)
    if FILE_NAME not in entries:
        if partition is not None:
            raise ConfigError(
                f"Directory {directory} of log.dirs has partitions ({partition}) and no {FILE_NAME}, so it "
                "cannot be known whose they are: restore that file, or name an empty directory."
            )
        return {}
    return _checked(directory, _content(os.path.join(directory, FILE_NAME)), partition)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unusable(path, error) from None


def _checked(directory: str, content: bytes, partition: str | None) -> Mapping[str, str]:
    """The properties of a directory's file. `partition` is one of the directory, if there is any."""
    path = os.path.join(directory, FILE_NAME)
    right = meta_properties.mended(content)
    try:
        properties = parse_properties(right)
    except ValueError:
        properties = {}
    whole = properties.get("cluster.id") and (properties.keys() & {"node.id", "broker.id"})
    if not whole or properties.get("version", "1") not in ("0", "1"):
        raise ConfigError(
            f"{path} is damaged, and it has the id by which the controllers know this directory: restore it, "
            "or leave the directory out of log.dirs, or empty it so that its replicas are copied anew."
        )
    is_ours = meta_properties.has_our_mark(content)
    if is_ours and MEMBER not in properties:
        raise _alone(directory)
    if right != content:
        logger.error("%s was damaged, and has been mended", path)
        # So it is written again.
        del properties[MEMBER]
    elif partition is not None and not is_ours:
        raise ConfigError(
            f"Directory {directory} of log.dirs was written by Apache Kafka and has partitions "
            f"({partition}): move them to other brokers first (kafka-reassign-partitions), or name an "
            "empty directory."
        )
    return properties


def _is_partition(directory: str, name: str) -> bool:
    key = key_of(name)
    return key is not None and key[0] != CLUSTER_METADATA and os.path.isdir(os.path.join(directory, name))


def _alone(directory: str, why: str = "") -> ConfigError:
    return ConfigError(
        f"Directory {directory} of log.dirs belongs to a node alone{why}: serve it without controllers, or "
        "name an empty directory for the node of the cluster and copy the topics over (odradek spark mirror)."
    )


def _refuse_new_beside_used(
    found: Mapping[str, Mapping[str, str]], used: Mapping[str, Mapping[str, str]]
) -> None:
    new = [directory for directory in found if directory not in used]
    if not new or not used:
        return
    other, properties = next(iter(used.items()))
    node_id = properties.get("node.id", properties.get("broker.id"))
    raise ConfigError(
        f"Directory {new[0]} of log.dirs has no {FILE_NAME}, while {other} has been used: is its disk "
        f"mounted? If it is a new one, create {os.path.join(new[0], FILE_NAME)} with the lines version=1, "
        f"cluster.id={properties['cluster.id']} and node.id={node_id}."
    )


def _check_directory_ids(directory_ids: Mapping[str, str]) -> None:
    known: dict[bytes, str] = {}
    for directory, text in directory_ids.items():
        try:
            number = uuid_from_text(text)
        except ValueError:
            number = b""
        if int.from_bytes(number) < RESERVED_IDS:
            raise ConfigError(
                f"{directory}/{FILE_NAME} has directory.id={text}, which is not an id of a directory: "
                "restore the file, or strike that line out if no replica is in the directory."
            )
        other = known.setdefault(number, directory)
        if other != directory:
            raise ConfigError(
                f"Directories {other} and {directory} of log.dirs have the same directory.id: leave the "
                "copy of the other one out."
            )
