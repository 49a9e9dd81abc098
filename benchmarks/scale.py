"""The part `scale`: start and memory, idle connections, committed offsets.

Everything is measured on a broker of its own (`odradek.Broker(process=True)`), through the protocol.
"""

from __future__ import annotations

import pathlib
import resource
import socket
import subprocess
import sys
import time

import odradek
from benchmarks.brokers import API_VERSIONS_FRAME, READY_S, Running, first_answer_s, user_environment
from benchmarks.figures import Figure, Growth, Section
from benchmarks.machine import CHECKOUT
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from compat_tests.reference import free_port
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
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
from tools.environment import only_from, wheels

STARTS, STARTS_WHEN_QUICK = 21, 2
CONNECTIONS, FEW_CONNECTIONS = (1000, 2500, 5000), (50,)
OFFSETS, FEW_OFFSETS = (100_000, 300_000, 1_000_000), (1_000, 2_000)


def measure(run: Run) -> Section:
    """Takes about three minutes."""
    found = Section("Start, connections, committed offsets")
    found.notes = [
        "The broker is on all cores. A start is that of a wheel in an environment of its own, from the start "
        f"of the process to its first answer. Idle RSS is that {READY_S:.0f} s later, with all that a broker "
        "makes behind its start."
    ]
    offsets = Growth("committed-offsets", "Loading committed offsets", "offsets, a thousand in each group")
    with run.folder("scale") as folder:
        found.figures += start_times(folder, run.choose(STARTS, STARTS_WHEN_QUICK))
    found.figures += idle_connections(run.choose(CONNECTIONS, FEW_CONNECTIONS))
    found.figures += committed_offsets(run.choose(OFFSETS, FEW_OFFSETS), offsets)
    found.growths = [offsets]
    return found


def install(work: pathlib.Path) -> pathlib.Path:
    """The `odradek` command of an environment with the wheel of this checkout, as a user gets it.

    The editable install that tests run from looks its modules up by an import hook, which alone costs 23 ms
    at each start. What it needs comes from the wheels that were fetched once.
    """
    environment = work / "installed"
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run(
        [*pip, "--disable-pip-version-check", str(CHECKOUT)],
        check=True,
        cwd=work,
        env={**user_environment(), **only_from(wheels())},
    )
    return environment / "bin" / "odradek"


def start_times(work: pathlib.Path, rounds: int) -> list[Figure]:
    """From exec to the first answered request, in a directory that is new and in one that is not.

    Beside it, in turn, what the same machine needs for a Python that does nothing but import the event loop.
    """
    command = install(work)
    nothing = [str(command.with_name("python")), "-c", "import asyncio, uvloop"]
    starts_ms: dict[str, list[float]] = {"new directory": [], "existing directory": []}
    bare: list[float] = []
    rss: list[float] = []
    for turn in range(rounds):
        started = time.perf_counter()
        subprocess.run(nothing, check=True, env=user_environment())
        bare.append((time.perf_counter() - started) * 1000)
        data = work / f"start-{turn // 2}"
        kind = "existing directory" if data.exists() else "new directory"
        port = free_port()
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(command), "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(data)],
            env=user_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        starts_ms[kind].append(first_answer_s(port, started, process) * 1000)
        time.sleep(READY_S)
        rss.append(Running("odradek", process.pid, port, work).rss_bytes() / 1e6)
        process.terminate()
        process.wait()
    return [
        *(
            Figure.median(f"start to the first answered request, {kind}", values, "ms", 150)
            for kind, values in starts_ms.items()
        ),
        Figure.median("a Python that only imports asyncio and uvloop", bare, "ms"),
        Figure.median("idle RSS", rss, "MB", 45),
    ]


def broker_memory(broker: odradek.Broker) -> int:
    assert broker.pid is not None
    return Running("odradek", broker.pid, 0, pathlib.Path()).rss_bytes()


def idle_connections(counts: tuple[int, ...]) -> list[Figure]:
    """Memory of the broker for each connection that has shaken hands and is silent since."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = []
    with odradek.Broker(process=True) as broker:
        host, port = broker.bootstrap_servers.split(":")
        time.sleep(READY_S)
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


def committed_offsets(counts: tuple[int, ...], growth: Growth) -> list[Figure]:
    """Loading so many committed offsets (1,000 in each group) when the broker starts."""
    figures = []
    partitions = [
        OffsetCommitRequestPartition(partition_index=i, committed_offset=i, committed_metadata="")
        for i in range(1000)
    ]
    with odradek.Broker(process=True, start_timeout_s=120) as broker:
        with client_of(broker) as client:
            client.create_topics(["many"], 1000)
        groups = 0
        for count in counts:
            started = time.perf_counter()
            with client_of(broker) as client:
                for group in range(groups, count // 1000):
                    commit(client, f"group-{group}", partitions)
            groups, committing = count // 1000, time.perf_counter() - started
            figures.append(Figure(f"committing up to {count:,} offsets, 1,000 a request", committing, "s"))
            broker.stop()
            started = time.perf_counter()
            broker.restart()
            with client_of(broker) as client:
                for group in range(groups):
                    wait_until_loaded(client, f"group-{group}")
                loading = time.perf_counter() - started
                for group in range(groups):
                    assert committed(client, f"group-{group}") == 1000
            rss_mb = broker_memory(broker) / 1e6
            figures.append(Figure(f"start until {count:,} committed offsets are loaded", loading, "s"))
            figures.append(Figure(f"RSS with {count:,} committed offsets", rss_mb, "MB"))
            growth.add("start until all are loaded", count, [loading], "s")
            growth.add("RSS", count, [rss_mb], "MB")
    return figures


def client_of(broker: odradek.Broker) -> WireClient:
    host, port = broker.bootstrap_servers.split(":")
    return WireClient(host, int(port))


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
