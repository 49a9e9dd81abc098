"""The broker as the test kit sees it; `server.broker.BrokerServer` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from typing import Any

    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.background.schedule import Schedule
    from odradek.server.background.upkeep import Compaction
    from odradek.server.coordination.coordinators import Coordinators
    from odradek.server.network._clock import Clock
    from odradek.server.network.connections import Connections
    from odradek.server.network.listeners import Listener
    from odradek.storage.directories.store import LogStore
    from odradek.wire.schema import Message


class Tested(Protocol):
    """A broker that serves."""

    config: BrokerConfig

    @property
    def listeners(self) -> list[Listener]: ...
    @property
    def store(self) -> LogStore: ...
    @property
    def cluster_view(self) -> ClusterView: ...
    @property
    def coordinators(self) -> Coordinators: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def compaction(self) -> Compaction | None: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def connections(self) -> Connections: ...

    @property
    def ask_controllers(self) -> Callable[[Message], Future[Any]] | None: ...
    @property
    def node_id(self) -> int: ...

    async def serve_other_data(self, exchange: Callable[[], object]) -> None:
        """See `BrokerServer.serve_other_data`."""
