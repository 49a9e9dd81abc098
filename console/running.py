"""A console at a socket that is bound already: by this process, or by one that handed it over.

with bound("127.0.0.1", 9080) as listening:
    serve(settings, [listening])
"""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.client.client_error import ClientError
from odradek.config.os_reason import reason_of
from odradek.console.app import make_app
from odradek.console.settings import ConsoleSettings

REQUESTS_MAX = 200
"""At once, waiting ones included; more get 503."""
KEEP_ALIVE_S = 20
SHUTDOWN_S = 10
"""Bound of the wait for pages that are being made; tails end at once."""
BACKLOG = 128
IDLE_CHECK_S = 5.0


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any that is free. ClientError if that cannot be."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ClientError(f"{host} is not an address of this machine: {_reason(error)}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ClientError(f"{host}:{port} cannot be listened at: {reason_of(error)}") from None
    return listening


def handed_over(number: int) -> socket.socket:
    """The listening socket of a file descriptor that this process was started with. ClientError."""
    try:
        return socket.socket(fileno=number)
    except OSError as error:
        raise ClientError(f"the file descriptor {number} is not a socket: {reason_of(error)}") from None


@dataclass(frozen=True, slots=True)
class Life:
    """When a console ends that no signal has ended."""

    idle_s: float | None = None
    """After so many seconds without a request; None: never."""
    lifeline: int | None = None
    """A descriptor whose other end closes when it has to end."""


class Activity:
    """Counts the requests under way, around an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way = 0
        self._ended_s = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way -= 1
            self._ended_s = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds without a request; 0 while one is under way."""
        return 0.0 if self._under_way else time.monotonic() - self._ended_s


def serve(
    settings: ConsoleSettings,
    listening: Sequence[socket.socket],
    *,
    certificate: str | None = None,
    key: str | None = None,
    started: Callable[[], object] | None = None,
    life: Life = Life(),
) -> None:
    """Serves until a signal ends it (SIGINT, SIGTERM), or its `life` does. `certificate` and `key` are files
    in PEM, for https; `started` is called when requests are served."""
    app = make_app(settings)
    activity = Activity(app)
    config = uvicorn.Config(
        activity,
        http="h11",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=REQUESTS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    _Server(config, app.state.shared.tails.end, started, activity, life).run([*listening])


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        end_tails: Callable[[], object],
        started: Callable[[], object] | None,
        activity: Activity,
        life: Life,
    ) -> None:
        super().__init__(config)
        self._end_tails, self._tell = end_tails, started
        self._activity, self._life = activity, life

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._life.lifeline is not None:
            asyncio.get_running_loop().add_reader(self._life.lifeline, self._parent_has_ended)
        self._look_whether_idle()
        if self.started and self._tell is not None:
            self._tell()

    def _parent_has_ended(self) -> None:
        assert self._life.lifeline is not None
        asyncio.get_running_loop().remove_reader(self._life.lifeline)
        self.should_exit = True

    def _look_whether_idle(self) -> None:
        if self._life.idle_s is None:
            return
        left_s = self._life.idle_s - self._activity.idle_s
        if left_s <= 0:
            self.should_exit = True
        else:
            asyncio.get_running_loop().call_later(min(left_s, IDLE_CHECK_S), self._look_whether_idle)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_tails()
        await super().shutdown(sockets)


def _reason(error: Exception) -> str:
    return reason_of(error) if isinstance(error, OSError) else "it is not a name of a host"
