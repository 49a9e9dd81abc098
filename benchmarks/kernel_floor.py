"""`python -m benchmarks.kernel_floor [DIR]`: what the kernel alone takes of large produces and fetches.

One process waits for its connections (epoll), reads a piece from a socket into the same memory again and
again, writes it to the end of a new file and sends one byte back; the other process sends the next piece on
that connection. No broker that takes bytes by read and stores them by write can be faster: it has to look at
them besides. The other way of storing them, `splice` through a pipe of each connection, copies them once
instead of twice, but shows them to nobody until they are in the file: their checksums have to be taken from
a mapping of it. It is measured with that, of which the kernel's part is the faults. Each process is on a core
of its own, and the page cache is filled first, as in the bulk cases (`benchmarks.page_cache`).

A fetch hands pages of a file to a socket, from a mapping of the file (as the broker does) or by `sendfile`
(as Apache Kafka does). The cost of that copy changes from minute to minute on some machines: least and most
are shown, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import pathlib
import resource
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import crc32c

from benchmarks.page_cache import fill_page_cache
from benchmarks.run import GIGABYTE

CONNECTIONS = 8
SENT_BYTES = 500_000_000
HANDED_OUT_BYTES = 1_000_000
READ_AT_ONCE_BYTES = 1 << 18
PIPE_BYTES = 1 << 20


@dataclass(frozen=True)
class Floor:
    """Medians of some rounds, for pieces of one size and one way of storing them."""

    piece_bytes: int
    by_splice: bool
    kernel_seconds: float
    """CPU spent inside the kernel for each GB."""
    rate: float
    """MB/s that were reached, with the little that Python does between the calls."""

    def __str__(self) -> str:
        most = 1000 / self.kernel_seconds
        return (
            f"pieces of {self.piece_bytes:,} B{' by splice' if self.by_splice else ''}: "
            f"{self.kernel_seconds:.2f} s of CPU in the kernel for a GB, "
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
    waiting = open_count = CONNECTIONS
    while waiting and open_count:
        for descriptor, _ in poll.poll():
            if not peers[descriptor].recv(1):
                # The other process is at its end, and closes all at once: answers to others may be left.
                poll.unregister(descriptor)
                open_count -= 1
                continue
            waiting -= 1
            if left:
                peers[descriptor].sendall(piece)
                left -= 1
                waiting += 1
    for peer in peers.values():
        peer.close()


class _ByWrite:
    """Into memory, which stays the same, and from there into the file."""

    def __init__(self, path: pathlib.Path, piece_bytes: int) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self._piece = memoryview(bytearray(piece_bytes))

    def take(self, peer: socket.socket, filled: int) -> int:
        """Takes what has come of a piece behind its first `filled` bytes; returns their number."""
        return peer.recv_into(self._piece[filled:])

    def store(self, peer: socket.socket, position: int) -> None:
        os.pwrite(self._file, self._piece, position)

    def close(self) -> None:
        os.close(self._file)


class _BySplice:
    """Into a pipe, and from there into the file; then it is read in a mapping, for its checksum."""

    def __init__(self, path: pathlib.Path, piece_bytes: int) -> None:
        self._piece_bytes = piece_bytes
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
        os.ftruncate(self._file, SENT_BYTES)
        self._mapped = mmap.mmap(self._file, SENT_BYTES, prot=mmap.PROT_READ)
        self._view = memoryview(self._mapped)
        self._pipes: dict[int, tuple[int, int]] = {}

    def take(self, peer: socket.socket, filled: int) -> int:
        if (pipe := self._pipes.get(peer.fileno())) is None:
            pipe = self._pipes[peer.fileno()] = os.pipe()
            fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return os.splice(peer.fileno(), pipe[1], self._piece_bytes - filled)

    def store(self, peer: socket.socket, position: int) -> None:
        end = position + self._piece_bytes
        done = position
        while done < end:
            done += os.splice(self._pipes[peer.fileno()][0], self._file, end - done, offset_dst=done)
        crc32c.crc32c(self._view[position:end])

    def close(self) -> None:
        self._view.release()
        self._mapped.close()
        for descriptor in (self._file, *(end for pipe in self._pipes.values() for end in pipe)):
            os.close(descriptor)


def _store(
    listening: socket.socket, storing: _ByWrite | _BySplice, core: int, piece_bytes: int
) -> tuple[float, float]:
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
    position = 0
    left = SENT_BYTES // piece_bytes
    try:
        started, cpu_started = time.perf_counter(), os.times().system
        while left:
            for descriptor, _ in poll.poll():
                peer = peers[descriptor]
                taken = filled[descriptor] + storing.take(peer, filled[descriptor])
                if taken < piece_bytes:
                    filled[descriptor] = taken
                    continue
                filled[descriptor] = 0
                storing.store(peer, position)
                position += piece_bytes
                peer.send(b".")
                left -= 1
        return time.perf_counter() - started, os.times().system - cpu_started
    finally:
        os.sched_setaffinity(0, allowed)
        storing.close()
        poll.close()
        for peer in peers.values():
            peer.close()


@contextlib.contextmanager
def _beside(other: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Runs `other` in a process of its own meanwhile; its end is waited for."""
    child = os.fork()
    if child == 0:
        try:
            other(*arguments)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.waitpid(child, 0)


