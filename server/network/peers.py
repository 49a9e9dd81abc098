"""Connections that this node opens itself: to controllers, and to other brokers. A host that begins with a
slash is the path of a Unix socket (`config/workers.py`).

A `Peer` is one connection. Requests are pipelined, responses come in their order. It is not opened again: who
needs another one makes another `Peer`. `SetupTimeout.login` authenticates it, where the other side has SASL.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.schema import Buffer, Message

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger("odradek.peers")

CLIENT_NAME, CLIENT_VERSION = "odradek", "1"
RECEIVE_BYTES = 65_536
BUFFER_KEPT_BYTES = 2 * 1024 * 1024
IN_PLACE_FROM_BYTES = 65_537
"""Smaller responses are copied: a gain was measured for large ones only."""
RESPONSE_BYTES_MAX = 1_073_741_824
"""Bound of one response, in case that a peer sends nonsense."""
_API_VERSIONS_VERSION = 3
SETUP_JITTER = 0.2


class PeerLost(ConnectionError):
    """The connection is gone, or its responses make no sense. Whether the last requests have had an effect is
    unknown."""


class _Asked(NamedTuple):
    request_class: type[Message]
    version: int
    correlation_id: int
    response: asyncio.Future[Any]
    is_in_place: bool


class Peer(asyncio.BufferedProtocol):
    """`ask` on the event loop that made it. `on_lost` is called once, when the connection has ended."""

    def __init__(self, name: str, client_id: str, receive_buffer_bytes: int = -1) -> None:
        self.name = name
        """For messages: the address, and what it is the address of."""
        self.versions: dict[int, tuple[int, int]] = {}
        """First and last version by API key, as the peer has said; empty where it was not asked."""
        self.on_lost: Callable[[], object] | None = None
        self._client_id = client_id
        self._receive_buffer_bytes = receive_buffer_bytes
        self._transport: asyncio.Transport | None = None
        self._asked: deque[_Asked] = deque()
        self._correlation_id = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._filled = 0
        self._is_lent = False
        """Whether a response that is read in place may still be used."""
        self.error = PeerLost(f"{name} has closed the connection")
        """Why the connection has ended, once it has."""
        self._held: list[tuple[bytes, _Asked]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    @property
    def transport(self) -> asyncio.Transport | None:
        """None when the connection has ended."""
        return self._transport

    def ask(self, request: Message, version: int, *, is_in_place: bool = False) -> asyncio.Future[Any]:
        """The response, later. Raises PeerLost, here or in the future.

        `is_in_place`: the bytes of a large response are views of the receive buffer. They are valid until the
        next request of this connection, and no other one may be under way.
        """
        frame, asked = self._prepared(request, version, is_in_place=is_in_place)
        if self._held is None:
            self._put(frame, asked)
        else:
            self._held.append((frame, asked))
        return asked.response

    def ask_now(self, request: Message, version: int) -> asyncio.Future[Any]:
        """Asks like `ask`, also while other requests wait."""
        frame, asked = self._prepared(request, version)
        self._put(frame, asked)
        return asked.response

    async def ask_within(
        self, request: Message, version: int, timeout_ms: float, *, is_in_place: bool = False
    ) -> Any:
        """Asks like `ask`. A peer that does not respond in time loses the connection: its later responses
        would come before those to later requests."""
        response = self.ask(request, version, is_in_place=is_in_place)
        # A timer alone: `asyncio.timeout` costs as much as the encoding of a fetch.
        limit = response.get_loop().call_later(timeout_ms / 1000, self._give_up, type(request), timeout_ms)
        try:
            return await response
        finally:
            limit.cancel()

    def _give_up(self, request_class: type[Message], timeout_ms: float) -> None:
        self.close(PeerLost(f"{self.name} has not answered {request_class.__name__} for {timeout_ms:g} ms"))

    def close(self, error: PeerLost | None = None) -> None:
        """All that wait get `error`. Harmless a second time."""
        transport, self._transport = self._transport, None
        if error is not None:
            self.error = error
        if transport is not None:
            transport.abort()
        self._fail_all()

    # For whoever authenticates it

    def hold(self) -> None:
        """Requests wait until `end_hold`, but for those of `ask_now`."""
        assert self._held is None
        self._held = []

    def end_hold(self) -> None:
        """Sends what has waited."""
        held, self._held = self._held or [], None
        for frame, asked in held:
            if self._transport is not None:
                self._put(frame, asked)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> None:
        """One call, which the end of the connection cancels; none after it."""
        if self._transport is None:
            return
        self._timer = asyncio.get_running_loop().call_later(seconds, callback)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """One task of the connection."""
        self._task = asyncio.get_running_loop().create_task(work)

    # For the transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes > 0:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if error is not None:
            self.error = PeerLost(f"{self.name}: {error}")
        self._fail_all()
        on_lost, self.on_lost = self.on_lost, None
        if on_lost is not None:
            on_lost()

    def get_buffer(self, size_hint: int) -> memoryview:
        if self._is_lent:
            # The peer sends what nobody has asked for: it must not change what is read.
            self._is_lent, self._buffer = False, bytearray(RECEIVE_BYTES)
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, size_bytes: int) -> None:
        self._filled += size_bytes
        try:
            self._read_frames()
        except (MalformedMessage, PeerLost) as error:
            self.close(PeerLost(f"{self.name} sends what is not a response: {error}"))

    # Inside

    def _prepared(self, request: Message, version: int, *, is_in_place: bool = False) -> tuple[bytes, _Asked]:
        if self._transport is None:
            raise self.error
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asked = _Asked(type(request), version, self._correlation_id, response, is_in_place)
        return request_frame(request, version, self._correlation_id, self._client_id), asked

    def _put(self, frame: bytes, asked: _Asked) -> None:
        assert self._transport is not None
        self._asked.append(asked)
        self._is_lent = False
        self._transport.write(frame)

    def _read_frames(self) -> None:
        position = 0
        while self._filled - position >= 4:
            size_bytes = int.from_bytes(self._buffer[position : position + 4], "big", signed=True)
            if not 0 <= size_bytes <= RESPONSE_BYTES_MAX:
                raise PeerLost(f"a frame of {size_bytes} bytes")
            end = position + 4 + size_bytes
            if end > self._filled:
                self._make_room(position, 4 + size_bytes)
                return
            frame = memoryview(self._buffer)[position + 4 : end]
            if end == self._filled and self._may_lend(size_bytes):
                self._is_lent, self._filled = True, 0
                self._take(frame)
                return
            self._take(bytes(frame))
            position = end
        self._make_room(position, RECEIVE_BYTES)

    def _may_lend(self, size_bytes: int) -> bool:
        return size_bytes >= IN_PLACE_FROM_BYTES and len(self._asked) == 1 and self._asked[0].is_in_place

    def _make_room(self, position: int, wanted_bytes: int) -> None:
        """The frames before `position` are read. There is room for a frame of `wanted_bytes`.

        A buffer of more than `BUFFER_KEPT_BYTES` is kept for large frames alone: new memory costs more than
        the bytes in it.
        """
        size_bytes = len(self._buffer)
        rest_bytes = self._filled - position
        if wanted_bytes < size_bytes and (size_bytes <= BUFFER_KEPT_BYTES or wanted_bytes > RECEIVE_BYTES):
            if position and rest_bytes:
                self._buffer[:rest_bytes] = self._buffer[position : self._filled]
        else:
            rest = self._buffer[position : self._filled]
            self._buffer = rest + bytearray(max(wanted_bytes, RECEIVE_BYTES) + 1 - rest_bytes)
        self._filled = rest_bytes

    def _take(self, frame: Buffer) -> None:
        if not self._asked:
            raise PeerLost("an answer to nothing")
        asked = self._asked.popleft()
        try:
            correlation_id, response = read_response(frame, asked.request_class, asked.version)
            if correlation_id != asked.correlation_id:
                raise PeerLost(f"correlation id {correlation_id} in place of {asked.correlation_id}")
        except (MalformedMessage, PeerLost):
            self._asked.appendleft(asked)
            raise
        if not asked.response.done():
            asked.response.set_result(response)

    def _fail_all(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        asked, self._asked = self._asked, deque()
        held, self._held = self._held, None
        for one in (*asked, *(one for _, one in held or ())):
            if not one.response.done():
                one.response.set_exception(self.error)


def client_id_of(node_id: int) -> str:
    """With which a node asks others: their logs, and whoever stands between them, know it by that."""
    return f"broker-{node_id}"


class Login(Protocol):
    """How a connection authenticates; `security.sasl.client.PeerLogin`."""

    async def log_in(self, peer: Peer) -> None:
        """Before the first request. Raises PeerLost."""


class SetupTimeout:
    """How long a connection to an address may take to be made, the handshake of TLS included: `first_ms`,
    twice as long after each failure in a row, up to `max_ms`, and up to a fifth more or less, so that many
    nodes do not come together.

    Source: `socket.connection.setup.timeout.ms` and `.max.ms`; ClusterConnectionStates of Kafka (KIP-601).
    """

    def __init__(
        self,
        first_ms: float = 10_000,
        max_ms: float = 30_000,
        uniform: Callable[[float, float], float] = random.uniform,
        login: Login | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.login = login
        """How connections authenticate; None: they need not."""
        self.tls = tls
        """Gives each connection its context; None: there is no TLS."""
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._uniform = uniform
        self._failures: dict[tuple[str, int], int] = {}

    def limit_ms(self, address: tuple[str, int]) -> float:
        """Limit for the next attempt."""
        # 2^30 times the first is above any maximum.
        limit_ms = min(self._first_ms * 2.0 ** min(self._failures.get(address, 0), 30), self._max_ms)
        return limit_ms * self._uniform(1 - SETUP_JITTER, 1 + SETUP_JITTER)

    def ended(self, address: tuple[str, int], *, is_connected: bool) -> None:
        """The result of an attempt."""
        if is_connected:
            self._failures.pop(address, None)
        else:
            self._failures[address] = self._failures.get(address, 0) + 1


async def connect(
    host: str,
    port: int,
    *,
    name: str,
    client_id: str,
    timeout_ms: float,
    setup: SetupTimeout,
    asks_versions: bool = True,
    receive_buffer_bytes: int = -1,
) -> Peer:
    """A connection that is ready, with the versions that the peer serves. Raises PeerLost. A
    `receive_buffer_bytes` of -1 is the system's default."""
    peer = Peer(f"{name} at {host}:{port}", client_id, receive_buffer_bytes)
    limit_ms = timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            limit_ms = min(setup.limit_ms((host, port)), timeout_ms)
            async with asyncio.timeout(limit_ms / 1000):
                await _dial(peer, host, port, setup)
            setup.ended((host, port), is_connected=True)
            limit_ms = timeout_ms
            if asks_versions:
                await _ask_versions(peer)
            if setup.login is not None:
                await setup.login.log_in(peer)
    except (OSError, TimeoutError) as error:
        if not peer.is_open:
            setup.ended((host, port), is_connected=False)
        reason = f"no answer within {limit_ms:.0f} ms" if isinstance(error, TimeoutError) else str(error)
        lost = error if isinstance(error, PeerLost) else PeerLost(f"{peer.name}: {reason}")
        peer.close(lost)
        raise lost from error
    return peer


