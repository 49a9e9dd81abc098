"""The HTTP endpoint of `--metrics`: `/metrics`, `/health/live`, `/health/ready`, `/admin`.

GET and HEAD, without a body. Scrapes at the same time share one response, which is made in pieces: clients of
the broker are served in between.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from odradek.server.metrics.details import admin_page, reasons_not_ready
from odradek.server.metrics.disk_space import DiskSpace
from odradek.server.metrics.exposition import CONTENT_TYPE, pieces
from odradek.server.metrics.loop_watch import LoopWatch
from odradek.server.metrics.new_connections import CreationRates
from odradek.server.metrics.sources import Sources
from odradek.server.network.http_server import JSON, TEXT, HttpRequest, HttpResponse, HttpServer

if TYPE_CHECKING:
    from odradek.server.metrics.observed import Observed


class Endpoint:
    """Serves at an address from `open` to `close`."""

    def __init__(self, server: Observed, now_ms: Callable[[], int], series_max: int) -> None:
        self._server = server
        self._now_ms = now_ms
        self._series_max = series_max
        self._http = HttpServer(self._respond)
        self._scrape: asyncio.Task[bytes] | None = None
        self._pages: dict[str, Callable[[], Awaitable[HttpResponse]]] = {
            "/metrics": self._metrics,
            "/health/live": self._live,
            "/health/ready": self._ready,
            "/admin": self._admin,
        }

    async def open(self, host: str, port: int, bound: Sequence[socket.socket] = ()) -> int:
        """The real port. `bound` are the sockets of the address, if there are some already. OSError if it
        cannot be had."""
        loop = asyncio.get_running_loop()
        self._watch = LoopWatch(loop)
        self._disks = DiskSpace(loop, self._usable_directories)
        self._creation_rates = CreationRates(loop, lambda: self._server.connections.created)
        self._sources = Sources(
            self._server, self._series_max, self._watch, self._disks, self._creation_rates
        )
        return await self._http.open(host, port, bound)

    async def close(self) -> None:
        """Ends all connections."""
        self._watch.close()
        self._disks.close()
        self._creation_rates.close()
        await self._http.close()
        if self._scrape is not None:
            self._scrape.cancel()
            await asyncio.gather(self._scrape, return_exceptions=True)

    def _usable_directories(self) -> list[str]:
        store = self._server.store
        failures = store.failing_disks.failures
        return [path for path in store.directories if path not in failures]

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        page = self._pages.get(request.path)
        if page is None:
            return HttpResponse(404, TEXT, f"there are {', '.join(self._pages)}\n".encode())
        return await page()

    # Pages

    async def _metrics(self) -> HttpResponse:
        if self._scrape is None:
            self._scrape = asyncio.get_running_loop().create_task(self._scraped())
            self._scrape.add_done_callback(self._scrape_done)
        # A client that goes away does not end what others wait for.
        return HttpResponse(200, CONTENT_TYPE, await asyncio.shield(self._scrape))

    def _scrape_done(self, _: asyncio.Task[bytes]) -> None:
        self._scrape = None

    async def _scraped(self) -> bytes:
        made = _paused(pieces(self._sources.samples(self._now_ms())))
        return b"".join([piece.encode() async for piece in made])

    async def _live(self) -> HttpResponse:
        """That it answers says that the loop runs."""
        return HttpResponse(200, TEXT, b"live\n")

    async def _ready(self) -> HttpResponse:
        reasons = reasons_not_ready(self._server)
        if reasons:
            return HttpResponse(503, TEXT, "".join(f"{reason}\n" for reason in reasons).encode())
        return HttpResponse(200, TEXT, b"ready\n")

    async def _admin(self) -> HttpResponse:
        return HttpResponse(200, JSON, json.dumps(admin_page(self._server), indent=1).encode() + b"\n")


async def _paused(made: Iterator[str]) -> AsyncIterator[str]:
    for piece in made:
        yield piece
        await asyncio.sleep(0)
