"""`python -m benchmarks.kernel_floor [DIR]`: what the kernel alone takes of a produce of 1 MB batches.

One process reads megabytes from a socket into the same megabyte again and again and writes each to the end
of a new file; the other sends. No broker that takes bytes by read and stores them by write can be faster: it
has to look at them besides. Each is on a core of its own, and the page cache is filled first, as in the
bulk cases (`benchmarks.page_cache`).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import statistics
import sys
import tempfile
import time

from benchmarks.page_cache import fill_page_cache
from benchmarks.run import GIGABYTE

PIECE_BYTES = 1_000_000
PIECES = 1000


def _send(port: int, core: int) -> None:
    os.sched_setaffinity(0, {core})
    piece = os.urandom(PIECE_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as peer:
        for _ in range(PIECES):
            peer.sendall(piece)
            peer.recv(1)


def _store(listening: socket.socket, path: pathlib.Path, core: int) -> tuple[float, float]:
    """Seconds and seconds of CPU for all pieces."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    peer, _ = listening.accept()
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    piece = memoryview(bytearray(PIECE_BYTES))
    try:
        started, cpu_started = time.perf_counter(), time.process_time()
        for number in range(PIECES):
            filled = 0
            while filled < PIECE_BYTES:
                filled += peer.recv_into(piece[filled:])
            os.pwrite(file, piece, number * PIECE_BYTES)
            peer.send(b".")
        return time.perf_counter() - started, time.process_time() - cpu_started
    finally:
        os.sched_setaffinity(0, allowed)
        os.close(file)
        peer.close()


def measure(work: pathlib.Path, server_core: int, load_core: int, rounds: int = 5) -> tuple[float, float]:
    """MB/s and CPU seconds for each GB: medians of some rounds."""
    rates, costs = [], []
    for _ in range(rounds):
        os.sync()
        fill_page_cache(work)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            child = os.fork()
            if child == 0:
                try:
                    _send(listening.getsockname()[1], load_core)
                finally:
                    os._exit(0)
            path = work / "kernel-floor"
            try:
                seconds, cpu_seconds = _store(listening, path, server_core)
            finally:
                os.waitpid(child, 0)
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        sent_bytes = PIECES * PIECE_BYTES
        rates.append(sent_bytes / seconds / 1e6)
        costs.append(cpu_seconds / (sent_bytes / GIGABYTE))
    return statistics.median(rates), statistics.median(costs)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="odradek-floor-", dir=sys.argv[1] if sys.argv[1:] else None) as d:
        rate, cost = measure(pathlib.Path(d), 0, 1)
        print(f"{rate:.0f} MB/s, {cost:.2f} s of CPU for each GB")
