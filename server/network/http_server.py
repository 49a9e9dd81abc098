"""A small HTTP server: HTTP/1.0 and 1.1, one request after the other on a connection.

Each limit has a bound, and a client that breaks one is answered and closed. A long response is compressed in
pieces, so that clients of the broker are served in between.
"""

from __future__ import annotations

import asyncio
import os
import socket
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

REQUEST_BYTES_MAX = 8 * 1024
"""Limit of a request without its body."""
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
TEXT, JSON = "text/plain", "application/json"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Without a query."""
    headers: dict[str, str]
    """By names in lower case."""
    is_http_10: bool
    body: bytes = b""


class HttpResponse(NamedTuple):
    status: int
    content_type: str
    body: bytes


class HttpRefused(Exception):
    """The request is refused, and the connection is closed."""

    def __init__(self, status: int) -> None:
        super().__init__(_REASONS[status])
        self.status = status


class HttpServer:
    """Serves at an address from `open` to `close`. `respond` is awaited with each request of one of the
    methods; a request of another method is refused here."""

    def __init__(
        self,
        respond: Callable[[HttpRequest], Awaitable[HttpResponse]],
        *,
        methods: Sequence[str] = ("GET", "HEAD"),
        body_bytes_max: int = 0,
    ) -> None:
        self._respond_to = respond
        self._methods = methods
        self._body_bytes_max = body_bytes_max
        self._connections: set[asyncio.Task[None]] = set()
        self._listening: list[asyncio.Server] = []

    async def open(self, host: str, port: int, bound: Sequence[socket.socket] = ()) -> int:
        """The real port; 0 for a socket of the file system. `bound` are the sockets of the address, if there
        are some already. OSError if it cannot be had."""
        if bound:
            self._listening = [await self._serve_socket(one) for one in bound]
        else:
            self._listening = [
                await asyncio.start_server(
                    self._connected, host, port, limit=REQUEST_BYTES_MAX, reuse_address=True
                )
            ]
        name = self._listening[0].sockets[0].getsockname()
        return int(name[1]) if isinstance(name, tuple) else 0

    async def _serve_socket(self, bound: socket.socket) -> asyncio.Server:
        if bound.family == socket.AF_UNIX:
            return await asyncio.start_unix_server(self._connected, sock=bound, limit=REQUEST_BYTES_MAX)
        return await asyncio.start_server(self._connected, sock=bound, limit=REQUEST_BYTES_MAX)

    async def close(self) -> None:
        """Ends all connections."""
        for listening in self._listening:
            listening.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Connections

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > CONNECTIONS_MAX:
                await self._send(writer, None, HttpResponse(503, TEXT, b"too many connections\n"))
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
            except HttpRefused as refused:
                await self._send(writer, None, HttpResponse(refused.status, TEXT, f"{refused}\n".encode()))
                return
            if request is None:
                return
            await self._send(writer, request, await self._handle(request))
            wanted = request.headers.get("connection", "close" if request.is_http_10 else "").lower()
            if wanted == "close":
                return

    async def _read(self, reader: asyncio.StreamReader) -> HttpRequest | None:
        """None at the end of the connection."""
        try:
            async with asyncio.timeout(IDLE_SECONDS_MAX):
                first = await reader.read(1)
            if not first:
                return None
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                request = _parsed(first + await reader.readuntil(b"\r\n\r\n"))
                body_bytes = self._body_bytes(request)
                if body_bytes:
                    request = request._replace(body=await reader.readexactly(body_bytes))
        except TimeoutError:
            raise HttpRefused(408) from None
        except asyncio.LimitOverrunError:
            raise HttpRefused(431) from None
        return request

    def _body_bytes(self, request: HttpRequest) -> int:
        text = request.headers.get("content-length", "0")
        if not text.isascii() or not text.isdecimal() or "transfer-encoding" in request.headers:
            raise HttpRefused(400)
        size_bytes = int(text[:20])
        if size_bytes > self._body_bytes_max:
            raise HttpRefused(413 if self._body_bytes_max else 400)
        return size_bytes

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        if request.method not in self._methods:
            return HttpResponse(405, TEXT, f"{_list_of(self._methods)} are served\n".encode())
        return await self._respond_to(request)

    async def _send(
        self, writer: asyncio.StreamWriter, request: HttpRequest | None, response: HttpResponse
    ) -> None:
        status, content_type, body = response
        headers = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Type: {content_type}"]
        accepted = "" if request is None else request.headers.get("accept-encoding", "")
        if len(body) >= GZIP_AT_LEAST_BYTES and "gzip" in accepted:
            body = await _compressed(body)
            headers.append("Content-Encoding: gzip")
        headers.append(f"Content-Length: {len(body)}")
        if status == 405:
            headers.append(f"Allow: {', '.join(self._methods)}")
        if request is None:
            headers.append("Connection: close")
        elif request.method == "HEAD":
            body = b""
        head = "\r\n".join(headers) + "\r\nCache-Control: no-store\r\n\r\n"
        # One write: a head and a body apart would wait for the peer's acknowledgement (Nagle).
        writer.write(head.encode("latin-1") + body)
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await writer.drain()


def listen_reason(error: OSError) -> str:
    """Why `HttpServer.open` failed. asyncio puts the address into the text."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _list_of(methods: Sequence[str]) -> str:
    return f"{', '.join(methods[:-1])} and {methods[-1]}"


async def _compressed(body: bytes) -> bytes:
    """With pauses, as a page may have megabytes."""
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP)
    parts = []
    for start in range(0, len(body), GZIP_PIECE_BYTES):
        parts.append(compressor.compress(body[start : start + GZIP_PIECE_BYTES]))
        await asyncio.sleep(0)
    parts.append(compressor.flush())
    return b"".join(parts)


def _parsed(head: bytes) -> HttpRequest:
    try:
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise HttpRefused(400)
            headers[name.lower()] = value.strip()
    except ValueError:
        raise HttpRefused(400) from None
    if version not in ("HTTP/1.0", "HTTP/1.1") or not target.startswith("/"):
        raise HttpRefused(400)
    return HttpRequest(method, target.partition("?")[0], headers, version == "HTTP/1.0")
