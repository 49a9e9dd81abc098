"""A node with `process.roles=controller`: claims its directories, opens the metadata log, serves, and stops.

A new directory becomes that of a cluster: with the feature levels of the options, or with the records of
`kafka-storage format`. A log that is damaged beyond mending is repaired (`metadata_log_repair.py`).
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.features import METADATA_VERSION, first_levels
from odradek.coordinator.controller.bootstrap import Beginning, beginning, first_records
from odradek.server.cluster.member_directories import claim_member_directories
from odradek.server.controlling.serving import endpoints_of, serve_controller
from odradek.server.controlling.snapshots import Snapshots
from odradek.server.metadata.feature_levels import refuse_levels
from odradek.server.metadata.meta_properties import new_id
from odradek.server.metadata.metadata_log import (
    DIRECTORY,
    DiskMetadataLog,
    MetadataLogSettings,
    ThisVoter,
)
from odradek.server.metadata.metadata_log_opening import DamagedMetadataLog
from odradek.server.metadata.metadata_log_repair import finish_repair, repair
from odradek.server.network.timers import wall_clock_ms
from odradek.server.phase_bind import Node, bind_ports, do_nothing
from odradek.storage.checkpoints import LOCK
from odradek.storage.disk import OsDisk
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import AbortTransactionRecord, FeatureLevelRecord, MetadataRecord
from odradek.wire.schema import uuid_from_text

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.server.metadata.meta_properties import Identity
    from odradek.server.network.listeners import Listener
    from odradek.server.network.ports import Ports
    from odradek.storage.disk import Disk

logger = logging.getLogger("odradek.controller")


class ControllerServer:
    """One controller. `start` and `stop` run on the event loop; between them all other attributes can be
    used."""

    metrics_port = 0

    def __init__(
        self,
        config: BrokerConfig,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        owns_process: bool = False,
        on_end: Callable[[], object] = do_nothing,
        sockets: Mapping[str, Sequence[socket.socket]] = MappingProxyType({}),
        disk: Disk | None = None,
    ) -> None:
        """`on_end` is called when the metadata log cannot be written any more; for the others see
        `BrokerServer`."""
        assert config.controller is not None
        self.config = config
        self._directory = config.controller.log_directory
        self._node = Node(
            config=config, now_ms=now_ms, owns_process=owns_process, on_end=on_end, sockets=sockets, disk=disk
        )
        self._disk = disk or OsDisk()
        self._ending = AsyncExitStack()

    async def start(self) -> None:
        """Returns when every listener answers. Raises ConfigError with one sentence for people; a start that
        fails leaves nothing behind."""
        async with AsyncExitStack() as ending:
            ports = bind_ports(self._node, ending)
            self.identity = self._claim(ending)
            self.log = self._opened_log(ports, ending)
            self.controlling = serve_controller(self._node, ports, self.log, self.identity.cluster_id, ending)
            snapshots = Snapshots(
                self.log, self.controlling.controller, self.controlling.schedule, self._node.now_ms
            )
            snapshots.start()
            # After the works of the queues have ended, and before the log is closed.
            ending.callback(snapshots.stop)
            self._ending = ending.pop_all()

    def broker_has_died(self, broker_id: int) -> None:
        """The process of a broker has ended, as its parent knows: it is fenced at once."""
        self.controlling.watching.died(broker_id)

    def no_broker_lives(self) -> None:
        """No process of a broker of this cluster is left: all are fenced at once."""
        for broker_id in self.controlling.controller.view.registrations:
            self.broker_has_died(broker_id)

    async def brokers_have_left(self) -> None:
        """Returns when no broker is connected any more."""
        await self.controlling.watching.brokers_have_left()

    async def stop(self) -> None:
        """Stops cleanly; harmless a second time, and after a start that failed."""
        await self._ending.pop_all().aclose()

    # Attributes of a serving controller

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def cluster_id(self) -> str:
        return self.identity.cluster_id

    @property
    def data_directories(self) -> tuple[str, ...]:
        return (self._directory,)

    @property
    def listeners(self) -> list[Listener]:
        """With their real ports."""
        return self.controlling.ports.listeners

    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        """Name, host and real port of every listener."""
        return [(listener.name, listener.host, listener.port) for listener in self.listeners]

    # Starting

    def _claim(self, ending: AsyncExitStack) -> Identity:
        claimed = claim_member_directories(
            dict.fromkeys((*self.config.data_directories, self._directory)),
            node_id=self.node_id,
            cluster_id=self.config.cluster_id,
        )
        failure = claimed.failures.get(self._directory)
        if failure is not None:
            raise ConfigError(f"{failure} The metadata of the cluster are there.")
        try:
            ending.callback(self._disk.lock(f"{self._directory}/{LOCK}").release)
        except BlockingIOError:
            raise ConfigError(
                f"metadata.log.dir: The directory {self._directory} is in use by another node. Stop it, or "
                "name another directory."
            ) from None
        return claimed.settle(claimed.cluster_id or new_id(os.urandom))

    def _opened_log(self, ports: Ports, ending: AsyncExitStack) -> DiskMetadataLog:
        disk, path = self._disk, f"{self._directory}/{DIRECTORY}"
        directory_id = uuid_from_text(self.identity.directory_ids[self._directory])
        voter = ThisVoter(self.node_id, directory_id, endpoints_of(ports))
        try:
            finish_repair(disk, path, logger.error)
        except OSError as error:
            raise ConfigError(f"{path} cannot be opened: {error.strerror or error}.") from error
        try:
            log = self._new_log(disk, path, voter)
        except DamagedMetadataLog as error:
            logger.error("%s", error)
            values = self.config.values
            repair(
                disk,
                path,
                (),
                voter,
                now_ms=self._node.now_ms(),
                tell=logger.error,
                is_guarded=bool(values["authorizer.class.name"]) or bool(self.config.security),
            )
            log = self._new_log(disk, path, voter)
        ending.callback(self._close, log)
        found = beginning(log.batches())
        if found.has_level:
            refuse_levels(self.config, self._directory)
        else:
            self._bootstrap(log, found)
        return log

    def _new_log(self, disk: Disk, path: str, voter: ThisVoter) -> DiskMetadataLog:
        values = self.config.values
        settings = MetadataLogSettings(
            segment_bytes=values["metadata.log.segment.bytes"],
            segment_ms=values["metadata.log.segment.ms"],
            bytes_between_snapshots_max=values["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_interval_ms_max=values["metadata.log.max.snapshot.interval.ms"],
            retention_bytes=values["metadata.max.retention.bytes"],
            retention_ms=values["metadata.max.retention.ms"],
        )
        return DiskMetadataLog(
            disk, path, voter, now_ms=self._node.now_ms, settings=settings, on_failure=self._failed
        )

    def _failed(self, reason: str) -> None:
        logger.critical("stopping, since the metadata log cannot be written any more: %s", reason)
        self._node.on_end()

    def _close(self, log: DiskMetadataLog) -> None:
        try:
            log.close()
            logger.info("stopped cleanly")
        except KafkaError as error:
            logger.error("stopped; %s", error)

    def _bootstrap(self, log: DiskMetadataLog, found: Beginning) -> None:
        """Write the first records of a cluster. ConfigError: they cannot be written."""
        records: Sequence[MetadataRecord] = log.bootstrap_records()
        if records:
            refuse_levels(self.config, self._directory)
        else:
            levels = first_levels() if self.config.first_levels is None else self.config.first_levels
            records = first_records(levels, self.config.values["min.insync.replicas"])
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
