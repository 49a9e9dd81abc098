"""A TCP proxy between clients and the broker that loses connections, requests and answers when told to.

It knows no more of the protocol than frames: a length, and in a request the API key, version and correlation
id, which an answer begins with. The broker has to advertise the proxy's address (see `brokers.py`).
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable

CONNECT_SECONDS = 5.0


class Verdict(enum.Enum):
    """What becomes of a request."""

    PASS = enum.auto()
    LOSE_REQUEST = enum.auto()
    """The broker never gets it."""
    LOSE_ANSWER = enum.auto()
    """The broker gets it, the client gets no answer."""


Judge = Callable[[int, bytes], Verdict]
"""(API key, frame without its length) -> what becomes of the request."""


class Proxy:
    """Listens on a port of 127.0.0.1 and carries what comes to `target_port` there."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.judge: Judge | None = None
        """Asked about every request while it is set."""
        self.answer_lost: Callable[[int], object] | None = None
        """Called with the API key when an answer that was to be lost has come from the broker."""
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def drop_connections(self) -> int:
        """Cuts all that there are; how many those were. New ones are taken at once."""
        with self._lock:
            links, self._links = self._links, set()
        for link in links:
            link.cut()
        return len(links)

    def pause(self) -> None:
        """Nothing passes, nothing is cut, until `resume`."""
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.resume()
        self.drop_connections()

    def wait_until_open(self) -> None:
        self._open.wait()

    def forget(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._target_port), CONNECT_SECONDS)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            link = _Link(self, client, broker)
            with self._lock:
                self._links.add(link)
            link.start()


class _Link:
    """One client's connection and the one to the broker that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._unwanted: dict[int, int] = {}
        """Correlation id -> API key of the answers that are to be lost."""
        for one in (client, broker):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        for work in (self._requests, self._answers):
            threading.Thread(target=self._until_the_end, args=(work,), daemon=True).start()

    def cut(self) -> None:
        for one in (self._client, self._broker):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _until_the_end(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            work()
        self.cut()
        self._proxy.forget(self)

    def _requests(self) -> None:
        while frame := _read_frame(self._client):
            self._proxy.wait_until_open()
            judge = self._proxy.judge
            if judge is not None:
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
                verdict = judge(api_key, frame)
                if verdict is Verdict.LOSE_REQUEST:
                    continue
                if verdict is Verdict.LOSE_ANSWER:
                    self._unwanted[correlation_id] = api_key
            self._broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _answers(self) -> None:
        while frame := _read_frame(self._broker):
            self._proxy.wait_until_open()
            (correlation_id,) = struct.unpack_from(">i", frame)
            api_key = self._unwanted.pop(correlation_id, None)
            if api_key is None:
                self._client.sendall(struct.pack(">i", len(frame)) + frame)
            elif self._proxy.answer_lost is not None:
                self._proxy.answer_lost(api_key)


def _read_frame(source: socket.socket) -> bytes:
    """The next frame without its length; nothing when the connection has ended."""
    head = _read(source, 4)
    return _read(source, *struct.unpack(">i", head)) if head else b""


def _read(source: socket.socket, size_bytes: int) -> bytes:
    data = bytearray(size_bytes)
    view, at = memoryview(data), 0
    while at < size_bytes:
        got = source.recv_into(view[at:])
        if not got:
            return b""
        at += got
    return bytes(data)
