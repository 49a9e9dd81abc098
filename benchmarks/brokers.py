"""The two brokers of a run: Apache Kafka from its Maven jars and Odradek, each pinned where the run says."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from compat_tests import reference
from odradek.storage.checkpoints import CLEAN_SHUTDOWN
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest

KAFKA_JVM = [
    "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true",
]  # fmt: skip
"""What kafka-server-start.sh gives the JVM."""

DELETE_DELAY = "log.segment.delete.delay.ms"
"""Short, so that what one case wrote is off the disk before the next."""
RETENTION = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "200"}
"""A short pause, so that the records of bulk cases go while they write more."""
SETTINGS = {DELETE_DELAY: "100", **RETENTION}
"""What both brokers get in every run."""

PATIENCE_S = 120.0
READY_S = 3.0
"""After it a broker has made all that it makes behind its start; its memory is measured from there."""
FIRST_NODE_ID = 1
"""`node.id` by default."""
FORKED = re.compile(r"worker (\d+) \(node \d+\) runs as process (\d+)")
API_VERSIONS_FRAME = request_frame(
    ApiVersionsRequest(client_software_name="benchmark", client_software_version="1"), 3, 1, "benchmark"
)


@dataclass
class Running:
    """A broker that answers, and what the cases need to know of it."""

    name: str
    pid: int
    port: int
    load_program: pathlib.Path
    log: pathlib.Path = pathlib.Path()
    """What it says."""
    node_id: int | None = None
    """For a worker, which does not lead every partition: topics for it are placed at this node."""
    workers: Sequence[Running] = ()
    """A broker with workers is their parent, at the address of the first one."""

    @property
    def data(self) -> pathlib.Path:
        """Its data directory."""
        return self.log.parent / "data"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def nodes(self) -> Sequence[Running]:
        """The processes that serve: the workers, or the broker itself."""
        return self.workers or (self,)

    def cpu_seconds(self) -> float:
        """User and system time of the broker's processes so far, from /proc."""
        return cpu_seconds(self.pid) + sum(one.cpu_seconds() for one in self.workers)

    def rss_bytes(self) -> int:
        return self._memory_bytes("VmRSS")

    def anonymous_bytes(self) -> int:
        """Of RSS without pages of files, such as segments that are mapped to be sent."""
        return self._memory_bytes("RssAnon")

    def _memory_bytes(self, name: str) -> int:
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(rf"{name}:\s+(\d+) kB", status)
        assert match is not None
        return int(match.group(1)) * 1024

    def pss_bytes(self) -> int:
        """PSS: RSS in which a page counts only in part if other processes have it, too."""
        return pss_bytes(self.pid)

    def open_files(self) -> int:
        """Descriptors of every kind."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def children(self) -> list[int]:
        """Process ids: of ours, those that compact, or the workers."""
        lists = pathlib.Path(f"/proc/{self.pid}/task").glob("*/children")
        return [int(child) for one in lists for child in one.read_text().split()]


def cpu_seconds(pid: int, *, with_ended_children: bool = False) -> float:
    """User and system time of a process, from /proc; on demand with that of children that it waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / os.sysconf("SC_CLK_TCK")


def pss_bytes(pid: int) -> int:
    """PSS of a process, from /proc/PID/smaps_rollup."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def user_environment() -> dict[str, str]:
    """Ours, without what would keep Python from caching its bytecode as it does for everybody."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


Cores = int | Sequence[int] | None
"""One core, several, or all for None."""


def pinned(command: list[str], cores: Cores) -> list[str]:
    if cores is None:
        return command
    named = str(cores) if isinstance(cores, int) else ",".join(map(str, cores))
    return ["taskset", "-c", named, *command]


