"""A console at a socket that is bound already: by this process, or by one that handed it over.

with bound("127.0.0.1", 9080) as listening:
    serve(settings, listening)
"""

import socket
from collections.abc import Callable

import uvicorn

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


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any that is free. ClientError if that cannot be."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ClientError(f"{host} is no address of this machine: {_reason(error)}") from None
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
        raise ClientError(f"the file descriptor {number} is no socket: {reason_of(error)}") from None


def serve(
    settings: ConsoleSettings,
    listening: socket.socket,
    *,
    certificate: str | None = None,
    key: str | None = None,
    started: Callable[[], object] | None = None,
) -> None:
    """Serves until a signal ends it (SIGINT, SIGTERM). `certificate` and `key` are files in PEM, for https;
    `started` is called when requests are served."""
    app = make_app(settings)
    config = uvicorn.Config(
        app,
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
    _Server(config, app.state.shared.tails.end, started).run([listening])


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, end_tails: Callable[[], object], started: Callable[[], object] | None
    ) -> None:
        super().__init__(config)
        self._end_tails, self._tell = end_tails, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._tell is not None:
            self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_tails()
        await super().shutdown(sockets)


def _reason(error: Exception) -> str:
    return reason_of(error) if isinstance(error, OSError) else "it is not a name of a host"
