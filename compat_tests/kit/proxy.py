"""A proxy between clients and a server whose network fails: in one direction, in both, slowly, with wrong
bytes, or for single requests and answers.

What a direction that is cut was given waits, and comes when it is mended: so does TCP between two machines
that cannot reach each other for a while. Connections can be made all the time, as the listener is here. The
server has to advertise the address of the proxy.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

PIECE_BYTES = 65_536
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


class Direction:
    """The bytes that go one way, on all connections."""

    def __init__(self) -> None:
        self.bytes_per_second: float | None = None
        """None: as fast as it comes."""
        self.change: Callable[[bytes], bytes] | None = None
        """Gets each piece, and gives what goes on."""
        self.passed_bytes = 0
        self._is_whole = threading.Event()
        self._is_whole.set()
        self._is_closed = threading.Event()

    def cut(self) -> None:
        """Nothing passes until `mend`."""
        self._is_whole.clear()

    def mend(self) -> None:
        self._is_whole.set()

    def close(self) -> None:
        self._is_closed.set()
        self.mend()

    def wait_until_whole(self) -> None:
        self._is_whole.wait()

    def carry(self, pieces: Iterable[bytes], target: socket.socket) -> None:
        """Until one of the two ends."""
        with contextlib.suppress(OSError):
            for piece in pieces:
                self._pass(piece, target)

    def _pass(self, piece: bytes, target: socket.socket) -> None:
        self.wait_until_whole()
        if self.bytes_per_second is not None:
            self._is_closed.wait(len(piece) / self.bytes_per_second)
        if self._is_closed.is_set():
            raise ConnectionAbortedError
        change = self.change
        target.sendall(piece if change is None else change(piece))
        self.passed_bytes += len(piece)


class Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.unwanted: dict[int, int] = {}
        """Correlation id -> API key of the answers that are to be lost."""
        self.is_cut = False
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def cut(self) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        # Not before: another thread that wants it cut would go on, and bytes behind those that it has lost
        # would still pass.
        self.is_cut = True

    def close(self) -> None:
        for one in (self.client, self.server):
            one.close()


class Proxy:
    """Listens on a port of 127.0.0.1, and connects each client to `target_port` there. `requests` are the
    bytes to the target, `answers` those from it.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.requests, self.answers = Direction(), Direction()
        self.refused = 0
        """Connections that ended at once, as nobody listens at the target."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._links: dict[Link, threading.Thread] = {}
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Nothing passes until `mend`; all connections stay."""
        for direction in (self.requests, self.answers):
            direction.cut()

    def mend(self) -> None:
        """Both directions pass all again, as it comes."""
        for direction in (self.requests, self.answers):
            direction.bytes_per_second = direction.change = None
            direction.mend()

    def drop_connections(self) -> int:
        """Ends the connections that there are; how many those were. Others can be made at once."""
        with self._lock:
            links = [link for link in self._links if not link.is_cut]
        for link in links:
            link.cut()
        return len(links)

    def close(self) -> None:
        """Ends all connections."""
        for direction in (self.requests, self.answers):
            direction.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(2 * CONNECT_SECONDS)
        self.drop_connections()
        with self._lock:
            threads = [*self._links.values()]
        for thread in threads:
            thread.join(2 * CONNECT_SECONDS)

    def requests_of(self, link: Link) -> Iterator[bytes]:
        """Pieces as they come, until the client ends."""
        return _pieces(link.client)

    def answers_of(self, link: Link) -> Iterator[bytes]:
        return _pieces(link.server)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target_port), CONNECT_SECONDS)
        except OSError:
            client.close()
            self.refused += 1
            return
        server.settimeout(None)
        link = Link(client, server)
        thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
        with self._lock:
            self._links[link] = thread
        thread.start()

    def _serve(self, link: Link) -> None:
        def carry(direction: Direction, pieces: Iterator[bytes], target: socket.socket) -> None:
            direction.carry(pieces, target)
            link.cut()

        back = threading.Thread(
            target=carry, args=(self.answers, self.answers_of(link), link.client), daemon=True
        )
        back.start()
        carry(self.requests, self.requests_of(link), link.server)
        back.join()
        link.close()
        with self._lock:
            del self._links[link]


class JudgingProxy(Proxy):
    """One that loses requests and answers when told to.

    It knows no more of the protocol than frames: a length, and in a request the API key, version and
    correlation id, which an answer begins with.
    """

    judge: Judge | None = None
    """Asked about every request while it is set."""
    answer_lost: Callable[[int], object] | None = None
    """Called with the API key when an answer that was to be lost has come from the broker."""

    def requests_of(self, link: Link) -> Iterator[bytes]:
        while frame := _read_frame(link.client):
            self.requests.wait_until_whole()
            judge = self.judge
            if judge is not None:
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
                verdict = judge(api_key, frame)
                if verdict is Verdict.LOSE_REQUEST:
                    continue
                if verdict is Verdict.LOSE_ANSWER:
                    link.unwanted[correlation_id] = api_key
            yield struct.pack(">i", len(frame)) + frame

    def answers_of(self, link: Link) -> Iterator[bytes]:
        while frame := _read_frame(link.server):
            self.answers.wait_until_whole()
            (correlation_id,) = struct.unpack_from(">i", frame)
            api_key = link.unwanted.pop(correlation_id, None)
            if api_key is None:
                yield struct.pack(">i", len(frame)) + frame
            elif (answer_lost := self.answer_lost) is not None:
                answer_lost(api_key)


def _pieces(source: socket.socket) -> Iterator[bytes]:
    while piece := source.recv(PIECE_BYTES):
        yield piece


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
