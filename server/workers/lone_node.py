"""A node alone becomes the first worker of a broker with workers, and the other way round.

Both have the same directories and the same metadata log; only the mark in `meta.properties` differs, and what
other workers have. So both ways are the mark and the renames of `resizing.py`. After a kill in between the
next start of either kind goes on: each step may be done again, and all but the last keep the mark.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.config.workers import directory_of
from odradek.coordinator.cluster.features import refusal_of_features
from odradek.coordinator.controller.alone import LoneController
from odradek.server.metadata import meta_properties
from odradek.server.metadata.log_directories import lock_metadata, refuse_misplaced
from odradek.server.metadata.metadata_log_start import close_metadata_log, loaded_controller, open_own_log
from odradek.server.metadata.unenforced_acls import refusal_of_acls
from odradek.server.node import Node, do_nothing
from odradek.server.phase_bind import lock_store
from odradek.server.phase_open import open_logs
from odradek.server.topic_logs import TopicLogs
from odradek.server.workers.directories import (
    check_owner,
    is_of_node_alone,
    own_directories,
    property_of,
    remove_mark,
    set_mark,
)
from odradek.server.workers.resizing import Resizing
from odradek.wire.schema import uuid_from_text

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterView

logger = logging.getLogger("odradek.workers")


def become_first_worker(config: BrokerConfig) -> None:
    """The directories of a node alone become those of the first worker, before one is forked; harmless if
    they are no node's alone. What a kill has left is recovered here, so that other workers get a share of
    it. ConfigError: they cannot, and nothing in them is changed."""
    directories = own_directories(config)
    for path in directories:
        if os.path.exists(os.path.join(path, meta_properties.OLD_STORE)):
            raise ConfigError(
                f"Directory {path} of log.dirs has metadata of an earlier version "
                f"({meta_properties.OLD_STORE}): start once without odradek.workers, which takes them over."
            )
    if not any(map(is_of_node_alone, directories)):
        return
    refuse_misplaced(config.data_directories, config.metadata_directory)
    with ExitStack() as ending:
        locked = _Locked(Node(config=config), ending)
        controller = locked.loaded_controller()
        _refuse_view(config, controller.view)
        known = controller.view.registrations.get(config.node_id)
        if known is not None:
            # The first worker names it when it registers: so the controller sees that it lacks nothing.
            locked.store.broker_epoch = known.epoch
        locked.open_store(controller)
        set_mark(config)
    logger.info("took the directories of a node alone over")


def become_lone(node: Node) -> None:
    """The directories of the first worker become those of a node alone, with all that other workers have;
    those of a node with controllers elsewhere are left to who claims them. ConfigError: they cannot, and
    nothing was moved."""
    config = node.config
    first = config.data_directories[0]
    if not os.path.isdir(os.path.join(config.metadata_directory, meta_properties.METADATA_LOG)):
        if meta_properties.is_member(directory_of(first, 1)):
            raise ConfigError(
                f"Directory {first} of log.dirs belongs to a broker with workers, and the metadata of its "
                f"cluster are not in {config.metadata_directory}: name their directory in metadata.log.dir."
            )
        return
    with ExitStack() as ending:
        controller = _Locked(node, ending).loaded_controller()
        known = controller.view.registrations
        directory_id = uuid_from_text(property_of(first, "directory.id"))
        if known and (config.node_id not in known or directory_id not in known[config.node_id].directories):
            raise ConfigError(
                f"{config.metadata_directory} has the log of a controller, whose brokers have other "
                "directories: start it with process.roles=controller."
            )
        Resizing(config.data_directories, [config.node_id]).take_over(controller)
        remove_mark(config)
    logger.info("took the directories of a broker with workers over")


def _refuse_view(config: BrokerConfig, view: ClusterView) -> None:
    """ConfigError: workers could not serve the cluster."""
    refusal = refusal_of_features(view.features)
    if refusal is not None:
        raise ConfigError(f"{refusal.removesuffix('.')}, before it is started with odradek.workers.")
    refusal = refusal_of_acls(config.values, view)
    if refusal is not None:
        raise ConfigError(refusal)
    # Only a marked directory knows workers. These are of a cluster of machines that the node was in before.
    others = [str(one) for one in sorted(view.registrations)]
    if len(others) > 1:
        raise ConfigError(
            f"The metadata know brokers of another time ({', '.join(others)}), whose ids workers may get: "
            "start without odradek.workers, and unregister all but one (odradek cluster unregister)."
        )


class _Locked:
    """The directories of a node while they are locked, and were found to be its own."""

    def __init__(self, node: Node, ending: ExitStack) -> None:
        config = node.config
        self._node = node
        self._ending = ending
        self.store, _, self._topics, self._reconfiguration = lock_store(node, ending)
        if config.metadata_directory not in config.data_directories:
            lock_metadata(config.metadata_directory, ending, node.disk)
        for path in own_directories(config):
            check_owner(config, path)

    def loaded_controller(self) -> LoneController:
        config = self._node.config
        identity = meta_properties.Identity(
            property_of(config.metadata_directory, "cluster.id"),
            config.node_id,
            {path: property_of(path, "directory.id") for path in own_directories(config)},
        )
        # A damaged log is repaired by those who have all partitions, of which it may have lost the topics.
        log = open_own_log(
            config,
            identity,
            config.data_directories,
            config.metadata_directory,
            now_ms=self._node.now_ms,
            repairs=False,
        )
        self._ending.callback(close_metadata_log, log)
        live = self._reconfiguration.live
        return loaded_controller(LoneController, config, log, identity.cluster_id, live)

    def open_store(self, controller: LoneController) -> None:
        """Recover the logs, as a start of a node alone does; the end closes them cleanly."""
        self._topics.current_view = lambda: controller.view
        node = self._node
        live = self._reconfiguration.live
        topic_logs = TopicLogs(
            node.id, self.store, controller, live, node.now_ms, do_nothing, lambda partition: None
        )
        open_logs(self.store, node.now_ms())
        topic_logs.finish_deletions()
