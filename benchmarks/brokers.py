"""The two brokers of a run: Apache Kafka from its Maven jars and Odradek, each pinned where the run says."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from compat_tests import reference

KAFKA_JVM = [
    "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true",
]  # fmt: skip
"""What kafka-server-start.sh gives the JVM."""

DELETE_DELAY = "log.segment.delete.delay.ms"
"""Short, so that what one case wrote is off the disk before the next."""


@dataclass
class Running:
    """A broker that answers, and what the cases need to know of it."""

    name: str
    pid: int
    port: int
    load_program: pathlib.Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """User and system time of the broker's process so far, from /proc."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None
        return int(match.group(1)) * 1024


def user_environment() -> dict[str, str]:
    """Ours, without what would keep Python from caching its bytecode as it does for everybody."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def pinned(command: list[str], core: int | None) -> list[str]:
    return command if core is None else ["taskset", "-c", str(core), *command]


@contextlib.contextmanager
def _process(
    command: list[str], work: pathlib.Path, name: str, env: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    log = work / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def kafka(load: pathlib.Path, work: pathlib.Path, core: int | None) -> Iterator[Running]:
    """Apache Kafka as one combined node, formatted in a fresh directory."""
    broker = reference.Kafka(
        properties={DELETE_DELAY: "100"}, jvm=KAFKA_JVM, prefix=pinned([], core), parent=work
    )
    with broker:
        yield Running("kafka", broker.pid, broker.port, load)


@contextlib.contextmanager
def odradek(
    load: pathlib.Path, work: pathlib.Path, core: int | None, *, flush: bool = False
) -> Iterator[Running]:
    """Odradek in a fresh directory; `flush` answers a produce after the disk has it."""
    name = "odradek-flush" if flush else "odradek"
    port = reference.free_port()
    data = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
    settings = ["group.initial.rebalance.delay.ms=0", f"{DELETE_DELAY}=100"]
    if flush:
        settings.append("log.flush.interval.messages=1")
    command = [
        sys.executable,
        "-m",
        "odradek",
        "serve",
        "--listen",
        f"127.0.0.1:{port}",
        "--data-dir",
        str(data),
    ]
    command += [part for setting in settings for part in ("--set", setting)]
    try:
        with _process(pinned(command, core), work, name, user_environment()) as process:
            reference.wait_until_open(port, process, work / f"{name}.log")
            yield Running(name, process.pid, port, load)
    finally:
        shutil.rmtree(data, ignore_errors=True)
