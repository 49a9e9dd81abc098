"""The first phase of a broker: its ports are bound and its data directories are locked.

A port or a directory in use is reported here, before anything of the data is read or changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.server.network.ports import Ports, bind_ports
from odradek.server.reconfiguration import Reconfiguration, live_config
from odradek.server.topic_logs import TopicLookup

if TYPE_CHECKING:
    from odradek.server.background.disks import StoreEvents
    from odradek.server.metadata.meta_properties import Identity
    from odradek.server.node import Node
    from odradek.storage.directories.store import LogStore

logger = logging.getLogger("odradek.broker")

OPEN_SEGMENTS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Bound:
    """See the module. `store` is locked, and knows no partition yet; `topics` and `reconfiguration` know no
    metadata yet."""

    node: Node
    ports: Ports
    controller_ports: Ports = field(default_factory=Ports)
    """Listeners of a node alone at which it is a controller."""
    identity: Identity
    store: LogStore
    store_events: StoreEvents
    topics: TopicLookup
    reconfiguration: Reconfiguration


def bind(node: Node, ending: AsyncExitStack, take_over: Callable[[Node], None]) -> Bound:
    """`ending` gets the functions that undo it. `take_over` is called where the directories are marked as
    those of a broker with workers. Raises ConfigError with one sentence for the administrator."""
    from odradek.server.metadata.meta_properties import is_member

    ports = bind_ports(node.config, node.sockets, ending)
    of_controller = node.config.controller_listeners
    controller_ports = (
        bind_ports(node.config, node.sockets, ending, of_controller) if of_controller else Ports()
    )
    # The other directories are marked only as long as the first one is.
    if is_member(node.config.data_directories[0]):
        take_over(node)
    identity = _claim_directories(node)
    store, events, topics, reconfiguration = lock_store(node, ending)
    if node.config.metadata_directory not in node.config.data_directories:
        from odradek.server.metadata.log_directories import lock_metadata

        lock_metadata(node.config.metadata_directory, ending, node.disk)
    return Bound(
        node=node,
        ports=ports,
        controller_ports=controller_ports,
        identity=identity,
        store=store,
        store_events=events,
        topics=topics,
        reconfiguration=reconfiguration,
    )


def lock_store(
    node: Node, ending: AsyncExitStack | ExitStack
) -> tuple[LogStore, StoreEvents, TopicLookup, Reconfiguration]:
    """The last part of `bind`; the directories are this node's."""
    from odradek.server.background.disks import StoreEvents

    live = live_config(node.config)
    topics = TopicLookup(live)
    events = StoreEvents(node.now_ms)
    store = _new_store(node, topics, events)
    _lock(store)
    ending.callback(lambda: store.close(node.now_ms()))
    return store, events, topics, Reconfiguration(live)


def _claim_directories(node: Node) -> Identity:
    from odradek.config.config_error import ConfigError
    from odradek.server.metadata.log_directories import refuse_misplaced
    from odradek.server.metadata.meta_properties import METADATA_LOG, claim_directories, is_ours

    config = node.config
    refuse_misplaced(config.data_directories, config.metadata_directory)
    if not is_ours(config.metadata_directory):
        from odradek.server.metadata.metadata_log_opening import refuse_other_voters
        from odradek.storage.disk import OsDisk

        refuse_other_voters(OsDisk(), f"{config.metadata_directory}/{METADATA_LOG}", config.node_id)
    identity = claim_directories(
        config.data_directories,
        node_id=config.node_id,
        cluster_id=config.cluster_id,
        new_cluster_id=None if node.zookeeper is None else node.zookeeper.cluster_id,
        metadata_directory=config.metadata_directory,
    )
    for path, failure in identity.failures.items():
        if path == config.metadata_directory:
            raise ConfigError(f"{failure} The metadata of the cluster is there, so it cannot be left out.")
        logger.error("the data directory %s is left out, its partitions are offline: %s", path, failure)
    return identity


def _new_store(node: Node, topics: TopicLookup, events: StoreEvents) -> LogStore:
    from odradek.storage.directories.store import LogStore
    from odradek.storage.disk import OsDisk

    config = node.config
    return LogStore(
        node.disk or OsDisk(),
        config.data_directories,
        config_for=topics.config_of,
        topic_id_for=topics.id_of,
        leader_epoch_for=topics.leader_epoch_of,
        replicated_for=topics.is_replicated,
        listener=events,
        checkpoint_interval_ms=config.values["log.flush.offset.checkpoint.interval.ms"],
        start_checkpoint_interval_ms=config.values["log.flush.start.offset.checkpoint.interval.ms"],
        producer_expiration_ms=config.values["producer.id.expiration.ms"],
        retention_interval_ms=config.values["log.retention.check.interval.ms"],
        open_files_max=_open_files_max(),
        new_lock=threading.Lock,
    )


def _lock(store: LogStore) -> None:
    """Runs before the metadata are read: fresh writes of another broker look like the rest of a crash."""
    from odradek.config.config_error import ConfigError
    from odradek.storage.directories.opening import DirectoryInUse

    try:
        store.lock()
    except DirectoryInUse as error:
        raise ConfigError(f"log.dirs: {error} Stop it, or name another directory.") from error


def _open_files_max() -> int:
    """How many segments may be open at once: half of what the process may open, the rest is for clients."""
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return OPEN_SEGMENTS_MAX
    return max(min(allowed // 2, OPEN_SEGMENTS_MAX), 16)
