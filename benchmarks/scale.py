"""What things cost as they grow: start, memory, idle connections, partitions, committed offsets.

`python -m benchmarks.scale` prints a table; `make bench` adds it to RESULTS.md. Everything is measured on a
broker of its own (`odradek.Broker(process=True)`), through the protocol.
"""

from __future__ import annotations

import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import odradek
from benchmarks.brokers import Running, user_environment
from benchmarks.wire_client import WireClient
from compat_tests.reference import free_port
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

API_VERSIONS_FRAME = request_frame(
    ApiVersionsRequest(client_software_name="benchmark", client_software_version="1"), 3, 1, "benchmark"
)


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    what: str
    value: float
    unit: str
    limit: float | None = None


def first_answer_s(port: int, started: float, process: subprocess.Popen[bytes]) -> float:
    """Seconds from `started` (time.perf_counter) to the first answer to ApiVersions."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port)) as peer:
                peer.sendall(API_VERSIONS_FRAME)
                if peer.recv(4):
                    return time.perf_counter() - started
        except OSError:
            if process.poll() is not None:
                raise RuntimeError(f"the broker ended with status {process.returncode}") from None
            time.sleep(0.001)


def install(work: pathlib.Path) -> pathlib.Path:
    """The `odradek` command of an environment with the wheel of this checkout, as a user gets it.

    The editable install that tests run from looks its modules up by an import hook, which alone costs 23 ms
    at each start.
    """
    environment = work / "installed"
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run(
        [*pip, "--disable-pip-version-check", str(CHECKOUT)], check=True, cwd=work, env=user_environment()
    )
    return environment / "bin" / "odradek"


def start_times(work: pathlib.Path, rounds: int = 21) -> list[Figure]:
    """From exec to the first answered request, in a directory that is new and in one that is not.

    Beside it, in turn, what the same machine needs for a Python that does nothing but import the event loop.
    """
    command = install(work)
    nothing = [str(command.with_name("python")), "-c", "import asyncio, uvloop"]
    seconds: dict[str, list[float]] = {"new directory": [], "existing directory": []}
    bare: list[float] = []
    rss: list[int] = []
    for turn in range(rounds):
        started = time.perf_counter()
        subprocess.run(nothing, check=True, env=user_environment())
        bare.append(time.perf_counter() - started)
        data = work / f"start-{turn // 2}"
        kind = "existing directory" if data.exists() else "new directory"
        port = free_port()
        started = time.perf_counter()
        process = subprocess.Popen(
            [
                str(command),
                "serve",
                "--listen",
                f"127.0.0.1:{port}",
                "--data-dir",
                str(data),
            ],
            env=user_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds[kind].append(first_answer_s(port, started, process))
        rss.append(Running("odradek", process.pid, port, work).rss_bytes())
        process.terminate()
        process.wait()
    return [
        *(
            Figure(
                f"start to the first answered request, {kind}", statistics.median(values) * 1000, "ms", 150
            )
            for kind, values in seconds.items()
        ),
        Figure("a Python that only imports asyncio and uvloop", statistics.median(bare) * 1000, "ms"),
        Figure("idle RSS", statistics.median(rss) / 1e6, "MB", 45),
    ]


def broker_memory(broker: odradek.Broker) -> int:
    assert broker.pid is not None
    return Running("odradek", broker.pid, 0, pathlib.Path()).rss_bytes()


def idle_connections(counts: tuple[int, ...] = (1000, 2500, 5000)) -> list[Figure]:
    """Memory of the broker for each connection that has shaken hands and is silent since."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = []
    with odradek.Broker(process=True) as broker:
        host, port = broker.bootstrap_servers.split(":")
        before = broker_memory(broker)
        peers: list[socket.socket] = []
        for count in counts:
            while len(peers) < count:
                peer = socket.create_connection((host, int(port)))
                peer.sendall(API_VERSIONS_FRAME)
                peer.recv(4096)
                peers.append(peer)
            each = (broker_memory(broker) - before) / count
            figures.append(Figure(f"each of {count} idle connections", each / 1024, "KiB", 16))
        for peer in peers:
            peer.close()
    return figures


