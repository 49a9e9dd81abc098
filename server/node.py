"""The settings of one node: what each phase of a broker has, and the start of a controller."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from odradek.server.extensions import NO_EXTENSIONS, Extensions
from odradek.server.network._clock import Clock

if TYPE_CHECKING:
    from odradek.apis.coordinators import OldestGroups
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.storage.disk import Disk


def do_nothing() -> None:
    """The default for callbacks."""


class InZooKeeper(Protocol):
    """The ZooKeeper that the broker is in: implemented by `server/zookeeper/opening.py`."""

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster there; None where no broker has been."""

    def groups(
        self, loop: asyncio.AbstractEventLoop, view: Callable[[], ClusterView], metadata_bytes_max: int
    ) -> OldestGroups:
        """The offsets of groups that are kept there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Node:
    """The settings of one node. `BrokerServer` explains the fields."""

    config: BrokerConfig
    clock: Clock = field(default_factory=Clock)
    after_loading: Callable[[], object] = do_nothing
    polls_before_sleep: bool = False
    owns_process: bool = False
    on_end: Callable[[], object] = do_nothing
    extensions: Extensions = NO_EXTENSIONS
    zookeeper: InZooKeeper | None = None
    sockets: Mapping[str, Sequence[socket.socket]] = field(default_factory=dict)
    disk: Disk | None = None
    """The disk of its directories; None: one of its own."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """Returns milliseconds since 1970."""
        return self.clock.now_ms

    @property
    def id(self) -> int:
        return self.config.node_id
