"""The HTTP endpoint of `--metrics`: `/metrics`, `/health/live`, `/health/ready`, `/admin`.

GET and HEAD of HTTP/1.0 and 1.1, one request after the other on a connection, without a body. Each limit has
a bound, and a client that breaks one is answered and closed. Scrapes at the same time share one response,
which is made in pieces: clients of the broker are served in between.
"""

from __future__ import annotations

import asyncio
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.server.metrics.details import admin_page, reasons_not_ready
from odradek.server.metrics.disk_space import DiskSpace
from odradek.server.metrics.exposition import CONTENT_TYPE, pieces
from odradek.server.metrics.loop_watch import LoopWatch
from odradek.server.metrics.new_connections import CreationRates
from odradek.server.metrics.sources import Sources

if TYPE_CHECKING:
    from odradek.server.metrics.observed import Observed

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_SECONDS_MAX = 5.0
"""For a whole request, and for a whole response to be taken."""
IDLE_SECONDS_MAX = 60.0
CONNECTIONS_MAX = 32
GZIP_LEVEL = 1
GZIP_AT_LEAST_BYTES = 1024
GZIP_PIECE_BYTES = 64 * 1024
"""Compressed without a pause: about 0.3 ms."""
_GZIP = 31
"""Value of `wbits` for the form of zlib's data that HTTP calls gzip."""
JSON_TYPE = "application/json"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class _Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    is_http_10: bool


class _Refused(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


Response = tuple[int, str, bytes]
"""Status, content type, body."""


class Endpoint:
    """Serves at an address from `open` to `close`."""

    def __init__(self, server: Observed, now_ms: Callable[[], int], series_max: int) -> None:
        self._server = server
        self._now_ms = now_ms
        self._series_max = series_max
        self._connections: set[asyncio.Task[None]] = set()
        self._scrape: asyncio.Task[bytes] | None = None
        self._pages: dict[str, Callable[[], Awaitable[Response]]] = {
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
        if bound:
            self._listening = [
                await asyncio.start_server(self._connected, sock=one, limit=REQUEST_BYTES_MAX)
                for one in bound
            ]
        else:
            self._listening = [
                await asyncio.start_server(
                    self._connected, host, port, limit=REQUEST_BYTES_MAX, reuse_address=True
                )
            ]
        return int(self._listening[0].sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Ends all connections."""
        self._watch.close()
        self._disks.close()
        self._creation_rates.close()
        for listening in self._listening:
            listening.close()
        tasks = [*self._connections, *([self._scrape] if self._scrape is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _usable_directories(self) -> list[str]:
        store = self._server.store
        failures = store.failing_disks.failures
        return [path for path in store.directories if path not in failures]

    # Connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                await self._respond(writer, None, (503, "text/plain", b"too many connections\n"))
            else:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client has gone, or is too slow
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await self._read(reader)
            except _Refused as refused:
                await self._respond(writer, None, (refused.status, "text/plain", f"{refused}\n".encode()))
                return
            if request is None:
                return
            await self._respond(writer, request, await self._handle(request))
            wanted = request.headers.get("connection", "close" if request.is_http_10 else "").lower()
            if wanted == "close":
                return

    async def _read(self, reader: asyncio.StreamReader) -> _Request | None:
        """None at the end of the connection."""
        try:
            async with asyncio.timeout(IDLE_SECONDS_MAX):
                first = await reader.read(1)
            if not first:
                return None
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                head = first + await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise _Refused(408) from None
        except asyncio.LimitOverrunError:
            raise _Refused(431) from None
        return _parsed(head)

    async def _handle(self, request: _Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return 405, "text/plain", b"GET and HEAD are served\n"
        page = self._pages.get(request.path)
        if page is None:
            return 404, "text/plain", f"there are {', '.join(self._pages)}\n".encode()
        return await page()

    async def _respond(
        self, writer: asyncio.StreamWriter, request: _Request | None, response: Response
    ) -> None:
        status, content_type, body = response
        headers = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Type: {content_type}"]
        accepted = "" if request is None else request.headers.get("accept-encoding", "")
        if len(body) >= GZIP_AT_LEAST_BYTES and "gzip" in accepted:
            body = await _compressed(body)
            headers.append("Content-Encoding: gzip")
        headers.append(f"Content-Length: {len(body)}")
        if status == 405:
            headers.append("Allow: GET, HEAD")
        if request is None:
            headers.append("Connection: close")
        elif request.method == "HEAD":
            body = b""
        head = "\r\n".join(headers) + "\r\nCache-Control: no-store\r\n\r\n"
        # One write: a head and a body apart would wait for the peer's acknowledgement (Nagle).
        writer.write(head.encode("latin-1") + body)
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await writer.drain()

    # Pages

    async def _metrics(self) -> Response:
        if self._scrape is None:
            self._scrape = asyncio.get_running_loop().create_task(self._scraped())
            self._scrape.add_done_callback(self._scrape_done)
        # A client that goes away does not end what others wait for.
        return 200, CONTENT_TYPE, await asyncio.shield(self._scrape)

    def _scrape_done(self, _: asyncio.Task[bytes]) -> None:
        self._scrape = None

    async def _scraped(self) -> bytes:
        made = _paused(pieces(self._sources.samples(self._now_ms())))
        return b"".join([piece.encode() async for piece in made])

    async def _live(self) -> Response:
        """That it answers says that the loop runs."""
        return 200, "text/plain", b"live\n"

    async def _ready(self) -> Response:
        reasons = reasons_not_ready(self._server)
        if reasons:
            return 503, "text/plain", "".join(f"{reason}\n" for reason in reasons).encode()
        return 200, "text/plain", b"ready\n"

    async def _admin(self) -> Response:
        return 200, JSON_TYPE, json.dumps(admin_page(self._server), indent=1).encode() + b"\n"


async def _compressed(body: bytes) -> bytes:
    """With pauses, as a page may have megabytes."""
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP)
    parts = []
    for start in range(0, len(body), GZIP_PIECE_BYTES):
        parts.append(compressor.compress(body[start : start + GZIP_PIECE_BYTES]))
        await asyncio.sleep(0)
    parts.append(compressor.flush())
    return b"".join(parts)


async def _paused(made: Iterator[str]) -> AsyncIterator[str]:
    for piece in made:
        yield piece
        await asyncio.sleep(0)


def _parsed(head: bytes) -> _Request:
    try:
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise _Refused(400)
            headers[name.lower()] = value.strip()
    except ValueError:
        raise _Refused(400) from None
    if version not in ("HTTP/1.0", "HTTP/1.1") or not target.startswith("/"):
        raise _Refused(400)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise _Refused(400)  # nothing here takes a body
    return _Request(method, target.partition("?")[0], headers, version == "HTTP/1.0")
