"""Parts that decide for the cluster of this node, as its phases hand them on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.server.node import do_nothing

if TYPE_CHECKING:
    from concurrent.futures import Future
    from contextlib import AsyncExitStack

    from odradek.apis.access import Authorizer
    from odradek.apis.controller.endpoint import ControllerEndpoint
    from odradek.apis.node import ApiSettings, ControllerVersions, Forward, MetadataLogState
    from odradek.coordinator.cluster.control_plane import ControlPlane
    from odradek.server.background.schedule import Schedule
    from odradek.server.cluster.replica_homes import ReplicaHomes
    from odradek.server.network.connections import Connections
    from odradek.wire.schema import Message

    ServeControllers = Callable[[Schedule, Authorizer, ApiSettings, AsyncExitStack], Connections]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Deciding:
    """Made by `server/standalone.py` or by `server/cluster/member.py`; its plane has a view of the
    cluster."""

    plane: ControlPlane
    allocate_producer_ids: Callable[[], range]
    """A block of ids that nobody gets twice; KafkaError where there is none now."""
    homes: ReplicaHomes
    """Where the metadata say that replicas are."""
    when_open: Callable[[Schedule], None]
    """Called when the logs are open, before partitions are made."""
    metadata_log: MetadataLogState | None = None
    """The log of the metadata; None where the controllers have it."""
    serve_controllers: ServeControllers | None = None
    """Opens the listeners for controllers of a node alone; None where it has none."""
    endpoints: tuple[ControllerEndpoint, ...] = ()
    """Where a node alone is reached as a controller."""
    abandon: Callable[[], object] = do_nothing
    """Lets a stop leave the metadata log as a kill would."""
    forward: Forward | None = None
    """Sends requests that change the cluster to its controllers; None where the plane decides."""
    ask_controllers: Callable[[Message], Future[Any]] | None = None
    """Requests of the node itself to its controllers, from any thread; None where the plane decides."""
    controller_versions: ControllerVersions | None = None
    """Which versions of APIs the controllers serve; None where the plane decides."""
