"""What TLS costs a broker: `python -m benchmarks.tls`, without TLS, with ours, and with that of uvloop.

CPU time of the broker's process, so that others on the machine disturb it less than they would a clock; each
case is repeated in turn, and the best of each counts. The broker of uvloop's SSL is ours but for the layer
between the socket and the connection.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import trustme

from benchmarks.brokers import pss_bytes
from benchmarks.wire_client import PRODUCE_VERSION, WireClient, produce_request
from odradek.embedding.free_port import free_port
from odradek.server.network import ports
from odradek.wire.records import Record, build_batch

WAYS = ("none", "ours", "uvloop")
LARGE_BYTES = 1_000_000
SMALL_BYTES = 20
CONNECTIONS = 50
TOPIC = "tls"
KEPT_BATCHES = 30


@dataclass(frozen=True)
class Counts:
    """How much is done of each case."""

    megabytes: int = 2_000
    requests: int = 40_000
    idle: int = 2_000


@dataclass
class Child:
    """A broker, and how to reach it."""

    process: subprocess.Popen[bytes]
    port: int
    context: ssl.SSLContext | None

    def connect(self) -> WireClient:
        return WireClient("127.0.0.1", self.port, self.context)

    @property
    def cpu_s(self) -> float:
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_kib(self) -> int:
        return pss_bytes(self.process.pid) // 1024


def batch(size_bytes: int) -> bytes:
    return bytes(build_batch([Record(0, 1_700_000_000_000, None, os.urandom(size_bytes))]))


def produce(child: Child, counts: Counts) -> float:
    """CPU seconds a GB."""
    large = batch(LARGE_BYTES)
    with child.connect() as client:
        client.produce([TOPIC], large)
        began_s = child.cpu_s
        for _ in range(counts.megabytes):
            client.produce([TOPIC], large)
        return (child.cpu_s - began_s) / (counts.megabytes * LARGE_BYTES) * 1e9


def fetch(child: Child, counts: Counts) -> float:
    """CPU seconds a GB."""
    large = batch(LARGE_BYTES)
    with child.connect() as client:
        client.create_topics(["read"], 1)
        for _ in range(KEPT_BATCHES):
            client.produce(["read"], large)
        offsets = range(KEPT_BATCHES)
        for offset in offsets:
            client.fetch("read", offset, len(large))
        began_s, received_bytes = child.cpu_s, 0
        for number in range(counts.megabytes):
            received_bytes += len(client.fetch("read", offsets[number % KEPT_BATCHES], len(large)))
        return (child.cpu_s - began_s) / received_bytes * 1e9


def small(child: Child, counts: Counts) -> float:
    """CPU microseconds a request of one small record, one in flight on each of the connections."""
    request = produce_request([TOPIC], batch(SMALL_BYTES), (0,))
    with ExitStack() as ending:
        clients = [ending.enter_context(child.connect()) for _ in range(CONNECTIONS)]
        rounds = max(counts.requests // CONNECTIONS, 1)
        began_s = child.cpu_s
        for _ in range(rounds):
            for client in clients:
                client.send(request, PRODUCE_VERSION)
            for client in clients:
                client.receive(request, PRODUCE_VERSION)
        return (child.cpu_s - began_s) / (rounds * CONNECTIONS) * 1e6


def idle(child: Child, counts: Counts) -> float:
    """KiB of memory for a connection that has done its handshake and nothing else."""
    with ExitStack() as ending:

        def connect(count: int) -> int:
            """The memory when the broker has this many more."""
            for _ in range(count):
                ending.enter_context(child.connect())
            # They come in their order.
            ending.enter_context(child.connect()).wait_for_leaders([TOPIC], 1)
            return child.memory_kib

        before_kib = connect(100)
        return (connect(counts.idle) - before_kib) / counts.idle


CASES: dict[str, tuple[Callable[[Child, Counts], float], str]] = {
    "produce": (produce, "CPU s/GB"),
    "fetch": (fetch, "CPU s/GB"),
    "small": (small, "us/request"),
    "idle": (idle, "KiB"),
}


def measure(case: str, way: str, counts: Counts, work: pathlib.Path) -> float:
    """One case of one broker, which is started for it."""
    with tempfile.TemporaryDirectory(dir=work) as directory, started(way, pathlib.Path(directory)) as child:
        with child.connect() as client:
            client.create_topics([TOPIC], 1, {"retention.bytes": "50000000", "segment.bytes": "20000000"})
        return CASES[case][0](child, counts)


@contextmanager
def started(way: str, directory: pathlib.Path) -> Iterator[Child]:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    keys = directory / "keys.pem"
    keys.write_bytes(issued.private_key_pem.bytes() + b"".join(one.bytes() for one in issued.cert_chain_pems))
    keys.chmod(0o600)
    context = None if way == "none" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if context is not None:
        authority.configure_trust(context)
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.tls", "--serve", way, str(port), str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline(), "the broker has not started"
        yield Child(process, port, context)
    finally:
        process.terminate()
        process.wait()


def serve(way: str, port: str, directory: str) -> None:
    """In a process of its own: a broker until it is ended."""
    from odradek.commands.main import main

    if way == "uvloop":
        ports.accept = _UvloopAcceptor  # type: ignore[assignment]
    protocol = "PLAINTEXT" if way == "none" else "SSL"
    options = [f"listeners={protocol}://127.0.0.1:{port}", "log.retention.check.interval.ms=1000"]
    options.append("log.segment.delete.delay.ms=100")
    if way != "none":
        options += ["ssl.keystore.type=PEM", f"ssl.keystore.location={directory}/keys.pem"]
    sets = [word for option in options for word in ("--set", option)]
    sys.exit(main(["serve", "--data-dir", f"{directory}/data", *sets]))


class _UvloopAcceptor:
    """In place of `server.network.admission.Acceptor`: the event loop accepts, and does the TLS."""

    def __init__(self, listener: Any, sockets: Sequence[Any], connections: Any) -> None:
        self._listener = listener
        self._sockets = sockets
        self._connections = connections
        self._servers: list[asyncio.Server] = []
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for bound in self._sockets:
            self._servers.append(
                await loop.create_server(self._connect, sock=bound, ssl=self._listener.tls.context)
            )

    def _connect(self) -> Any:
        self._connections.admission.enter(self._listener.name, "127.0.0.1")
        return self._connections.connect(self._listener, "127.0.0.1")

    def close(self) -> None:
        self._task.cancel()
        for server in self._servers:
            server.close()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the amounts; 1: five minutes or so")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/dev/shm"), help="for the data")
    chosen = parser.parse_args(arguments)
    if chosen.serve:
        serve(*chosen.serve)
    whole = Counts()
    counts = Counts(
        *(max(int(one * chosen.scale), 1) for one in (whole.megabytes, whole.requests, whole.idle))
    )
    for case in chosen.cases:
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(chosen.rounds):
            for way in WAYS:
                found[way].append(measure(case, way, counts, chosen.work))
        best = {way: min(values) for way, values in found.items()}
        told = ", ".join(f"{way} {value:.3g}" for way, value in best.items())
        ratio = best["ours"] / max(best["uvloop"], 1e-9)
        print(f"{case} ({CASES[case][1]}): {told}; ours to uvloop's {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
