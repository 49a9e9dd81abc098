"""The data directories of the first worker: which they are, and the mark that others may have partitions.

The mark is that of a node of a cluster (`meta.properties`). The first of `log.dirs` gets it before all others
and loses it after all others, and nothing leaves a directory before all have it. So a node alone looks at the
first one only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.config.properties import parse_properties
from odradek.server.metadata import meta_properties

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig


def own_directories(config: BrokerConfig) -> tuple[str, ...]:
    """`log.dirs`, and the directory of the metadata log if it is another one."""
    return tuple(dict.fromkeys((*config.data_directories, config.metadata_directory)))


def is_of_node_alone(directory: str) -> bool:
    """Whether a node alone has written the file of the directory, and its mark is missing."""
    return meta_properties.is_ours(directory) and not meta_properties.is_member(directory)


def property_of(directory: str, name: str) -> str:
    """A property of `meta.properties`. ConfigError: there is none."""
    return _properties(directory)[name]


def check_owner(config: BrokerConfig, directory: str) -> None:
    """ConfigError: the directory is another node's or cluster's, or cannot be written."""
    meta_properties.check_writable(directory)
    if not os.path.exists(os.path.join(directory, meta_properties.FILE_NAME)):
        raise ConfigError(
            f"Directory {directory} of log.dirs has no {meta_properties.FILE_NAME}, while others have been "
            "used: change log.dirs and odradek.workers at two starts, one after the other."
        )
    properties = _properties(directory)
    meta_properties.check_node(directory, properties, config.node_id)
    expected = config.cluster_id or property_of(config.data_directories[0], "cluster.id")
    if properties["cluster.id"] != expected:
        raise ConfigError(
            f"Directory {directory} of log.dirs is of cluster {properties['cluster.id']}, not of {expected}: "
            "name another directory or cluster."
        )


def set_mark(config: BrokerConfig) -> None:
    """Mark the directories that are not marked yet."""
    for directory in own_directories(config):
        if not meta_properties.is_member(directory):
            _write(directory, is_marked=True)


def remove_mark(config: BrokerConfig) -> None:
    """Remove all marks: nothing is in the directories of other workers any more."""
    for directory in reversed(own_directories(config)):
        if meta_properties.is_member(directory):
            _write(directory, is_marked=False)


def _write(directory: str, *, is_marked: bool) -> None:
    found = _properties(directory)
    node_id = int(found["node.id"])
    meta_properties.write(
        directory, found["cluster.id"], node_id, found["directory.id"], for_member=is_marked
    )


def _properties(directory: str) -> dict[str, str]:
    try:
        with open(os.path.join(directory, meta_properties.FILE_NAME), "rb") as file:
            content = file.read()
        found = parse_properties(meta_properties.mended(content) or content)
    except (OSError, ValueError):
        found = {}
    if not found.keys() >= {"cluster.id", "node.id", "directory.id"}:
        raise ConfigError(f"{directory}/{meta_properties.FILE_NAME} is missing or damaged.")
    return found
