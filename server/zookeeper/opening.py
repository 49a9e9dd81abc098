"""The connection of a broker with `zookeeper.connect`: open before all else of the broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from odradek.server.zookeeper.offsets import GroupsInZooKeeper
from odradek.server.zookeeper.session import Session, session_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterView


class ZooKeeper(NamedTuple):
    """One that a broker is in."""

    session: Session
    cluster_id: str | None
    """The id in `/cluster/id`; None where no broker has been."""

    def groups(
        self, loop: asyncio.AbstractEventLoop, view: Callable[[], ClusterView], metadata_bytes_max: int
    ) -> GroupsInZooKeeper:
        """The offsets of groups that are kept there."""
        return GroupsInZooKeeper(self.session, loop, view, metadata_bytes_max)


async def open_zookeeper(config: BrokerConfig, ending: AsyncExitStack) -> ZooKeeper:
    """`ending` gets what closes the session. Raises ConfigError with one sentence for people."""
    session, patience_s = session_of(config)
    await asyncio.to_thread(session.open, patience_s)
    ending.push_async_callback(asyncio.to_thread, session.close)
    return ZooKeeper(session, await asyncio.to_thread(session.cluster_id))
