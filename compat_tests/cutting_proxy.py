"""A proxy between two processes whose network fails: in one direction, in both, slowly, or with wrong bytes.

What a direction that is cut was given waits, and comes when it is mended: so does TCP between two machines
that cannot reach each other for a while. Connections can be made all the time, as the listener is here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

PIECE_BYTES = 65_536


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

    def carry(self, source: socket.socket, target: socket.socket) -> None:
        """Until one of the two ends."""
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._pass(piece, target)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pass(self, piece: bytes, target: socket.socket) -> None:
        self._is_whole.wait()
        if self.bytes_per_second is not None:
            self._is_closed.wait(len(piece) / self.bytes_per_second)
        if self._is_closed.is_set():
            raise ConnectionAbortedError
        change = self.change
        target.sendall(piece if change is None else change(piece))
        self.passed_bytes += len(piece)


class CuttingProxy:
    """Listens on `port`, and connects each client to `target_port`. `requests` are the bytes to the target,
    `answers` those from it.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.requests, self.answers = Direction(), Direction()
        self.refused = 0
        """Connections that ended at once, as nobody listens at the target."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def mend(self) -> None:
        """Both directions pass all again, as it comes."""
        for direction in (self.requests, self.answers):
            direction.bytes_per_second = direction.change = None
            direction.mend()

    def drop(self) -> None:
        """Ends the connections that there are. Others can be made."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends all connections."""
        for direction in (self.requests, self.answers):
            direction.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, act: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            target = socket.create_connection(("127.0.0.1", self.target_port))
        except OSError:
            client.close()
            self.refused += 1
            return
        for one in (client, target):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets.append(one)
        self._start(self.requests.carry, client, target)
        self._start(self.answers.carry, target, client)
