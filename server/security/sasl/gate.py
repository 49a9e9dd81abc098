"""The gate before the requests of a connection: it reads the frames until the client has authenticated.

As long as the gate is closed, the transport gives the bytes to it, and `Requests` serves nothing. When it
opens, the transport gives them to `Requests` again, so an authenticated connection costs nothing more than
another one but a comparison with the end of its session. A client that authenticates again closes the gate
for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.server.network._pipeline import BUFFER_BYTES, monotonic_ms
from odradek.server.security.sasl.exchange import (
    Authenticated,
    CheckLogin,
    Close,
    Compute,
    Effect,
    Exchange,
    Send,
    Settings,
    State,
    Versions,
)
from odradek.server.security.sasl.mechanism import AuthenticationFailed
from odradek.wire.errors import MalformedMessage

if TYPE_CHECKING:
    from odradek.server.background.work import WorkQueues
    from odradek.server.network.connection import Connection
    from odradek.server.network.timers import Timers
    from odradek.server.network.unauthenticated import Unauthenticated
    from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
    from odradek.wire.work import Work

UNREAD_RESPONSES_BYTES_MAX = 65_536
"""Responses that a client does not read, such as those to ApiVersions of unknown versions."""
COMPUTATIONS_MAX = 1_000
"""Authentications that wait for a worker thread."""
RESPONSE_READ_MS = 50
"""From the response of a failure to the end: kafka-python forgets what it reads together with the end."""


@dataclass(slots=True, kw_only=True)
class SaslListener:
    """Parts that the gates of a listener share."""

    name: str
    settings: Settings
    new_versions: Callable[[Connection], Versions]
    unauthenticated: Unauthenticated
    timers: Timers
    now_ms: Callable[[], int]
    workers: WorkQueues
    check_login: CheckLogin | None = None
    """For the test kit."""
    successes: int = 0
    """Clients that have authenticated since the start; once each."""
    failures: int = 0
    """Authentications that have failed, also of those who authenticate again."""

    def gate_of(self, connection: Connection) -> Gate:
        """A closed gate."""
        return Gate(connection, self)


class Gate:
    """The gate of one connection; a `Stranger`."""

    __slots__ = ("_connection", "_exchange", "_is_closing", "_is_waiting", "_listener")

    def __init__(self, connection: Connection, listener: SaslListener) -> None:
        self._connection = connection
        self._listener = listener
        self._exchange = Exchange(
            listener.settings, listener.new_versions(connection), lambda: listener.check_login
        )
        self._is_closing = self._is_waiting = False
        self._shut()

    @property
    def address(self) -> str:
        return self._connection.peer_host

    # The connection's side

    def admitted(self) -> None:
        """The connection is open."""
        self._listener.unauthenticated.add(self)

    def forget(self) -> None:
        """The connection has ended."""
        self._is_closing = True
        self._listener.unauthenticated.remove(self)

    def note_expired(self) -> None:
        """The connection is closed since its session has ended."""
        self._listener.unauthenticated.expired += 1

    def go_on(self) -> None:
        """The client has read its responses."""

    def buffer_updated(self, nbytes: int) -> None:
        """For the transport."""
        requests = self._connection.requests
        requests.buffer.take_in(nbytes)
        requests.active_ms = self._listener.now_ms()
        self.serve()

    def begin_again(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """A handshake of an authenticated client. None: it stays as it is."""
        response = self._exchange.begin_again(mechanism, version, monotonic_ms())
        if isinstance(response, Close):
            self._close(response)
            return None
        if response is not None:
            self._shut()
            self._use_these_functions()
            self._listener.unauthenticated.add(self)
            # The frames behind the handshake: its own response is to go out first.
            self._listener.timers.after(0, self.serve)
        return response

    def give_up(self) -> None:
        self._is_closing = True
        self._listener.failures += 1
        self._connection.abort(None)

    # Inside

    def serve(self) -> None:
        """Reads whole frames, as long as the gate is closed."""
        exchange, buffer = self._exchange, self._connection.requests.buffer
        while self._reads:
            try:
                frame = buffer.take_frame(exchange.frame_bytes_max)
            except MalformedMessage as error:
                looks = ", which looks like TLS" if buffer.unserved_start(2) == b"\x16\x03" else ""
                self._close(exchange.refuse_length(f"{error}{looks}"))
                return
            if frame is None:
                break
            self._carry_out(exchange.receive(frame, self._listener.now_ms()))
        if not self._is_closing and exchange.state is not State.COMPLETE:
            # Who authenticates again has the buffer of its requests, which is empty now.
            buffer.shrink()
            held_bytes = max(buffer.capacity - BUFFER_BYTES, 0)
            self._listener.unauthenticated.note_held(self, held_bytes)

    @property
    def _reads(self) -> bool:
        return not (self._is_closing or self._is_waiting or self._exchange.state is State.COMPLETE)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._write(effect.frame)
        elif isinstance(effect, Authenticated):
            self._open(effect)
        elif isinstance(effect, Compute):
            self._compute(effect)
        else:
            self._close(effect)

    def _write(self, frame: bytes) -> None:
        transport = self._connection.responses.transport
        if not frame or transport is None or transport.is_closing():
            return
        transport.write(frame)
        if transport.get_write_buffer_size() > UNREAD_RESPONSES_BYTES_MAX:
            # An orderly end would wait until the responses are read.
            self._close(Close(0, "it does not read the answers"))
            self._connection.abort(None)

    def _shut(self) -> None:
        connection = self._connection
        connection.requests.suspend()
        connection.buffer_updated = self.buffer_updated

    def _use_these_functions(self) -> None:
        """Transports look the functions of their protocol up once."""
        transport = self._connection.responses.transport
        if transport is not None:
            transport.set_protocol(self._connection)

    def _open(self, known: Authenticated) -> None:
        self._write(known.frame)
        if self._is_closing:
            return
        shared, connection = self._listener.unauthenticated, self._connection
        shared.remove(self)
        shared.successes += 1
        if not known.is_again:
            self._listener.successes += 1
        requests = connection.requests
        connection.principal, connection.is_token = known.principal, known.is_token
        requests.limit_session(known.lifetime_ms)
        connection.buffer_updated = requests.buffer_updated
        self._use_these_functions()
        requests.end_suspension()

    def _close(self, effect: Close) -> None:
        """A failure that is answered late holds its socket, and nothing else."""
        if self._is_closing:
            return
        self._is_closing = True
        shared, connection = self._listener.unauthenticated, self._connection
        shared.remove(self)
        self._listener.failures += 1
        shared.note_failure(connection.peer_host, f"listener {self._listener.name}: {effect.reason}")
        connection.responses.is_closing = True
        transport = connection.responses.transport
        if transport is None or transport.is_closing():
            return
        transport.pause_reading()
        connection.requests.buffer.shrink()

        def end() -> None:
            if transport.is_closing():
                return
            if effect.frame is None:
                transport.close()
            else:
                transport.write(effect.frame)
                self._listener.timers.after(RESPONSE_READ_MS, transport.close)

        if effect.after_ms:
            self._listener.timers.after(effect.after_ms, end)
        else:
            end()

    # Mechanisms that wait

    def _compute(self, effect: Compute) -> None:
        if len(self._listener.workers) >= COMPUTATIONS_MAX:
            self._close(Close(0, "too many authentications wait for a worker"))
            return
        self._is_waiting = True

        def work() -> Work[bytes | None]:
            if self._is_closing:
                # The client has gone, and others wait for the worker.
                return None
            result: bytes | None = yield effect.call
            return result

        def failed(error: Exception) -> None:
            if isinstance(error, AuthenticationFailed):
                self._computed(effect, error)
            else:
                self._broken(error)

        self._listener.workers.run(work(), lambda result: self._computed(effect, result), failed)

    def _computed(self, effect: Compute, result: bytes | AuthenticationFailed | None) -> None:
        self._is_waiting = False
        if not self._is_closing:
            self._carry_out(effect.go_on(result, self._listener.now_ms()))
            self.serve()

    def _broken(self, error: Exception) -> None:
        self._is_waiting = False
        self._listener.unauthenticated.note_fault(self._listener.name, error)
        self._close(Close(0, "internal error"))
