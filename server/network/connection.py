"""One client's connection: frames in, responses out in the order of the requests.

Promises:
- A request begins when all earlier ones are answered, unless their APIs declare that it may overlap. Then any
  number may be under way; beyond `WAITING_RESPONSES_MAX` responses (or `WAITING_BYTES_MAX` bytes of them), or
  when the client does not read, no more begin.
- While a request may not begin the socket is not read: this bounds the memory for a client, and requests that
  it sent before it closed the connection are still served.
- The receive buffer starts at 4 KiB and grows only as bytes arrive; it shrinks back when the big frames end.
- Bytes that a handler staged for a partition (they are views of the receive buffer) stay untouched until
  the commit of the turn in which they were staged.
- A frame that cannot be answered closes the connection with one log line, after the responses before it.
  A bug in a handler closes the connection too, with a traceback in the log, and nothing else.

The compiled parts of a connection serve the requests (`server/network/_pipeline.pyx`); this module opens and
closes it. No task and no future is made per request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.api import LatePart
from odradek.server.network._pipeline import Requests, Responses
from odradek.server.network.admission import host_of
from odradek.server.network.paced_writing import WRITE_BUFFER_HIGH_BYTES, PacedWriter

if TYPE_CHECKING:
    from odradek.server.network._pipeline import Dispatcher
    from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse

logger = logging.getLogger("odradek.connection")

_BUFFERS = (bytes, bytearray, memoryview)


class Gate(Protocol):
    """Guard before the requests of a connection whose client has to authenticate;
    `server.security.sasl.gate`."""

    def admitted(self) -> None:
        """The connection is open."""

    def forget(self) -> None:
        """The connection has ended."""

    def note_expired(self) -> None:
        """The connection is closed since its session has ended."""

    def go_on(self) -> None:
        """The client has read its responses."""

    def begin_again(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """A handshake of an authenticated client. None: it stays as it is."""


class Gates(Protocol):
    """Makes the gates of a listener."""

    successes: int
    """Clients that have authenticated since the start."""
    failures: int
    """Authentications that have failed since the start."""

    def gate_of(self, connection: Connection) -> Gate:
        """A closed gate."""


class Endpoint(Protocol):
    """The listener that a connection came in at."""

    name: str
    advertised: tuple[str, int] | None
    sasl: Gates | None
    """None: clients need not authenticate."""


class Registry(Protocol):
    """The shared state of all connections of a broker; implemented by
    `server.network.connections.Connections`."""

    dispatcher: Dispatcher

    def opened(self, connection: Connection) -> None: ...

    def left(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """See the module's opening lines. Also the `ConnectionInfo` that handlers see."""

    __slots__ = (
        "_closings",
        "_paced_writer",
        "_principal",
        "_registry",
        "_transport",
        "advertised_host",
        "advertised_port",
        "buffer_updated",
        "client_software_name",
        "client_software_version",
        "connected_ms",
        "gate",
        "get_buffer",
        "granted",
        "is_token",
        "listener_name",
        "local_host",
        "local_port",
        "peer_host",
        "peer_port",
        "requests",
        "responses",
        "unsent_bytes",
    )

    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]
    buffer_updated: Callable[[int], None]  # type: ignore[assignment]

    def __init__(self, registry: Registry, endpoint: Endpoint) -> None:
        self._registry = registry
        self.responses = Responses(self, registry.dispatcher)
        self.requests = Requests(self, registry.dispatcher, self.responses)
        # The event loop calls the compiled part without a step in between.
        self.get_buffer = self.requests.get_buffer
        self.buffer_updated = self.requests.buffer_updated
        self._transport: asyncio.Transport | None = None
        self._paced_writer: PacedWriter | None = None
        self._closings: dict[Callable[[Connection], None], None] | None = None
        self.unsent_bytes = 0
        self.connected_ms = self.requests.active_ms
        self.listener_name = endpoint.name
        self._principal = "User:ANONYMOUS"
        self.granted: Any = None
        self.is_token = False
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        advertised = endpoint.advertised
        self.advertised_host, self.advertised_port = advertised or ("", 0)
        self.peer_host, self.peer_port = "", 0
        self.local_host, self.local_port = "", 0
        self.gate: Gate | None = None if endpoint.sasl is None else endpoint.sasl.gate_of(self)

    @property
    def principal(self) -> str:
        """Name of the client. Another one may not use what this one was granted."""
        return self._principal

    @principal.setter
    def principal(self, principal: str) -> None:
        self._principal = principal
        self.granted = None
        self.requests.forget_prefixes()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self.use_transport(transport)  # type: ignore[arg-type]
        self.peer_host, self.peer_port = _address(transport.get_extra_info("peername"))
        self.local_host, self.local_port = _address(transport.get_extra_info("sockname"))
        if not self.advertised_host:
            self.advertised_host, self.advertised_port = self.local_host, self.local_port
        self._registry.opened(self)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)  # type: ignore[attr-defined]
        if self.gate is not None:
            self.gate.admitted()

    def use_transport(self, transport: asyncio.Transport) -> None:
        """Responses go to this transport from now on."""
        self._transport = self.responses.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self.gate is not None:
            self.gate.forget()
        self.responses.forget()
        self.requests.forget_prefixes()
        # At once: the objects of a connection point to each other, and go with a later collection.
        self.requests.buffer.discard()
        if self._paced_writer is not None:
            self._paced_writer.forget()
        self._registry.left(self)
        for callback in self._closings or ():
            callback(self)

    def when_closed(self, callback: Callable[[Connection], None]) -> None:
        if self._transport is None:
            # Closed while the work that asks for this was waiting.
            callback(self)
            return
        self._closings = self._closings or {}
        self._closings[callback] = None

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.responses.is_full = True
        if self._paced_writer is not None:
            self._paced_writer.is_full = True

    def resume_writing(self) -> None:
        self.responses.is_full = False
        if self._paced_writer is not None:
            self._paced_writer.is_full = False
            if self.responses.is_pacing:
                self._paced_writer.go_on()
                return
        self._go_on()

    # Long responses

    def write_vector(self, parts: Sequence[Any]) -> None:
        """Writes large responses, and answers with slices of segments, without a copy."""
        assert self._transport is not None
        try:
            buffers = _buffers(parts)
            writer = self._paced_writer
            if writer is None:
                turn, is_full = self._registry.dispatcher.turn, self.responses.is_full
                writer = self._paced_writer = PacedWriter(turn, self._transport, self, is_full=is_full)
            if not writer.write(buffers):
                self.responses.is_pacing = True
        except Exception as error:
            # An incomplete response must never be followed by another one, and no response may be skipped.
            self.abort(f"cannot read the log: {error}")

    def all_is_written(self) -> None:
        """For the writer of long responses."""
        self.responses.is_pacing = False
        if self.responses.is_closing:
            self.close_when_answered()
        else:
            self._go_on()

    def _go_on(self) -> None:
        """There is room for responses."""
        if self.requests.is_held:
            self.requests.resume_if_possible()
        if self.gate is not None:
            self.gate.go_on()

    # The end

    def close(self, reason: str) -> None:
        """Serves no more requests; the connection closes when the earlier responses are sent."""
        if self.responses.is_closing:
            return
        self._log_closing(reason)
        transport = self._transport
        if transport is not None and not self.requests.is_held and not transport.is_closing():
            transport.pause_reading()
        self.responses.begin_closing()

    def close_expired(self) -> None:
        """For the requests: the session has ended, and the client has not authenticated again. As in Kafka no
        response is sent any more."""
        if self.gate is not None:
            self.gate.note_expired()
        logger.info(
            "closing %s:%d: the session of %r has ended", self.peer_host, self.peer_port, self.principal
        )
        self.abort(None)

    def begin_reauthentication(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """For the handler of SaslHandshake: the response; None where the client cannot authenticate again."""
        return None if self.gate is None else self.gate.begin_again(mechanism, version)

    def refuse_length(self, length: int) -> None:
        """For the frames: none has this length."""
        start = self.requests.buffer.unserved_start(4)
        self.close(_bad_length(length, start, self._registry.dispatcher.request_bytes_max))

    def close_when_answered(self) -> None:
        """For the responses: all that are ready are sent."""
        if self.responses.is_empty and not self.responses.is_pacing and self._transport is not None:
            self._transport.close()

    def abort(self, reason: str | None) -> None:
        """Closes at once, also with waiting responses; no log line with `None`."""
        if reason is not None:
            self._log_closing(reason)
        self.responses.is_closing = True
        if self._transport is not None:
            self._transport.abort()

    def hang_up(self) -> None:
        """The broker stops: sends ready responses, then closes; waiting requests get no response."""
        self.responses.is_closing = True
        self.responses.send_ready()
        if self._transport is not None:
            if self.responses.is_pacing and self._paced_writer is not None:
                self.responses.is_pacing = False
                self._transport.writelines(self._paced_writer.take_ready())
            self._transport.close()

    def _log_closing(self, reason: str) -> None:
        client_id = self.requests.client_id
        client = "" if client_id is None else f" (client {client_id!r})"
        logger.warning("closing %s:%d%s: %s", self.peer_host, self.peer_port, client, reason)

    # For the registry, which closes idle connections

    def shrink(self) -> None:
        """Frees memory that an idle connection does not need: a large buffer, remembered prefixes."""
        self.requests.buffer.shrink()
        self.requests.forget_prefixes()

    @property
    def is_waiting(self) -> bool:
        """True while a response is still to come."""
        return not self.responses.is_empty

    @property
    def is_reading(self) -> bool:
        """False while the socket is not read because the client sent more than may begin: a closed connection
        is not noticed then. A connection held back by work of the broker counts as read."""
        requests = self.requests
        waits_for_work = requests.is_gated and self.responses.waits_for_work()
        return (not requests.is_held or waits_for_work) and not self.responses.is_closing

    @property
    def is_stalled(self) -> bool:
        """True while the client has not read its responses."""
        return self.responses.is_write_paused

    @property
    def receive_buffer_bytes(self) -> int:
        """The size of its receive buffer."""
        return self.requests.buffer.capacity

    @property
    def unserved_bytes(self) -> int:
        """Received bytes that are not served yet: of an incomplete frame, or of a client that is held
        back."""
        return self.requests.buffer.unserved_bytes

    def write_buffer_bytes(self) -> int:
        """Bytes of responses that the client has not read yet."""
        if self._transport is None:
            return 0
        unsent_bytes = 0 if self._paced_writer is None else self._paced_writer.unsent_bytes
        return self._transport.get_write_buffer_size() + unsent_bytes


def _address(name: Any) -> tuple[str, int]:
    if not isinstance(name, tuple) or len(name) < 2:
        return "", 0
    return host_of(name), name[1]


def _buffers(parts: Sequence[Any]) -> list[Any]:
    buffers: list[Any] = []
    for part in parts:
        if isinstance(part, _BUFFERS) or type(part) is LatePart:
            buffers.append(part)
        else:
            buffers.extend(part.buffers())
    # An empty one at the end would stay in the transport of asyncio (Python 3.12, 3.13), which then never
    # closes.
    return [buffer for buffer in buffers if len(buffer)]


_LOOKS_LIKE = {b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"PUT ": "HTTP", b"SSH-": "SSH"}


def _bad_length(length: int, start: bytes, request_bytes_max: int) -> str:
    """The reason to refuse a frame of this length that begins with `start`; names other protocols that are
    sent to brokers by mistake."""
    other = _LOOKS_LIKE.get(start)
    if other is None and start[:2] == b"\x16\x03":
        other = "TLS"
    if other is not None:
        return f"this looks like {other}, not like a Kafka client without TLS"
    if length > request_bytes_max:
        return f"a request of {length} bytes is over socket.request.max.bytes={request_bytes_max}"
    return f"no request has a length of {length} bytes"