def many_partitions(counts: tuple[int, ...] = (100, 300, 1000)) -> list[Figure]:
    """Starting with so many topics of ten partitions: after a clean stop, and after a kill."""
    figures = []
    with odradek.Broker(process=True, start_timeout_s=120) as broker:
        made = 0
        for count in counts:
            started = time.perf_counter()
            with client_of(broker) as client:
                while made < count:
                    names = [f"topic-{index}" for index in range(made, min(made + 50, count))]
                    create(client, names, 10)
                    made += len(names)
            created = time.perf_counter() - started
            topics = f"{count} topics of 10 partitions"
            figures.append(Figure(f"creating up to {topics}", created, "s"))
            for how in ("clean stop", "kill"):
                broker.stop() if how == "clean stop" else broker.kill()
                started = time.perf_counter()
                broker.restart()
                seconds = time.perf_counter() - started
                figures.append(Figure(f"start with {topics} after a {how}", seconds, "s"))
            figures.append(Figure(f"RSS with {topics}", broker_memory(broker) / 1e6, "MB"))
    return figures


def committed_offsets(counts: tuple[int, ...] = (100_000, 300_000, 1_000_000)) -> list[Figure]:
    """Loading so many committed offsets (1,000 in each group) when the broker starts."""
    figures = []
    partitions = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata="")
        for i in range(1000)
    ]
    with odradek.Broker(process=True, start_timeout_s=120) as broker:
        with client_of(broker) as client:
            create(client, ["many"], 1000)
        groups = 0
        for count in counts:
            started = time.perf_counter()
            with client_of(broker) as client:
                for group in range(groups, count // 1000):
                    commit(client, f"group-{group}", partitions)
            groups, committing = count // 1000, time.perf_counter() - started
            figures.append(Figure(f"committing up to {count} offsets, 1,000 a request", committing, "s"))
            broker.stop()
            started = time.perf_counter()
            broker.restart()
            with client_of(broker) as client:
                for group in range(groups):
                    wait_until_loaded(client, f"group-{group}")
                figures.append(
                    Figure(
                        f"start until {count} committed offsets are loaded",
                        time.perf_counter() - started,
                        "s",
                    )
                )
                for group in range(groups):
                    assert committed(client, f"group-{group}") == 1000
            figures.append(Figure(f"RSS with {count} committed offsets", broker_memory(broker) / 1e6, "MB"))
    return figures


def client_of(broker: odradek.Broker) -> WireClient:
    host, port = broker.bootstrap_servers.split(":")
    return WireClient(host, int(port))


def create(client: WireClient, names: list[str], partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    for topic in client.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7).topics:
        assert topic.error_code == 0, (topic.name, topic.error_code)


def commit(client: WireClient, group: str, partitions: list[OffsetCommitRequestPartition]) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="many", partitions=partitions)],
    )
    wait_for_coordinator(client, group)
    answer = client.call(request, 7)
    assert all(p.error_code == 0 for topic in answer.topics for p in topic.partitions)


def wait_for_coordinator(client: WireClient, group: str) -> None:
    from odradek.wire.messages.find_coordinator import FindCoordinatorRequest

    while client.call(FindCoordinatorRequest(key=group, key_type=0), 2).error_code:
        pass


def wait_until_loaded(client: WireClient, group: str) -> None:
    """Asks for one offset of the group until its coordinator has loaded."""
    one = [OffsetFetchRequestTopics(name="many", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=one)])
    while True:
        found = client.call(request, 8).groups[0]
        if found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            continue
        assert found.error_code == 0, found.error_code
        return


def committed(client: WireClient, group: str) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    return sum(len(topic.partitions) for topic in client.call(request, 8).groups[0].topics)


def measure(work: pathlib.Path) -> list[Figure]:
    """Everything; takes about two minutes."""
    figures: list[Figure] = []
    for part in (lambda: start_times(work), idle_connections, many_partitions, committed_offsets):
        for figure in part():
            print(line(figure), flush=True)
            figures.append(figure)
    return figures


def line(figure: Figure) -> str:
    limit = "" if figure.limit is None else f"  (at most {figure.limit:g})"
    return f"{figure.what:<70} {figure.value:>10.3g} {figure.unit}{limit}"


def table(figures: list[Figure]) -> str:
    rows = ["| what | measured | at most |", "|---|---|---|"]
    for figure in figures:
        limit = "" if figure.limit is None else f"{figure.limit:g} {figure.unit}"
        rows.append(f"| {figure.what} | {figure.value:.3g} {figure.unit} | {limit} |")
    return "\n".join(rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="odradek-scale-") as folder:
        measure(pathlib.Path(folder))
