"""One client's connection: frames in, answers out in the order of the requests.

Promises:
- A request begins when those before it are answered, unless `apis/overlaps.py` says that nobody can see the
  difference. Then as many as the client likes are under way; past `WAITING_ANSWERS_MAX` answers (or
  `WAITING_BYTES_MAX` bytes of them), or when the client does not read, no more begin.
- While a request may not begin nothing is read: what a client can make us hold is bounded, and what it sent
  before it closed the connection is served all the same.
- The receive buffer starts at 4 KiB and grows only as bytes arrive; it shrinks back when the big frames end.
- Bytes that a handler staged for a partition (they are views of the receive buffer) stay untouched until
  the commit of the turn in which they were staged.
- A frame that cannot be answered closes the connection with one log line, after the answers before it.
  A bug in a handler closes the connection too, with a traceback in the log, and nothing else.

No task and no future is made per request.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from odradek.apis.api import Api, LatePart, RequestContext, Waiting
from odradek.apis.overlaps import NONE
from odradek.server._hot_path import BUFFER_BYTES, BUFFER_KEPT_BYTES_MAX, Receiver
from odradek.server.paced_writing import WRITE_BUFFER_HIGH_BYTES, PacedWriter
from odradek.server.turn import LoopTurn
from odradek.wire.codec import decoder, encoder
from odradek.wire.errors import ErrorCode, MalformedMessage

logger = logging.getLogger("odradek.connection")

BUFFER_GROWTH = 4
WAITING_ANSWERS_MAX = 1024
WAITING_BYTES_MAX = 64 * 1024 * 1024
WRITE_AT_ONCE_BYTES = 256 * 1024
"""Ready answers of one turn are written together; past this we write to learn whether the client reads."""
API_VERSIONS_KEY = 18

_frame_head = struct.Struct(">iIih").unpack_from
_frame_length = struct.Struct(">i").unpack_from
_FRAME_HEAD_BYTES = 14
_HEADER_BYTES_MIN = 10
_response_head = struct.Struct(">ii").pack
_flexible_response_head = struct.Struct(">iib").pack
_version_refusal = struct.Struct(">iihihhh").pack
_BUFFERS = (bytes, bytearray, memoryview)


class Route:
    """How one version of one API is decoded, handled and answered."""

    __slots__ = (
        "api_key",
        "api_version",
        "decode",
        "encode",
        "handle",
        "has_tagged_header",
        "name",
        "overlaps",
        "shortcut",
        "tags_answer",
    )

    def __init__(self, api_key: int, api_version: int, api: Api) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.handle = api.handle
        self.decode = decoder(api.request, api_version)
        self.encode = encoder(api.response, api_version)
        flexible_since = api.request.flexible_since
        self.has_tagged_header = flexible_since is not None and api_version >= flexible_since
        # A client that does not know our version yet must be able to read the answer to ApiVersions.
        self.tags_answer = self.has_tagged_header and api_key != API_VERSIONS_KEY
        self.shortcut = api.shortcut
        self.overlaps = api.overlaps
        self.name = f"{api.request.__name__} v{api_version}"

    def answer(self, response: Any, correlation_id: int) -> tuple[list[Any], int]:
        """The response as buffers (the first holds length and header) and its size in bytes."""
        parts: list[Any] = [b""]
        self.encode(response, parts)
        size_bytes = 0
        for part in parts:
            size_bytes += len(part)
        if self.tags_answer:
            parts[0] = _flexible_response_head(size_bytes + 5, correlation_id, 0)
            return parts, size_bytes + 9
        parts[0] = _response_head(size_bytes + 4, correlation_id)
        return parts, size_bytes + 8


class Routes:
    """The list of APIs, looked up by the 32 bits that hold key and version; routes are made on first use."""

    __slots__ = ("_apis", "found")

    def __init__(self, apis: Mapping[int, Api]) -> None:
        self._apis = apis
        self.found: dict[int, Route] = {}

    def resolve(self, key_and_version: int) -> Route | None:
        """None when this API or this version of it is not served."""
        api_key, api_version = key_and_version >> 16, key_and_version & 0xFFFF
        api = self._apis.get(api_key)
        if api is None or api_version not in api.versions:
            return None
        route = self.found[key_and_version] = Route(api_key, api_version, api)
        return route

    def prepare(self, api_key: int) -> None:
        """Makes what is made at the first request, for an API's newest version."""
        self.resolve(api_key << 16 | self._apis[api_key].versions[-1])

    def refuse_version(self, correlation_id: int) -> bytes:
        """The answer to an ApiVersions request of a version that we do not know (KIP-511): version 0 with
        UNSUPPORTED_VERSION and our own range of ApiVersions, so that the client can ask again."""
        versions = self._apis[API_VERSIONS_KEY].versions
        error = int(ErrorCode.UNSUPPORTED_VERSION)
        return _version_refusal(
            16, correlation_id, error, 1, API_VERSIONS_KEY, versions.start, versions.stop - 1
        )