async def _dial(peer: Peer, host: str, port: int, setup: SetupTimeout) -> None:
    loop = asyncio.get_running_loop()
    if host.startswith("/"):
        await loop.create_unix_connection(lambda: peer, host)
        return
    tls = None if setup.tls is None else setup.tls()
    await loop.create_connection(lambda: peer, host, port, ssl=tls)


async def _ask_versions(peer: Peer) -> None:
    request = ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=CLIENT_VERSION)
    response = await peer.ask(request, _API_VERSIONS_VERSION)
    if response.error_code != ErrorCode.NONE:
        raise PeerLost(f"{peer.name} refuses ApiVersions: {ErrorCode(response.error_code).name}")
    peer.versions = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}


def common_version(peer: Peer, request: type[Message], newest: int | None = None) -> int:
    """The newest version that both sides have, `newest` at most. Raises PeerLost where there is none."""
    first, last = request.versions[0], request.versions[-1]
    if newest is not None:
        last = min(last, newest)
    if request.api_key not in peer.versions:
        raise PeerLost(f"{peer.name} does not serve {request.__name__}")
    peers_first, peers_last = peer.versions[request.api_key]
    if max(first, peers_first) > min(last, peers_last):
        raise PeerLost(f"{peer.name} serves {request.__name__} {peers_first} to {peers_last} only")
    return min(last, peers_last)
