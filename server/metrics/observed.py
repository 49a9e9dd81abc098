"""The broker as metrics and its web console see it; `server.broker.BrokerServer` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.client_metrics.clients import ClientMetrics
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.background.schedule import Schedule
    from odradek.server.cluster.replication import Replication
    from odradek.server.coordination.coordinators import Coordinators
    from odradek.server.network._clock import Clock
    from odradek.server.network.connections import Connections
    from odradek.server.network.listeners import Listener
    from odradek.storage.directories.store import LogStore


class Observed(Protocol):
    """A broker that serves."""

    config: BrokerConfig

    @property
    def node_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def listeners(self) -> list[Listener]: ...
    @property
    def addresses(self) -> list[tuple[str, str, int]]:
        """Name, host and real port of every listener."""

    @property
    def store(self) -> LogStore: ...
    @property
    def cluster_view(self) -> ClusterView: ...
    @property
    def coordinators(self) -> Coordinators: ...
    @property
    def client_metrics(self) -> ClientMetrics: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def replication(self) -> Replication | None:
        """None of a node alone."""

    @property
    def connections(self) -> Connections: ...


class Hosted(Observed, Protocol):
    """A broker with a web console (`server/web_console`)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def is_serving(self) -> bool:
        """False while its data are exchanged, and after its end."""
