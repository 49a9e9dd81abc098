"""The parts of a controller that its handlers use, and the class of their declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from odradek.apis.declaration import Declaration
from odradek.apis.node import DecidingParts, HandlerParts, MetadataLogState

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.apis.controller.endpoint import ControllerEndpoint
    from odradek.apis.declaration import Served
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.controller.batch import PartitionDefaults
    from odradek.coordinator.controller.broker_sessions import BrokerSessions
    from odradek.coordinator.controller.log import EpochEnd, SnapshotId
    from odradek.coordinator.controller.machine import Controller
    from odradek.coordinator.controller.observers import Observers
    from odradek.wire.schema import Records


class ReadableLog(MetadataLogState, Protocol):
    """The metadata log, for those who follow it."""

    @property
    def start_offset(self) -> int:
        """Offset of the first record that is there."""

    def read(self, offset: int, max_bytes: int) -> Records:
        """Whole batches from the one with this offset on, the first one in any case; b"" at the end.
        KafkaError: they cannot be read."""

    def diverging_epoch(self, offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """The end of the epoch up to which a fetcher's log is as this one, if it is not up to `offset`."""

    def snapshot_for(self, offset: int, last_fetched_epoch: int) -> SnapshotId | None:
        """The snapshot that a fetcher at `offset` needs, since the log does not go back so far."""

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Size of a snapshot, and bytes of it from a position on.
        KafkaError: SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, KAFKA_STORAGE_ERROR."""

    def watch(self, appended: Callable[[], None]) -> None:
        """Calls it once, after the next append."""

    def unwatch(self, appended: Callable[[], None]) -> None:
        """No error if it does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts(DecidingParts):
    """One controller, as far as its handlers need it."""

    plane: Controller
    log: ReadableLog
    sessions: BrokerSessions
    observers: Observers
    defaults: PartitionDefaults
    endpoints: tuple[ControllerEndpoint, ...]
    """In the order of `controller.listener.names`."""
    served: Callable[[], Mapping[int, Served]]
    """The APIs of this controller, for what is in an Envelope."""
    sessions_changed: Callable[[], None]
    """Called when a session may end at another time than before."""
    heard: Callable[[int, int, ConnectionInfo], None]
    """Called with a broker, its epoch, and the connection at which its heartbeat came."""

    def endpoint_for(self, connection: ConnectionInfo) -> ControllerEndpoint:
        """The endpoint at which that client reaches this controller: the one of its listener."""
        name = connection.listener_name
        return next((one for one in self.endpoints if one.listener == name), self.endpoints[0])

    @property
    def machine(self) -> Controller:
        return self.plane

    @property
    def is_controller(self) -> bool:
        return True

    @property
    def current_view(self) -> Callable[[], ClusterView]:
        """Returns the newest view of the cluster."""
        return lambda: self.plane.view


ControllerApiParts = HandlerParts[ControllerParts]


class ControllerApi(Declaration[ControllerParts]):
    """An API that controllers serve; brokers do not, or in another way."""

    __slots__ = ()
