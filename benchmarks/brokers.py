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
from collections.abc import Iterator
from dataclasses import dataclass

KAFKA_JVM = [
    "-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true", "-Dlog4j2.level=WARN",
]  # fmt: skip
"""What kafka-server-start.sh gives the JVM."""

KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=100
"""


@dataclass
class Running:
    """A broker that answers, and what the cases need to know of it."""

    name: str
    pid: int
    port: int
    load_program: pathlib.Path
    jars: pathlib.Path

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

    def java_tool(self, *command: str) -> list[str]:
        return ["java", "-Xmx512m", "-cp", f"{self.jars}/*", "-Dlog4j2.level=ERROR", *command]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(command: list[str], core: int | None) -> list[str]:
    return command if core is None else ["taskset", "-c", str(core), *command]


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: pathlib.Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(
                f"the broker ended with status {process.returncode}: {log.read_text()[-2000:]}"
            )
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
    raise TimeoutError(f"nothing listens on port {port}: {log.read_text()[-2000:]}")


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
def kafka(jars: pathlib.Path, load: pathlib.Path, work: pathlib.Path, core: int | None) -> Iterator[Running]:
    """Apache Kafka as one combined node, formatted in a fresh directory."""
    port, controller = free_port(), free_port()
    data = pathlib.Path(tempfile.mkdtemp(prefix="kafka-", dir=work))
    properties = data / "server.properties"
    properties.write_text(KAFKA_PROPERTIES.format(port=port, controller=controller, data=data / "logs"))
    java = ["java", "-cp", f"{jars}/*", "-Dlog4j2.level=WARN"]
    uuid = (
        subprocess.check_output([*java, "kafka.tools.StorageTool", "random-uuid"], text=True)
        .strip()
        .splitlines()[-1]
    )
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", uuid, "-c", str(properties)],
        check=True, capture_output=True,
    )  # fmt: skip
    command = ["java", *KAFKA_JVM, "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
    try:
        with _process(pinned(command, core), work, "kafka", dict(os.environ)) as process:
            _wait_for_port(process, port, work / "kafka.log")
            yield Running("kafka", process.pid, port, load, jars)
    finally:
        shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def odradek(
    jars: pathlib.Path, load: pathlib.Path, work: pathlib.Path, core: int | None, *, flush: bool = False
) -> Iterator[Running]:
    """Odradek in a fresh directory; `flush` answers a produce after the disk has it."""
    name = "odradek-flush" if flush else "odradek"
    port = free_port()
    data = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=work))
    settings = ["group.initial.rebalance.delay.ms=0", "log.segment.delete.delay.ms=100"]
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
        with _process(pinned(command, core), work, name, dict(os.environ)) as process:
            _wait_for_port(process, port, work / f"{name}.log")
            yield Running(name, process.pid, port, load, jars)
    finally:
        shutil.rmtree(data, ignore_errors=True)
