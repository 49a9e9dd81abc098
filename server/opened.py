"""The second phase of a broker: metadata and logs are recovered and agree with each other.

A start does what the first request needs and no more: the files of a partition are opened at its first use,
unless the last stop was not a clean one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.config.options import GROUP_OPTIONS
from odradek.server.reconfiguration import configs_of, log_without_effect
from odradek.server.schedule import Schedule
from odradek.server.topic_logs import TopicLogs
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView
    from odradek.server.bound import Bound, Node
    from odradek.server.metadata_store import SqliteMetadataStore
    from odradek.server.ports import Ports
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore

logger = logging.getLogger("odradek.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """See the module. From here on topics can be made and deleted, and records appended."""

    bound: Bound
    schedule: Schedule
    machine: ClusterMachine
    topic_logs: TopicLogs


def open_data(bound: Bound, ending: AsyncExitStack) -> Opened:
    """`ending` gets what undoes it. Raises ConfigError with one sentence for people."""
    node, store = bound.node, bound.store
    machine = _load_metadata(bound, ending)
    schedule = Schedule(asyncio.get_running_loop())
    ending.callback(schedule.close)
    schedule.turn.flushes.use(store.flush_journals)
    topic_logs = _follow_metadata(bound, machine)
    _open_logs(store, node.now_ms())
    _finalize_features(bound, machine)
    topic_logs.finish_deletions()
    topic_logs.make_missing()
    topic_logs.note_directories(bound.identity.directory_ids, bound.identity.failures)
    topic_logs.report_offline()
    opened = Opened(bound=bound, schedule=schedule, machine=machine, topic_logs=topic_logs)
    _follow_changes(opened)
    return opened


# Metadata


def _load_metadata(bound: Bound, ending: AsyncExitStack) -> ClusterMachine:
    """Damaged metadata are repaired: see `metadata_repair`."""
    from odradek.server.metadata_store import FILE_NAME, DamagedMetadata, SqliteMetadataStore

    path = os.path.join(bound.node.config.data_directories[0], FILE_NAME)
    try:
        metadata = SqliteMetadataStore(path)
        machine = _load(bound, metadata)
    except (DamagedMetadata, AssertionError, LookupError, ValueError) as error:
        # The latter: rows that are sound, of which others are missing.
        logger.error("the metadata of the cluster are damaged and are repaired now: %s", error)
        metadata = _repair_metadata(bound.node, path)
        machine = _load(bound, metadata)
    ending.callback(metadata.close)
    bound.topics.current_view = lambda: machine.view
    return machine


def _repair_metadata(node: Node, path: str) -> SqliteMetadataStore:
    from odradek.server.metadata_repair import repair
    from odradek.storage.disk import OsDisk

    return repair(
        path,
        OsDisk(),
        node.config.data_directories,
        node_id=node.id,
        now_ms=node.now_ms(),
        tell=logger.error,
    )


def _load(bound: Bound, metadata: SqliteMetadataStore) -> ClusterMachine:
    """Closes `metadata` when they cannot be loaded."""
    try:
        machine = _new_machine(bound, metadata)
        machine.load()
    except BaseException:
        metadata.close()
        raise
    return machine


def _new_machine(bound: Bound, metadata: SqliteMetadataStore) -> ClusterMachine:
    from odradek.coordinator.cluster.machine import ClusterMachine, TopicDefaults

    config, live = bound.node.config, bound.reconfiguration.live
    return ClusterMachine(
        metadata,
        cluster_id=bound.identity.cluster_id,
        new_topic_id=_new_topic_id,
        defaults=TopicDefaults(
            config.num_partitions, config.default_replication_factor, config.min_insync_replicas
        ),
        check_topic_configs=live.check_topic,
        check_broker_configs=live.check_broker,
        check_group_configs=live.check_group,
    )


def _follow_metadata(bound: Bound, machine: ClusterMachine) -> TopicLogs:
    """Makes the store work by the metadata, and the machine decide about the logs of the store."""
    from odradek.server.feature_levels import check_levels
    from odradek.server.log_directories import absent_directories

    node, store, identity = bound.node, bound.store, bound.identity
    check_levels(node.config, machine.view)
    topic_logs = TopicLogs(
        node.id,
        store,
        machine,
        bound.reconfiguration.live,
        node.now_ms,
        absent_directories(machine.log_directories.of(node.id), identity.directory_ids, identity.failures),
        node.after_loading,
    )
    machine.logs = topic_logs
    bound.reconfiguration.follow(machine.view)
    bound.reconfiguration.register(lambda live: _configure_store(store, live))
    topic_options = bound.reconfiguration.live.topic_options
    log_without_effect("topic", configs_of(machine.view.topics.values()), topic_options)
    log_without_effect("group", machine.view.group_configs, GROUP_OPTIONS)
    _register_broker(node, bound.ports, machine)
    return topic_logs


def _configure_store(store: LogStore, live: LiveConfig[LogConfig]) -> None:
    store.places.producer_expiration_ms = live["producer.id.expiration.ms"]
    store.creating.cordon(live.cordoned_directories)
    store.relocation.allowance.change(live["replica.alter.log.dirs.io.max.bytes.per.second"])


def _register_broker(node: Node, ports: Ports, machine: ClusterMachine) -> None:
    from odradek.coordinator.cluster.view import Broker, Endpoint

    endpoints = {}
    for listener in ports.listeners:
        host, port = listener.advertised or ("", listener.port)
        endpoints[listener.name] = Endpoint(host, port)
    machine.register_broker(Broker(node.id, endpoints, node.config.broker_rack), is_controller=True)


def _finalize_features(bound: Bound, machine: ClusterMachine) -> None:
    """A cluster without feature levels begins with the configured levels, else with the newest."""
    from odradek.coordinator.cluster.features import first_levels, missing_levels

    levels: Mapping[str, int] | None = bound.node.config.first_levels
    if machine.view.features_epoch > 0:
        levels = missing_levels(machine.view.features)
    elif levels is None:
        levels = first_levels()
    if not levels:
        return
    try:
        machine.set_features(levels)
    except KafkaError as error:
        logger.error("the cluster has no feature levels until the next start: %s", error)
    # Some levels come with settings.
    bound.reconfiguration.follow(machine.view)


def _follow_changes(opened: Opened) -> None:
    loop, topic_logs = opened.schedule.loop, opened.topic_logs

    def report_offline(view: ClusterView, change: ClusterChange) -> None:
        if (change.created or change.deleted) and topic_logs.may_be_offline:
            # The new view was made without knowing what has gone offline since.
            loop.call_soon(topic_logs.report_offline)

    opened.machine.subscribe(opened.bound.reconfiguration.view_changed)
    opened.machine.subscribe(report_offline)


# Logs


def _open_logs(store: LogStore, now_ms: int) -> None:
    from odradek.config.broker_config import ConfigError

    try:
        cut_bytes = store.open(now_ms)
    except OSError as error:
        raise ConfigError(
            f"log.dirs: {error.filename or 'the data directories'} cannot be used: {error.strerror or error}."
        ) from error
    except KafkaError as error:
        raise ConfigError(f"log.dirs: the data directories cannot be used: {error}") from error
    for (topic, index), size_bytes in cut_bytes.items():
        logger.warning("%s-%d: cut %d bytes after the last sound batch", topic, index, size_bytes)
    if store.opening.restored_bytes:
        logger.info("restored %d bytes that only the flush journal had", store.opening.restored_bytes)


def _new_topic_id() -> bytes:
    """A random id whose text no command line takes for an option, as Kafka's Uuid.randomUuid."""
    from odradek.wire.schema import uuid_to_text

    while uuid_to_text(topic_id := _random_uuid()).startswith("-"):
        pass
    return topic_id


def _random_uuid() -> bytes:
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)
