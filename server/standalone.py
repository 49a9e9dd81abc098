"""A node alone decides for its cluster: its metadata are in a file of the first data directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.config.listeners import OLDEST
from odradek.server.controller import Deciding
from odradek.server.node_parts import add_first_users
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.server.metadata.metadata_store import SqliteMetadataStore
    from odradek.server.network.ports import Ports
    from odradek.server.phase_bind import Bound, Node

logger = logging.getLogger("odradek.broker")


def decide_alone(bound: Bound, ending: AsyncExitStack) -> Deciding:
    """`ending` gets what undoes it. Raises ConfigError with one sentence for people."""
    from odradek.server.metadata.feature_levels import check_levels

    machine = _load_metadata(bound, ending)
    check_levels(bound.node.config, machine.view)
    _register_broker(bound.node, bound.ports, machine)

    def when_open() -> None:
        _finalize_features(bound, machine)
        add_first_users(bound.node.config, machine)

    return Deciding(
        plane=machine,
        allocate_producer_ids=machine.allocate_producer_ids,
        when_open=when_open,
    )


def _load_metadata(bound: Bound, ending: AsyncExitStack) -> ClusterMachine:
    """Damaged metadata are repaired: see `metadata_repair`."""
    from odradek.server.metadata.metadata_store import FILE_NAME, DamagedMetadata, SqliteMetadataStore

    path = os.path.join(bound.node.config.data_directories[0], FILE_NAME)
    try:
        metadata = SqliteMetadataStore(path)
        machine = _load(bound, metadata)
    except (DamagedMetadata, AssertionError, LookupError, ValueError) as error:
        # The latter: rows that are sound, of which others are missing.
        logger.error("the metadata of the cluster are damaged and are repaired now: %s", error)
        metadata = _repair_metadata(bound.node, path)
        try:
            machine = _load(bound, metadata)
        except ValueError as error:
            raise ConfigError(f"{path} cannot be used: {error}.") from None
    ending.callback(metadata.close)
    return machine


def _repair_metadata(node: Node, path: str) -> SqliteMetadataStore:
    from odradek.server.metadata.metadata_repair import repair
    from odradek.storage.disk import OsDisk

    return repair(
        path,
        OsDisk(),
        node.config.data_directories,
        node_id=node.id,
        now_ms=node.now_ms(),
        tell=logger.error,
        is_guarded=bool(node.config.values["authorizer.class.name"]) or bool(node.config.security),
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
    from odradek.coordinator.cluster.changes import TopicDefaults
    from odradek.coordinator.cluster.machine import ClusterMachine

    config, live = bound.node.config, bound.reconfiguration.live
    return ClusterMachine(
        metadata,
        cluster_id=bound.identity.cluster_id,
        new_topic_id=_new_topic_id,
        defaults=TopicDefaults(
            config.values["num.partitions"],
            config.values["default.replication.factor"],
            config.values["min.insync.replicas"],
        ),
        check_topic_configs=live.check_topic,
        check_broker_configs=live.check_broker,
        check_group_configs=live.check_group,
    )


def _register_broker(node: Node, ports: Ports, machine: ClusterMachine) -> None:
    from odradek.coordinator.cluster.view import Broker, Endpoint

    endpoints = {}
    oldest = {one.name for one in node.config.listeners if one.protocol in OLDEST}
    for listener in ports.listeners:
        if listener.name in oldest:
            continue
        host, port = listener.advertised or ("", listener.port)
        endpoints[listener.name] = Endpoint(host, port)
    machine.register_broker(Broker(node.id, endpoints, node.config.values["broker.rack"]), is_controller=True)


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
