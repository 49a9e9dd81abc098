"""Requests that the broker makes to itself, for what old tools ask for in ZooKeeper.

They go through the handlers of clients, so that they are checked and carried out in the same way. In a
cluster the controllers get them instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any

from odradek.apis.api import RequestContext, Waiting

if TYPE_CHECKING:
    from odradek.server.network.routes import Routes
    from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
    from odradek.wire.schema import Message

CLIENT_ID = "zookeeper"


class _OwnConnection:
    """No client is at its other end (`ConnectionInfo`)."""

    peer_host = local_host = advertised_host = "127.0.0.1"
    peer_port = local_port = advertised_port = 0
    listener_name = ""
    principal = "User:zookeeper"
    granted: Any = None
    is_token = False
    client_software_name = client_software_version = CLIENT_ID

    def begin_reauthentication(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        return None

    def when_closed(self, callback: Callable[[Any], None]) -> None:
        """Ignores the callback: the connection is never closed."""

    def close(self, reason: str) -> None:
        """There is nothing to close."""


class OwnRequests:
    """`ask` may be called in any thread."""

    def __init__(self, routes: Routes, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self._routes = routes
        self._loop = loop
        self._now_ms = now_ms

    def ask(self, request: Message) -> Future[Any]:
        """The response, which never says that somebody may not: who can write in ZooKeeper may do all."""
        answered: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._begin, request, answered)
        return answered

    def _begin(self, request: Message, answered: Future[Any]) -> None:
        try:
            served = self._routes.served(request.api_key)
            context = RequestContext(
                request.api_key, served.api.versions[-1], 0, CLIENT_ID, _OwnConnection(), self._now_ms()
            )
            outcome = served.handle(request, context)
        except Exception as error:
            with contextlib.suppress(InvalidStateError):
                answered.set_exception(error)
            return

        def take(response: Any) -> None:
            with contextlib.suppress(InvalidStateError):  # cancelled: nobody waits for it any more
                answered.set_result(response)

        if isinstance(outcome, Waiting):
            outcome.on_complete(take)
        else:
            take(outcome)