def first_answer_s(port: int, started: float, process: subprocess.Popen[bytes]) -> float:
    """Seconds from `started` (time.perf_counter) to the first answer to ApiVersions."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
                peer.sendall(API_VERSIONS_FRAME)
                if peer.recv(4):
                    return time.perf_counter() - started
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended with status {process.returncode}") from None
            if time.perf_counter() - started > PATIENCE_S:
                raise
            time.sleep(0.001)


@contextlib.contextmanager
def kafka(
    load: pathlib.Path,
    work: pathlib.Path,
    core: int | None,
    *,
    settings: Mapping[str, str] | None = None,
    jvm: list[str] | None = None,
) -> Iterator[Running]:
    """Apache Kafka as one combined node, formatted in a fresh directory. `jvm` are more options."""
    broker = reference.Kafka(
        properties={**SETTINGS, **(settings or {})},
        jvm=[*KAFKA_JVM, *(jvm or [])],
        prefix=pinned([], core),
        parent=work,
        is_fast_to_start=False,
    )
    with broker:
        yield Running("kafka", broker.pid, broker.port, load, broker.directory / "broker.log")


class Odradek:
    """Ours, in a fresh directory that stays while it is stopped, killed and started again.

    As a context manager it runs from the beginning, and the directory goes with it.
    """

    def __init__(
        self,
        load: pathlib.Path,
        work: pathlib.Path,
        cores: Cores,
        *,
        settings: Mapping[str, str] | None = None,
        name: str = "odradek",
        links: pathlib.Path | None = None,
        workers: int = 1,
    ) -> None:
        self.name = name
        self._environment = user_environment()
        if links is not None:
            self._environment["PYTHONPATH"] = str(links)
        self._workers = workers
        self.port = _free_row(workers)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
        self.data = self.directory / "data"
        self.log = self.directory / "broker.log"
        self._load = load
        self._process: subprocess.Popen[bytes] | None = None
        command = [sys.executable, "-m", "odradek", "serve"]
        command += ["--listen", f"127.0.0.1:{self.port}", "--data-dir", str(self.data)]
        for setting, value in {**SETTINGS, **(settings or {})}.items():
            command += ["--set", f"{setting}={value}"]
        if workers > 1:
            command += ["--workers", str(workers)]
        self._command = pinned(command, cores)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> Running:
        """With workers: those of now, all of which must run."""
        assert self._process is not None, "the broker does not run"
        broker = Running(self.name, self._process.pid, self.port, self._load, self.log)
        if self._workers == 1:
            return broker
        return replace(broker, workers=[self._worker(index, pid) for index, pid in self.worker_pids.items()])

    def _worker(self, index: int, pid: int) -> Running:
        name, port, node_id = f"{self.name}-{index}", self.port + index, FIRST_NODE_ID + index
        return Running(name, pid, port, self._load, self.log, node_id)

    @property
    def worker_pids(self) -> dict[int, int]:
        """The newest process of each worker by its number, as the parent's log has it."""
        found = FORKED.findall(self.log.read_text(errors="replace"))
        return {int(index): int(pid) for index, pid in found}

    def start(self) -> float:
        """Returns the seconds from the start of the process to the first answered request."""
        with self.log.open("ab") as output:
            started = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, env=self._environment
            )
        try:
            answered_s = first_answer_s(self.port, started, self._process)
            if self._workers > 1:
                self._wait_for_workers(started, self._process)
            return answered_s
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"{error}:\n{self.log.read_text(errors='replace')[-3000:]}") from error

    def _wait_for_workers(self, started: float, process: subprocess.Popen[bytes]) -> None:
        """Returns when all are unfenced: the parent says so."""
        while " ready on " not in self.log.read_text(errors="replace"):
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended with status {process.returncode}")
            if time.perf_counter() - started > PATIENCE_S:
                raise RuntimeError(f"not all workers serve after {PATIENCE_S:g} s")
            time.sleep(0.001)

    def stop(self) -> float:
        """A clean stop; returns the seconds that it took."""
        process, self._process = self._process, None
        assert process is not None
        began = time.perf_counter()
        self._end(process, signal.SIGTERM, PATIENCE_S)
        took = time.perf_counter() - began
        assert (self.data / CLEAN_SHUTDOWN).exists(), f"that was no clean stop, after {took:.1f} s"
        return took

    def kill(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        self._end(process, signal.SIGKILL, PATIENCE_S)

    def close(self) -> None:
        """Ends it if it runs, and removes all that it wrote."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process, signal.SIGTERM, 30)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, process: subprocess.Popen[bytes], how: signal.Signals, patience_s: float) -> None:
        """Kills what has not ended by then. Workers end with their parent, which waits for them unless it is
        killed itself."""
        process.send_signal(how)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._workers > 1 and process.returncode == -signal.SIGKILL:
            for pid in self.worker_pids.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _free_row(count: int) -> int:
    """The first of so many ports in a row on which nothing listens now."""
    while True:
        first = reference.free_port()
        with contextlib.suppress(OSError), contextlib.ExitStack() as bound:
            for port in range(first + 1, first + count):
                bound.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@contextlib.contextmanager
def odradek(
    load: pathlib.Path, work: pathlib.Path, core: int | None, *, flush: bool = False
) -> Iterator[Running]:
    """Odradek as the tables want it; `flush` answers a produce after the disk has it."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    if flush:
        settings["log.flush.interval.messages"] = "1"
    name = "odradek-flush" if flush else "odradek"
    with Odradek(load, work, core, settings=settings, name=name) as broker:
        yield broker.running
