"""`python -m benchmarks.kernel_floor [DIR]`: what the kernel alone takes of a produce of large batches.

One process waits for its connections (epoll), reads a piece from a socket into the same memory again and
again, writes it to the end of a new file and sends one byte back; the other process sends the next piece on
that connection. No broker that takes bytes by read and stores them by write can be faster: it has to look at
them besides. Each process is on a core of its own, and the page cache is filled first, as in the bulk cases
(`benchmarks.page_cache`).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass

from benchmarks.page_cache import fill_page_cache
from benchmarks.run import GIGABYTE

CONNECTIONS = 8
SENT_BYTES = 500_000_000


@dataclass(frozen=True)
class Floor:
    """Medians of some rounds, for pieces of one size."""

    piece_bytes: int
    kernel_seconds: float
    """CPU spent inside the kernel for each GB."""
    rate: float
    """MB/s that were reached, with the little that Python does between the calls."""

    def __str__(self) -> str:
        most = 1000 / self.kernel_seconds
        return (
            f"pieces of {self.piece_bytes:,} B: {self.kernel_seconds:.2f} s of CPU in the kernel for a GB, "
            f"so at the very most {most:,.0f} MB/s on one core ({self.rate:,.0f} MB/s were reached)"
        )


def _send(port: int, core: int, piece_bytes: int) -> None:
    os.sched_setaffinity(0, {core})
    piece = os.urandom(piece_bytes)
    left = SENT_BYTES // piece_bytes
    poll = select.epoll()
    peers = {}
    for _ in range(CONNECTIONS):
        peer = socket.create_connection(("127.0.0.1", port))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peers[peer.fileno()] = peer
        poll.register(peer, select.EPOLLIN)
    # Not before all are there: a piece goes out no faster than it is read.
    for peer in peers.values():
        peer.sendall(piece)
    left -= CONNECTIONS
    waiting = CONNECTIONS
    while waiting:
        for descriptor, _ in poll.poll():
            peers[descriptor].recv(1)
            waiting -= 1
            if left:
                peers[descriptor].sendall(piece)
                left -= 1
                waiting += 1
    for peer in peers.values():
        peer.close()


def _store(listening: socket.socket, path: pathlib.Path, core: int, piece_bytes: int) -> tuple[float, float]:
    """Seconds, and seconds of CPU in the kernel, for all pieces."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    poll = select.epoll()
    peers = {}
    filled = {}
    for _ in range(CONNECTIONS):
        peer, _ = listening.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peers[peer.fileno()] = peer
        filled[peer.fileno()] = 0
        poll.register(peer, select.EPOLLIN)
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    piece = memoryview(bytearray(piece_bytes))
    position = 0
    left = SENT_BYTES // piece_bytes
    try:
        started, cpu_started = time.perf_counter(), os.times().system
        while left:
            for descriptor, _ in poll.poll():
                peer = peers[descriptor]
                taken = filled[descriptor] + peer.recv_into(piece[filled[descriptor] :])
                if taken < piece_bytes:
                    filled[descriptor] = taken
                    continue
                filled[descriptor] = 0
                os.pwrite(file, piece, position)
                position += piece_bytes
                peer.send(b".")
                left -= 1
        return time.perf_counter() - started, os.times().system - cpu_started
    finally:
        os.sched_setaffinity(0, allowed)
        os.close(file)
        poll.close()
        for peer in peers.values():
            peer.close()


def measure(work: pathlib.Path, server_core: int, load_core: int, piece_bytes: int, rounds: int = 5) -> Floor:
    """For pieces of this size."""
    rates, costs = [], []
    sent_bytes = SENT_BYTES // piece_bytes * piece_bytes
    for _ in range(rounds):
        os.sync()
        fill_page_cache(work)
        with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as listening:
            child = os.fork()
            if child == 0:
                try:
                    _send(listening.getsockname()[1], load_core, piece_bytes)
                finally:
                    os._exit(0)
            path = work / "kernel-floor"
            try:
                seconds, kernel_seconds = _store(listening, path, server_core, piece_bytes)
            finally:
                os.waitpid(child, 0)
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        rates.append(sent_bytes / seconds / 1e6)
        costs.append(kernel_seconds / (sent_bytes / GIGABYTE))
    return Floor(piece_bytes, statistics.median(costs), statistics.median(rates))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="odradek-floor-", dir=sys.argv[1] if sys.argv[1:] else None) as d:
        for size in (1_000_000, 16_000):
            print(measure(pathlib.Path(d), 0, 1, size))
