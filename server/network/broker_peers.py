"""Requests of this node to other brokers that are no fetches: one connection to each, made when needed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.server.network.peers import Peer, PeerLost, SetupTimeout, client_id_of, common_version, connect

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.schema import Message

logger = logging.getLogger("odradek.cluster")

RETRY_PAUSE_MS, RETRY_PAUSE_MS_MAX = 1_000, 30_000
RETRY_JITTER = 0.2
"""A pause is so much longer or shorter, by chance."""


def retry_pause_ms(first_ms: float, attempts: int) -> float:
    """Before a request that brokers have not answered is sent again, after so many attempts."""
    pause_ms = first_ms * 2.0**attempts * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER)
    return min(pause_ms, RETRY_PAUSE_MS_MAX)


class BrokerPeers:
    """`listener` is `inter.broker.listener.name`."""

    def __init__(
        self,
        node_id: int,
        listener: str,
        timeout_ms: int,
        setup: SetupTimeout,
        current_view: Callable[[], ClusterView],
    ) -> None:
        self._setup = setup
        self._node_id = node_id
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._current_view = current_view
        self._peers: dict[int, Peer] = {}
        self._connecting: dict[int, asyncio.Lock] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def ask(self, broker_id: int, request: Message, answered: Callable[[Any], None]) -> None:
        """Calls back once, later: with None where no response came. Then it may have been carried out all the
        same."""
        task = asyncio.get_running_loop().create_task(self._ask(broker_id, request, answered))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def close(self) -> None:
        """Nothing is called back any more."""
        for task in self._asking:
            task.cancel()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    async def _ask(self, broker_id: int, request: Message, answered: Callable[[Any], None]) -> None:
        try:
            peer = await self._connected(broker_id)
            version = common_version(peer, type(request))
            response = await peer.ask_within(request, version, self._timeout_ms)
        except PeerLost as error:
            logger.info("%s to broker %d: %s", type(request).__name__, broker_id, error)
            response = None
        try:
            answered(response)
        except Exception:
            logger.exception("a response of broker %d could not be taken in", broker_id)

    async def _connected(self, broker_id: int) -> Peer:
        async with self._connecting.setdefault(broker_id, asyncio.Lock()):
            broker = self._current_view().registrations.get(broker_id)
            endpoint = None if broker is None else broker.endpoints.get(self._listener)
            if endpoint is None:
                raise PeerLost(f"broker {broker_id} is not registered")
            name = f"broker {broker_id}"
            peer = self._peers.get(broker_id)
            if (
                peer is not None
                and peer.is_open
                and peer.name == f"{name} at {endpoint.host}:{endpoint.port}"
            ):
                return peer
            if peer is not None:
                peer.close()
            peer = self._peers[broker_id] = await connect(
                endpoint.host,
                endpoint.port,
                name=name,
                client_id=client_id_of(self._node_id),
                timeout_ms=self._timeout_ms,
                setup=self._setup,
            )
            return peer