class Endpoint(Protocol):
    """The listener that a connection came in at."""

    name: str
    advertised: tuple[str, int] | None


class Registry(Protocol):
    """What all connections of a broker share; `server.connections.Connections` is the one."""

    routes: Routes
    turn: LoopTurn
    now_ms: Callable[[], int]
    request_bytes_max: int
    linger: Callable[[], None]
    """Called when requests were served: a loop that sleeps at once wakes late (`server.lingering`)."""

    def admit(self, connection: Connection) -> str | None: ...

    def forget(self, connection: Connection) -> None: ...


class _Slot:
    """The place of one answer in the order of a connection's answers."""

    __slots__ = ("connection", "correlation_id", "parts", "route", "size_bytes", "waiting")

    count = 1
    """How many answers it is; a shortcut's may be more."""

    def __init__(self, connection: Connection, route: Route, correlation_id: int) -> None:
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.parts: Sequence[Any] | None = None
        self.size_bytes = 0
        self.waiting: Waiting | None = None

    def deliver(self, response: Any) -> None:
        self.waiting = None
        self.connection._fill(self, response)


class Connection(Receiver, asyncio.BufferedProtocol):
    """See the module's opening lines. Also the `ConnectionInfo` that handlers see."""

    __slots__ = (
        "_client_id",
        "_client_id_raw",
        "_is_full",
        "_is_gated",
        "_paced_writer",
        "_spare",
        "_spare_turn",
        "advertised_host",
        "advertised_port",
        "client_software_name",
        "client_software_version",
        "listener_name",
        "local_host",
        "local_port",
        "peer_host",
        "peer_port",
        "principal",
        "unsent_bytes",
    )

    def __init__(self, registry: Registry, endpoint: Endpoint) -> None:
        super().__init__(registry)
        self._spare: bytearray | None = None  # the large buffer before this one; pinned in its own turn
        self._spare_turn = -1
        self._is_gated = False  # the next request may not begin before those that are under way are answered
        self._client_id: str | None = None
        self._client_id_raw = b""
        self._is_full = False  # the transport has as much as it wants
        self._paced_writer: PacedWriter | None = None
        self.unsent_bytes = 0
        self.listener_name = endpoint.name
        self.principal = "User:ANONYMOUS"
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        advertised = endpoint.advertised
        self.advertised_host, self.advertised_port = advertised or ("", 0)
        self.peer_host, self.peer_port = "", 0
        self.local_host, self.local_port = "", 0

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]
        self.peer_host, self.peer_port = _address(transport.get_extra_info("peername"))
        self.local_host, self.local_port = _address(transport.get_extra_info("sockname"))
        if not self.advertised_host:
            self.advertised_host, self.advertised_port = self.local_host, self.local_port
        refusal = self._registry.admit(self)
        if refusal is not None:
            self._log_closing(refusal)
            self._closing = True
            transport.abort()  # type: ignore[attr-defined]
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        slots, self._slots = self._slots, None
        for slot in slots or ():
            if slot.waiting is not None:
                waiting, slot.waiting = slot.waiting, None
                self._cancel(waiting)
        self._spare = None
        if self._paced_writer is not None:
            self._paced_writer.forget()
        self._turn.forget(self)
        self._registry.forget(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_full = self._write_paused = True
        if self._paced_writer is not None:
            self._paced_writer.is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._paced_writer is not None:
            self._paced_writer.is_full = False
            if self._is_pacing:
                self._paced_writer.go_on()
                return
        self._write_paused = False
        if self._held:
            self._resume_if_possible()

    # The receive buffer

    def _make_room(self) -> memoryview:
        """Room for what is missing of the first frame, or for a few bytes; never over pinned bytes."""
        start, filled = self._start, self._filled
        capacity = len(self._buffer)
        unserved = filled - start
        wanted = BUFFER_BYTES
        if unserved >= 4:
            wanted = 4 + _frame_length(self._buffer, start)[0]
        if filled < capacity and (not start or start + wanted <= capacity):
            return self._view[filled:]
        if wanted <= capacity and unserved < capacity:
            if self._pinned_turn != self._turn.number:
                self._buffer[:unserved] = self._buffer[start:filled]
            else:
                self._replace_buffer(capacity if capacity <= BUFFER_KEPT_BYTES_MAX else wanted)
        else:
            # Growing by a factor costs one more copy of the frame in all; trusting its length would let
            # four bytes ask for 100 MB.
            arrived = max(unserved * BUFFER_GROWTH, BUFFER_BYTES)
            self._replace_buffer(max(min(wanted + BUFFER_BYTES, arrived), unserved + BUFFER_BYTES // 2))
        self._start, self._filled = 0, unserved
        return self._view[unserved:]

    def _replace_buffer(self, capacity: int) -> None:
        """Goes on in another buffer, with what is not served yet at its front."""
        unserved = self._view[self._start : self._filled]
        spare, spare_turn = self._spare, self._spare_turn
        self._spare = None
        if BUFFER_BYTES < capacity <= len(self._buffer) <= BUFFER_KEPT_BYTES_MAX:
            self._spare, self._spare_turn = self._buffer, self._pinned_turn
        if spare is None or len(spare) < capacity or spare_turn == self._turn.number:
            spare = bytearray(capacity)
        self._buffer = spare
        self._buffer[: len(unserved)] = unserved
        self._view = memoryview(spare)
        self._pinned_turn = -1

    def shrink(self) -> None:
        """Gives a large buffer back when no frame is under way: the registry asks idle connections."""
        self._spare = None
        if (
            len(self._buffer) > BUFFER_BYTES
            and self._start == self._filled
            and self._pinned_turn != self._turn.number
        ):
            self._replace_buffer(BUFFER_BYTES)
            self._start = self._filled = 0
            self._spare = None

    # Requests

    def _serve(self) -> None:
        """Serves every whole frame of the buffer, until answers pile up."""
        registry, turn = self._registry, self._turn
        buffer, view = self._buffer, self._view
        position, filled = self._start, self._filled
        request_bytes_max, routes = registry.request_bytes_max, registry.routes.found
        now_ms = self.active_ms = registry.now_ms()
        out: list[Any] = []
        out_bytes = 0
        while filled - position >= _FRAME_HEAD_BYTES:
            length, key_and_version, correlation_id, client_id_bytes = _frame_head(buffer, position)
            end = position + 4 + length
            if not _HEADER_BYTES_MIN <= length <= request_bytes_max or end > filled:
                break
            if self._unanswered and key_and_version >> 16 not in self._overlaps:
                self._is_gated = True
                break
            start, position = position, end
            route = routes.get(key_and_version)
            if route is None:
                route = registry.routes.resolve(key_and_version)
                if route is None:
                    refusal = self._refuse_route(key_and_version, correlation_id)
                    if refusal is None:
                        break
                    out_bytes += self._put(out, [refusal], len(refusal))
                    continue
            try:
                if route.shortcut is not None:
                    answer = route.shortcut(view, start, filled, request_bytes_max, self, now_ms)
                    if answer is not None:
                        position = answer.end
                        self._shortcut = route.shortcut
                        self._shortcut_overlaps = route.overlaps
                        if self._client_id is None and client_id_bytes > 0:
                            # For log lines. Nearly all have said it before, with an ordinary request.
                            told = start + _FRAME_HEAD_BYTES
                            self._client_id = (
                                view[told : told + client_id_bytes].tobytes().decode(errors="replace")
                            )
                        if answer.parts is None:
                            self._narrow_overlaps(route.overlaps)
                            self._stand_in_line(answer)
                        else:
                            out_bytes += self._put(out, answer.parts, answer.size_bytes)
                        if self._must_hold():
                            break
                        continue
                body = start + _FRAME_HEAD_BYTES
                answer = self._handle(route, body, end, client_id_bytes, correlation_id, now_ms)
                if answer is None:
                    continue
                if isinstance(answer, Waiting):
                    self._wait(answer, route, correlation_id, end - start)
                else:
                    out_bytes += self._put(out, *route.answer(answer, correlation_id))
            except MalformedMessage as error:
                self.close(f"malformed {route.name}: {error}")
            except Exception:
                logger.exception("%s from %s failed", route.name, self.peer_host)
                self.close(f"internal error in {route.name}")
            if out_bytes > WRITE_AT_ONCE_BYTES:
                self._write(out, out_bytes)
                out, out_bytes = [], 0
            if self._closing or self._must_hold():
                break
        self._start = position
        if turn.staged:
            self._pinned_turn = turn.number
        if out:
            self._write(out, out_bytes)
        if not self._closing:
            self._after_serving(position, filled)

    def _handle(
        self, route: Route, body: int, end: int, client_id_bytes: int, correlation_id: int, now_ms: int
    ) -> Any:
        """Decodes one request, of which `body` is where its client id starts, and calls its handler."""
        buffer = self._buffer
        if client_id_bytes > 0:
            raw = buffer[body : body + client_id_bytes]
            body += client_id_bytes
            if body > end:
                raise MalformedMessage("the client id is longer than the frame")
            if raw != self._client_id_raw:
                self._client_id = _client_id(raw)
                self._client_id_raw = bytes(raw)
            client_id = self._client_id
        else:
            client_id = None if client_id_bytes < 0 else ""
        if route.has_tagged_header:
            body = body + 1 if body < end and not buffer[body] else _skip_tags(buffer, body, end)
        request, _ = route.decode(self._view[body:end], 0)
        context = RequestContext(route.api_key, route.api_version, correlation_id, client_id, self, now_ms)
        return route.handle(request, context)

    def _after_serving(self, position: int, filled: int) -> None:
        if filled - position >= 4:
            length = _frame_length(self._buffer, position)[0]
            if not _HEADER_BYTES_MIN <= length <= self._registry.request_bytes_max:
                self.close(_bad_length(length, self._registry.request_bytes_max))
                return
        if (self._is_gated or self._must_hold()) and not self._held:
            self._held = True
            if self._transport is not None:
                self._transport.pause_reading()

    def _refuse_route(self, key_and_version: int, correlation_id: int) -> bytes | None:
        api_key, api_version = key_and_version >> 16, key_and_version & 0xFFFF
        if api_key == API_VERSIONS_KEY:
            return self._registry.routes.refuse_version(correlation_id)
        self.close(f"API key {api_key} version {_signed(api_version)} is not served")
        return None

    # Answers

    def _put(self, out: list[Any], parts: Sequence[Any], size_bytes: int) -> int:
        """A ready answer: among what is written now, or behind the answers that are waited for.
        Returns the bytes added to `out`."""
        slots = self._slots
        if not slots:
            out += parts
            return size_bytes
        slot = _Slot(self, None, 0)  # type: ignore[arg-type]
        slot.parts = parts
        slot.size_bytes = size_bytes
        self._waiting_bytes += size_bytes
        self._stand_in_line(slot)
        return 0

    def _wait(self, waiting: Waiting, route: Route, correlation_id: int, request_bytes: int) -> None:
        slot = _Slot(self, route, correlation_id)
        slot.waiting = waiting
        self._narrow_overlaps(NONE if waiting.holds_back else route.overlaps)
        # Until it is answered the request itself is what is held, in whatever form its handler keeps it.
        slot.size_bytes = request_bytes
        self._waiting_bytes += request_bytes
        self._stand_in_line(slot)
        waiting.on_complete(slot.deliver)

    def _narrow_overlaps(self, overlaps: frozenset[int]) -> None:
        """One more request is under way: only these APIs may begin before its answer."""
        if not self._unanswered:
            self._overlaps = overlaps
        elif self._overlaps is not overlaps:
            self._overlaps &= overlaps

    def _fill(self, slot: _Slot, response: Any) -> None:
        slots = self._slots
        if slots is None:
            return  # the peer is gone
        self._unanswered -= 1
        self._waiting_bytes -= slot.size_bytes
        slot.size_bytes = 0
        if response is None:
            slot.parts = []
        else:
            try:
                slot.parts, slot.size_bytes = slot.route.answer(response, slot.correlation_id)
            except Exception:
                logger.exception("the answer to %s from %s failed", slot.route.name, self.peer_host)
                slot.parts = []
                self.close(f"internal error in {slot.route.name}")
            self._waiting_bytes += slot.size_bytes
        if not self._touched and slots[0] is slot:
            self._touched = True
            self._turn.touch(self)

    def _write_vector(self, parts: Sequence[Any]) -> None:
        """Large answers, and those with slices of segments among them: no copy of ours."""
        assert self._transport is not None
        try:
            buffers = _buffers(parts)
            writer = self._paced_writer
            if writer is None:
                writer = PacedWriter(self._turn, self._transport, self, is_full=self._is_full)
                self._paced_writer = writer
            if not writer.write(buffers):
                self._is_pacing = self._write_paused = True
        except Exception as error:
            # Half an answer must never be followed by another one, and none must not be passed over.
            self.abort(f"cannot read the log: {error}")

    def all_is_written(self) -> None:
        """For the writer of long answers."""
        self._is_pacing = False
        self._write_paused = self._is_full
        if self._closing:
            self._close_when_answered()
        elif self._held:
            self._resume_if_possible()

    def _shortcut_failed(self) -> None:
        """Called while its error is handled."""
        logger.exception("a shortcut for %s failed", self.peer_host)
        self.close("internal error")

    def _must_hold(self) -> bool:
        if self._write_paused:
            return True
        slots = self._slots
        if not slots:
            return False
        return self._waiting_answers >= WAITING_ANSWERS_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    def _resume_if_possible(self) -> None:
        if self._closing or self._write_paused or self._waiting_bytes > WAITING_BYTES_MAX // 2:
            return
        if self._waiting_answers > WAITING_ANSWERS_MAX // 2 or (self._is_gated and self._unanswered):
            return
        self._held = self._is_gated = False
        self._serve()
        if not self._held and not self._closing and self._transport is not None:
            self._transport.resume_reading()

    # The end

    def close(self, reason: str) -> None:
        """Serves nothing more; the connection closes when the answers before this are sent."""
        if self._closing:
            return
        self._log_closing(reason)
        self._closing = True
        transport = self._transport
        if transport is None:
            return
        if not self._held and not transport.is_closing():
            transport.pause_reading()
        self._turn.touch(self)
        if self._slots is None:
            self._slots = deque()

    def abort(self, reason: str | None) -> None:
        """Closes at once, whatever waits; `None` when it is not worth a line."""
        if reason is not None:
            self._log_closing(reason)
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def hang_up(self) -> None:
        """The broker stops: sends what is ready, then closes; what waits gets no answer."""
        self._closing = True
        self.send_ready()
        if self._transport is not None:
            if self._is_pacing and self._paced_writer is not None:
                self._is_pacing = False
                self._transport.writelines(self._paced_writer.take_ready())
            self._transport.close()

    @property
    def is_waiting(self) -> bool:
        """True while an answer is waited for."""
        return bool(self._slots)

    @property
    def is_reading(self) -> bool:
        """False while nothing is read, since the client has sent more than may begin: then it does not show
        whether it is still there. Held back by work of ours that comes to its end it counts as read."""
        return (not self._held or self._waits_for_work) and not self._closing

    @property
    def _waits_for_work(self) -> bool:
        waits = (slot.waiting for slot in self._slots or ())
        return self._is_gated and any(waiting is not None and waiting.holds_back for waiting in waits)

    @property
    def is_stalled(self) -> bool:
        """True while the client has not taken its answers."""
        return self._write_paused

    @property
    def receive_buffer_bytes(self) -> int:
        """Memory that it holds for what it reads."""
        return len(self._buffer)

    @property
    def unserved_bytes(self) -> int:
        """Bytes that came and are not served yet: of a frame that is not complete, or of a client that is
        held back."""
        return self._filled - self._start

    def write_buffer_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        if self._transport is None:
            return 0
        unsent_bytes = 0 if self._paced_writer is None else self._paced_writer.unsent_bytes
        return self._transport.get_write_buffer_size() + unsent_bytes

    def _close_when_answered(self) -> None:
        if not self._slots and not self._is_pacing and self._transport is not None:
            self._transport.close()

    def _cancel(self, waiting: Waiting) -> None:
        try:
            waiting.cancel()
        except Exception:
            logger.exception("the clean-up of a request from %s failed", self.peer_host)

    def _log_closing(self, reason: str) -> None:
        client = "" if self._client_id is None else f" (client {self._client_id!r})"
        logger.warning("closing %s:%d%s: %s", self.peer_host, self.peer_port, client, reason)


def _address(name: Any) -> tuple[str, int]:
    if not isinstance(name, tuple) or len(name) < 2:
        return "", 0
    host = name[0]
    # A dual-stack socket shows IPv4 peers as mapped addresses; clients want what they dialled.
    return (host[7:] if host.startswith("::ffff:") and "." in host else host), name[1]


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


def _client_id(raw: bytearray) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedMessage("the client id is not UTF-8") from None


def _skip_tags(buffer: bytearray, position: int, end: int) -> int:
    """Steps over a header's tagged fields: none is known for requests."""

    def unsigned_varint() -> int:
        nonlocal position
        value = shift = 0
        while position < end and shift < 35:
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedMessage("the header's tagged fields are cut off")

    # Each field takes two bytes at least, so a lying count ends at the end of the frame.
    for _ in range(unsigned_varint()):
        unsigned_varint()
        size_bytes = unsigned_varint()
        position += size_bytes
    if position > end:
        raise MalformedMessage("a tagged field of the header is longer than the frame")
    return position


def _signed(value: int) -> int:
    return value - 0x10000 if value >= 0x8000 else value


_LOOKS_LIKE = {b"GET ": "HTTP", b"POST": "HTTP", b"HEAD": "HTTP", b"PUT ": "HTTP", b"SSH-": "SSH"}


def _bad_length(length: int, request_bytes_max: int) -> str:
    """Why a frame of this length is refused; names the protocol that people point at brokers by mistake."""
    start = (length & 0xFFFFFFFF).to_bytes(4, "big")
    other = _LOOKS_LIKE.get(start)
    if other is None and start[:2] == b"\x16\x03":
        other = "TLS"
    if other is not None:
        return f"this looks like {other}, not like a Kafka client without TLS"
    if length > request_bytes_max:
        return f"a request of {length} bytes is over socket.request.max.bytes={request_bytes_max}"
    return f"no request has a length of {length} bytes"
