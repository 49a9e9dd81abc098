"""The parts of a controller that its handlers use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from odradek.apis.node import DecidingParts

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.apis.declaration import Served
    from odradek.apis.node import ApiParts
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.controller.batch import PartitionDefaults
    from odradek.coordinator.controller.broker_sessions import BrokerSessions
    from odradek.coordinator.controller.machine import Controller
    from odradek.coordinator.controller.observers import Observers


class SnapshotName(NamedTuple):
    """Name of a snapshot of the metadata log."""

    end_offset: int
    """Offset after the last record that it sums up."""
    epoch: int


class EndOfEpoch(NamedTuple):
    """Where the records of an epoch end."""

    epoch: int
    end_offset: int


class ReadableLog(Protocol):
    """The metadata log, for those who follow it."""

    @property
    def start_offset(self) -> int:
        """Offset of the first record that is there."""

    @property
    def end_offset(self) -> int:
        """Offset of the next record, and the high watermark."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of this controller's leadership."""

    @property
    def directory_id(self) -> bytes:
        """Id of the directory of the log."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one with this offset on, the first one in any case; b"" at the end."""

    def end_of_epoch(self, epoch: int) -> EndOfEpoch:
        """The last epoch up to this one that the log has, and its end."""

    def newest_snapshot(self) -> SnapshotName | None: ...

    def snapshot_size(self, snapshot: SnapshotName) -> int | None:
        """In bytes; None: there is no such snapshot."""

    def read_snapshot(self, snapshot: SnapshotName, position: int, max_bytes: int) -> bytes: ...

    def watch(self, appended: Callable[[], None]) -> None:
        """Calls it once, after the next append."""

    def unwatch(self, appended: Callable[[], None]) -> None:
        """No error if it does not wait."""


class ControllerEndpoint(NamedTuple):
    """Where others reach this controller."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerParts(DecidingParts):
    """One controller, as far as its handlers need it."""

    controller: Controller
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

    @property
    def machine(self) -> Controller:
        return self.controller

    @property
    def current_view(self) -> Callable[[], ClusterView]:
        """Returns the newest view of the cluster."""
        return lambda: self.controller.view


def of_controller(parts: ApiParts) -> ControllerParts:
    """The parts of the node, which is a controller."""
    return cast(ControllerParts, parts.node)