def measure(
    work: pathlib.Path,
    server_core: int,
    load_core: int,
    piece_bytes: int,
    rounds: int = 5,
    *,
    by_splice: bool = False,
) -> Floor:
    """For pieces of this size, at most `PIPE_BYTES`."""
    rates, costs = [], []
    sent_bytes = SENT_BYTES // piece_bytes * piece_bytes
    for _ in range(rounds):
        os.sync()
        fill_page_cache(work)
        with socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS) as listening:
            path = work / "kernel-floor"
            try:
                with _beside(_send, listening.getsockname()[1], load_core, piece_bytes):
                    storing = (_BySplice if by_splice else _ByWrite)(path, piece_bytes)
                    seconds, kernel_seconds = _store(listening, storing, server_core, piece_bytes)
            finally:
                path.unlink(missing_ok=True)
        rates.append(sent_bytes / seconds / 1e6)
        costs.append(kernel_seconds / (sent_bytes / GIGABYTE))
    return Floor(piece_bytes, by_splice, statistics.median(costs), statistics.median(rates))


def _receive(port: int, core: int) -> None:
    os.sched_setaffinity(0, {core})
    room = memoryview(bytearray(READ_AT_ONCE_BYTES))
    with socket.create_connection(("127.0.0.1", port)) as peer:
        while peer.recv_into(room):
            pass


def _hand_out(listening: socket.socket, file: BinaryIO, core: int, by_sendfile: bool) -> float:
    """Seconds of CPU in the kernel for all of the file."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    peer, _ = listening.accept()
    try:
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
            # The first look at a page of a mapping costs besides; a broker takes it once for many fetches.
            sum(view[:: mmap.PAGESIZE])
            before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
            position = 0
            while position < len(view):
                size = min(HANDED_OUT_BYTES, len(view) - position)
                if by_sendfile:
                    position += os.sendfile(peer.fileno(), file.fileno(), position, size)
                else:
                    position += peer.send(view[position : position + size])
            return resource.getrusage(resource.RUSAGE_SELF).ru_stime - before
    finally:
        os.sched_setaffinity(0, allowed)
        peer.close()


def measure_fetch(
    work: pathlib.Path, server_core: int, load_core: int, by_sendfile: bool, rounds: int = 10
) -> list[float]:
    """Seconds of CPU in the kernel for a GB of a file in memory into one socket, by round, least first."""
    path = work / "kernel-floor"
    costs = []
    try:
        with path.open("wb") as file:
            for _ in range(SENT_BYTES // HANDED_OUT_BYTES):
                file.write(os.urandom(HANDED_OUT_BYTES))
        for _ in range(rounds):
            with socket.create_server(("127.0.0.1", 0)) as listening, path.open("rb") as file:
                with _beside(_receive, listening.getsockname()[1], load_core):
                    seconds = _hand_out(listening, file, server_core, by_sendfile)
                costs.append(seconds / (path.stat().st_size / GIGABYTE))
    finally:
        path.unlink(missing_ok=True)
    return sorted(costs)


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="odradek-floor-", dir=arguments[0] if arguments else None) as d:
        work = pathlib.Path(d)
        for size in (1_000_000, 16_000):
            for by_splice in (False, True):
                print(measure(work, 0, 1, size, by_splice=by_splice), flush=True)
        for by_sendfile, means in ((False, "from a mapping"), (True, "by sendfile")):
            costs = measure_fetch(work, 0, 1, by_sendfile)
            print(
                f"file to socket {means}: {statistics.median(costs):.2f} s of CPU in the kernel for a GB, "
                f"{costs[0]:.2f} to {costs[-1]:.2f} in {len(costs)} rounds",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
