"""A node with `process.roles=controller`: claims its directories, opens the metadata log, serves, stops."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.server.controlling.serving import endpoints_of, serve_controller
from odradek.server.controlling.snapshots import Snapshots
from odradek.server.metadata.log_directories import lock_metadata
from odradek.server.metadata.member_directories import claim_member_directories
from odradek.server.metadata.meta_properties import new_id
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.server.metadata.metadata_log_start import open_metadata_log
from odradek.server.network._clock import Clock
from odradek.server.network.ports import bind_ports
from odradek.server.node import Node, do_nothing
from odradek.wire.errors import KafkaError
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

    controller_addresses: Sequence[tuple[str, str, int]] = ()
    metrics_port = 0
    console_url = ""
    test_api_ports: Sequence[int] = ()

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        owns_process: bool = False,
        on_end: Callable[[], object] = do_nothing,
        sockets: Mapping[str, Sequence[socket.socket]] = MappingProxyType({}),
        disk: Disk | None = None,
    ) -> None:
        """`on_end` is called when the metadata log cannot be written any more; for the others see
        `BrokerServer`."""
        assert config.controller is not None
        self.config = config
        self._directory = config.metadata_directory
        self._node = Node(
            config=config,
            clock=clock or Clock(),
            owns_process=owns_process,
            on_end=on_end,
            sockets=sockets,
            disk=disk,
        )
        self._ending = AsyncExitStack()

    async def start(self) -> None:
        """Returns when every listener answers. Raises ConfigError with one sentence for people; a start that
        fails leaves nothing behind."""
        async with AsyncExitStack() as ending:
            ports = bind_ports(self._node.config, self._node.sockets, ending)
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

    def hurry(self) -> None:
        """Its stop waits for nobody."""

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
        lock_metadata(self._directory, ending, self._node.disk)
        return claimed.settle(claimed.cluster_id or new_id(os.urandom))

    def _opened_log(self, ports: Ports, ending: AsyncExitStack) -> DiskMetadataLog:
        directory_id = uuid_from_text(self.identity.directory_ids[self._directory])
        log = open_metadata_log(
            self.config,
            self._directory,
            ThisVoter(self.node_id, directory_id, endpoints_of(ports)),
            log_directories=(),
            now_ms=self._node.now_ms,
            on_failure=self._failed,
            disk=self._node.disk,
        )
        ending.callback(self._close, log)
        return log

    def _failed(self, reason: str) -> None:
        logger.critical("stopping, since the metadata log cannot be written any more: %s", reason)
        self._node.on_end()

    def _close(self, log: DiskMetadataLog) -> None:
        try:
            log.close()
            logger.info("stopped cleanly")
        except KafkaError as error:
            logger.error("stopped; %s", error)
