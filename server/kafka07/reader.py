"""The frames of a connection of Kafka 0.7: one request after the other, responses in their order.

It stands before a connection as the gate of SASL does, and never opens: so connections of 0.7 are counted,
limited and closed when idle like all others. While a request is under way, and while the client does not read
its responses, the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from odradek.wire.errors import MalformedMessage
from odradek.wire.kafka07 import Unreadable
from odradek.wire.kafka07.requests import read_request

if TYPE_CHECKING:
    from odradek.server.kafka07.handlers import Handlers
    from odradek.server.network.connection import Connection
    from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse

logger = logging.getLogger("odradek.kafka07")


class Reader:
    """A `connection.Gate`. `tasks` has its work, so that the broker can end it."""

    __slots__ = ("_connection", "_handlers", "_has_ended", "_room", "_task", "_tasks")

    def __init__(self, connection: Connection, handlers: Handlers, tasks: set[asyncio.Task[None]]) -> None:
        self._connection = connection
        self._handlers = handlers
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Event | None = None
        self._has_ended = False
        connection.gate = self
        connection.requests.suspend()
        connection.buffer_updated = self.buffer_updated

    # The connection's side

    def admitted(self) -> None:
        """The connection is open."""

    def forget(self) -> None:
        """The connection has ended. The request that is under way is carried out."""
        self._has_ended = True
        self.go_on()

    def note_expired(self) -> None:
        """There are no sessions."""

    def begin_again(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        """There is no authentication."""
        return None

    def go_on(self) -> None:
        """The client has read its responses."""
        if self._room is not None:
            self._room.set()

    def buffer_updated(self, nbytes: int) -> None:
        """For the transport."""
        requests = self._connection.requests
        requests.buffer.take_in(nbytes)
        requests.active_ms = self._handlers.now_ms()
        if self._task is None:
            frame = self._next_frame()
            if frame is not None:
                self._set_reading(False)
                self._task = asyncio.get_running_loop().create_task(self._serve(frame))
                self._tasks.add(self._task)
                self._task.add_done_callback(self._tasks.discard)

    # Inside

    def _next_frame(self) -> bytes | None:
        connection = self._connection
        if self._has_ended or connection.responses.is_closing:
            return None
        try:
            request_bytes_max = self._handlers.connections.dispatcher.request_bytes_max
            return connection.requests.buffer.take_frame(request_bytes_max)
        except MalformedMessage as error:
            connection.close(f"Kafka 0.7: {error}")
            return None

    async def _serve(self, frame: bytes | None) -> None:
        connection = self._connection
        try:
            while frame is not None:
                parts = await self._handlers.respond(read_request(frame), connection)
                if parts and not self._has_ended:
                    connection.write_vector(parts)
                await self._wait_for_room()
                connection.requests.active_ms = self._handlers.now_ms()
                frame = self._next_frame()
        except Unreadable as error:
            connection.close(f"Kafka 0.7: {error}")
        except Exception:
            logger.exception("a request of Kafka 0.7 failed")
            connection.close("internal error")
        finally:
            self._task = None
        if not self._has_ended and not connection.responses.is_closing:
            connection.requests.buffer.shrink()
            self._set_reading(True)

    async def _wait_for_room(self) -> None:
        responses = self._connection.responses
        while (responses.is_pacing or responses.is_full) and not self._has_ended:
            self._room = asyncio.Event()
            await self._room.wait()
            self._room = None

    def _set_reading(self, is_reading: bool) -> None:
        transport = self._connection.responses.transport
        if transport is None or transport.is_closing():
            return
        if is_reading:
            transport.resume_reading()
        else:
            transport.pause_reading()
