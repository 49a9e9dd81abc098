"""The metadata log of a node that decides: opened, mended or repaired, begun for a new cluster, and loaded.

A new log has the feature levels of the options, or the records of `kafka-storage format`. One that is damaged
beyond mending is repaired (`server/metadata/metadata_log_repair.py`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.coordinator.cluster.changes import TopicDefaults
from odradek.coordinator.cluster.features import METADATA_VERSION, levels_of
from odradek.coordinator.cluster.image_topics import InconsistentMetadata
from odradek.coordinator.controller.bootstrap import Beginning, beginning, first_records
from odradek.coordinator.controller.machine import Controller
from odradek.server.metadata.feature_levels import refuse_levels
from odradek.server.metadata.meta_properties import METADATA_LOG, OLD_STORE, new_id
from odradek.server.metadata.metadata_log import (
    DiskMetadataLog,
    MetadataLogSettings,
    ThisVoter,
)
from odradek.server.metadata.metadata_log_opening import DamagedMetadataLog, finish_repair
from odradek.storage.disk import OsDisk
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import AbortTransactionRecord, FeatureLevelRecord, MetadataRecord
from odradek.wire.schema import uuid_from_text

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.live import LiveConfig
    from odradek.coordinator.controller.batch import PartitionDefaults
    from odradek.coordinator.controller.log import MetadataLog
    from odradek.server.metadata.meta_properties import Identity
    from odradek.storage.config import LogConfig
    from odradek.storage.disk import Disk

logger = logging.getLogger("odradek.controller")

C = TypeVar("C", bound=Controller)


def _ignore(reason: str) -> None:
    """The next append says it."""


def open_own_log(
    config: BrokerConfig,
    identity: Identity,
    directories: Sequence[str],
    metadata_directory: str,
    *,
    now_ms: Callable[[], int],
    on_failure: Callable[[str], object] = _ignore,
    repairs: bool = True,
    endpoints: Sequence[tuple[str, str, int]] = (),
) -> DiskMetadataLog:
    """The log of a node alone, in its `metadata_directory`; the rows of an earlier version become one first.
    `directories` have its partitions, `endpoints` are those at which it is a controller. The rest is as in
    `open_metadata_log`.
    """
    ids = {path: uuid_from_text(text) for path, text in identity.directory_ids.items()}
    voter = ThisVoter(identity.node_id, ids[metadata_directory], endpoints)
    old_store = f"{directories[0]}/{OLD_STORE}"
    if os.path.exists(old_store):
        from odradek.server.metadata.migration import Node, migrate

        usable = {path: ids[path] for path in directories if path in ids}
        migrate(OsDisk(), old_store, Node(voter, usable, metadata_directory), now_ms=now_ms)
    return open_metadata_log(
        config,
        metadata_directory,
        voter,
        log_directories=directories,
        now_ms=now_ms,
        on_failure=on_failure,
        repairs=repairs,
    )


def open_metadata_log(
    config: BrokerConfig,
    directory: str,
    voter: ThisVoter,
    *,
    log_directories: Sequence[str],
    now_ms: Callable[[], int],
    on_failure: Callable[[str], object],
    repairs: bool = True,
    disk: Disk | None = None,
) -> DiskMetadataLog:
    """The log in `directory`, which is locked; it has a metadata.version. A repair looks for topics in
    `log_directories`. `on_failure` is that of `DiskMetadataLog`; `disk` that of the directory, if another one
    than the system's.

    ConfigError: one sentence for people; `DamagedMetadataLog`, where it is not to be repaired.
    """
    disk, path = disk or OsDisk(), f"{directory}/{METADATA_LOG}"

    def opened() -> DiskMetadataLog:
        settings = _settings_of(config)
        return DiskMetadataLog(disk, path, voter, now_ms=now_ms, settings=settings, on_failure=on_failure)

    try:
        finish_repair(disk, path, logger.error)
    except OSError as error:
        raise ConfigError(f"{path} cannot be opened: {reason_of(error)}.") from error
    try:
        log = opened()
    except DamagedMetadataLog as error:
        if not repairs:
            raise
        from odradek.server.metadata.metadata_log_repair import repair

        logger.error("%s", error)
        repair(
            disk,
            path,
            log_directories,
            voter,
            now_ms=now_ms(),
            tell=logger.error,
            is_guarded=bool(config.values["authorizer.class.name"]) or bool(config.security),
        )
        log = opened()
    try:
        _begin(log, config, directory)
    except BaseException:
        close_metadata_log(log)
        raise
    return log


def close_metadata_log(log: DiskMetadataLog) -> None:
    """An error of the disk is logged."""
    try:
        log.close()
    except KafkaError as error:
        logger.error("the metadata log could not be closed: %s", error)


def loaded_controller(
    kind: type[C], config: BrokerConfig, log: MetadataLog, cluster_id: str, live: LiveConfig[LogConfig]
) -> C:
    """A controller over the log, with the view that the log makes. ConfigError: the log makes none."""
    values = config.values
    controller = kind(
        log,
        node_id=config.node_id,
        cluster_id=cluster_id,
        new_id=lambda: uuid_from_text(new_id(os.urandom)),
        defaults=TopicDefaults(
            values["num.partitions"], values["default.replication.factor"], values["min.insync.replicas"]
        ),
        check_topic_configs=live.check_topic,
        check_broker_configs=live.check_broker,
        check_group_configs=live.check_group,
    )
    try:
        controller.load()
    except (InconsistentMetadata, KafkaError) as error:
        raise ConfigError(f"The metadata log cannot be used: {error}.") from error
    return controller


def partition_defaults(config: BrokerConfig) -> PartitionDefaults:
    from odradek.coordinator.controller.batch import PartitionDefaults

    values = config.values
    return PartitionDefaults(
        node_id=config.node_id,
        min_insync_replicas=values["min.insync.replicas"],
        unclean_leader_election=values["unclean.leader.election.enable"],
    )


def _settings_of(config: BrokerConfig) -> MetadataLogSettings:
    values = config.values
    return MetadataLogSettings(
        segment_bytes=values["metadata.log.segment.bytes"],
        segment_ms=values["metadata.log.segment.ms"],
        bytes_between_snapshots_max=values["metadata.log.max.record.bytes.between.snapshots"],
        snapshot_interval_ms_max=values["metadata.log.max.snapshot.interval.ms"],
        retention_bytes=values["metadata.max.retention.bytes"],
        retention_ms=values["metadata.max.retention.ms"],
    )


def _begin(log: DiskMetadataLog, config: BrokerConfig, directory: str) -> None:
    # A snapshot has a level; to look for it would read all of it.
    found = Beginning(True, False) if log.has_state_snapshot else beginning(log.batches())
    if found.has_level:
        refuse_levels(config, directory)
    else:
        _bootstrap(log, config, directory, found)


def _bootstrap(log: DiskMetadataLog, config: BrokerConfig, directory: str, found: Beginning) -> None:
    """Write the first records of a cluster. ConfigError: they cannot be written."""
    records: Sequence[MetadataRecord] = log.bootstrap_records()
    if records:
        refuse_levels(config, directory)
    else:
        levels = levels_of(config.emulated) if config.first_levels is None else config.first_levels
        records = first_records(levels, config.values["min.insync.replicas"])
    level = next(
        one.feature_level
        for one in records
        if isinstance(one, FeatureLevelRecord) and one.name == METADATA_VERSION
    )
    try:
        if found.is_in_transaction:
            log.append([AbortTransactionRecord(reason="Controller failover")], level)
        log.append(records, level)
    except KafkaError as error:
        raise ConfigError(f"{log.directory} cannot be written: {error.message}") from error
