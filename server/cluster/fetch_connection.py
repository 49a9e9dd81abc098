"""The connection of a fetcher to its leader: `FetchExchange` on a socket.

A `Peer` makes the connection. From then on the exchange is the protocol of its transport: while all is
ordinary, a response is carried out and the next request is sent where the response came in, and no task,
future or timer takes part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.server.cluster._fetching import FetchExchange
from odradek.server.network.peers import Peer, PeerLost
from odradek.wire.errors import MalformedMessage
from odradek.wire.frames import read_response

if TYPE_CHECKING:
    from odradek.coordinator.replication.replica_fetcher import ReplicaFetcher
    from odradek.coordinator.replication.values import ReplicaKey
    from odradek.wire.schema import Message


class FetchConnection(FetchExchange, asyncio.BufferedProtocol):
    """Takes over the connection of `peer`, which has asked nothing yet. `when_failed` gets failed changes of
    logs."""

    def __init__(
        self,
        peer: Peer,
        fetcher: ReplicaFetcher,
        client_id: str,
        failures: dict[ReplicaKey, str],
        when_failed: Callable[[ReplicaKey, Exception], None],
    ) -> None:
        super().__init__(fetcher, client_id, when_failed, failures)
        assert peer.transport is not None
        self._peer = peer
        self._transport = peer.transport
        self._loop = asyncio.get_running_loop()
        self._response: asyncio.Future[Any] | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._request: Message | None = None
        self._version = 0
        self.send = self._transport.write
        self._transport.set_protocol(self)

    async def ask(self, request: Message, version: int, timeout_ms: float) -> Any:
        """The response to that request, or to one that followed it: whatever the machine has to judge. None
        when all responses were carried out. Raises PeerLost.

        A leader that does not respond in time loses the connection.
        """
        if not self._peer.is_open:
            raise self._peer.error
        self._request, self._version = request, version
        self._response = self._loop.create_future()
        self._transport.write(self.begin(request, version))
        self._limit = self._loop.call_later(timeout_ms / 1000, self.check_time, timeout_ms)
        try:
            return await self._response
        finally:
            self._response = None
            self._limit.cancel()

    def check_time(self, timeout_ms: float) -> None:
        """Ends the connection if the newest request is older than that; otherwise looks again in time."""
        rest_ms = timeout_ms - (time.monotonic_ns() - self.sent_ns) / 1_000_000
        if rest_ms > 0:
            self._limit = self._loop.call_later(rest_ms / 1000, self.check_time, timeout_ms)
        else:
            request = type(self._request).__name__
            self._close(PeerLost(f"{self._peer.name} has not answered {request} for {timeout_ms:g} ms"))

    def _close(self, error: PeerLost) -> None:
        self._peer.close(error)
        self._end(error)

    def _end(self, error: Exception) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)

    # For the exchange

    def ended(self) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_result(None)

    def other(self, frame: memoryview) -> None:
        assert self._request is not None
        try:
            correlation_id, response = read_response(frame, type(self._request), self._version)
            if correlation_id != self.correlation_id:
                raise PeerLost(f"correlation id {correlation_id} in place of {self.correlation_id}")
        except (MalformedMessage, PeerLost) as error:
            self._close(PeerLost(f"{self._peer.name} sends what is not a response: {error}"))
            return
        if self._response is not None and not self._response.done():
            self._response.set_result(response)

    def broken(self, error: Exception | None) -> None:
        if error is not None:
            self._end(error)
        self._close(PeerLost(f"{self._peer.name} sends what is not a response: nobody has asked for it"))

    # For the transport

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._peer.connection_lost(error)
        self._end(self._peer.error)
