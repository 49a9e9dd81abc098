"""The part `commands`: how long the command line takes, from the start of a process to its end."""

from __future__ import annotations

import subprocess
import sys
import time

import odradek
from benchmarks.figures import Figure, Section
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from odradek.wire.records import Record, build_batch

TOPICS, TOPICS_WHEN_QUICK = 100, 3
LIST_MS_MAX = 250.0
RECORDS, RECORDS_WHEN_QUICK = 1_000_000, 10_000
RECORDS_PER_BATCH = 1_000
VALUE = b"v" * 100
RECORDS_PER_S_MIN = 150_000
CREATED_MS = 1_790_000_000_000
STARTS = 15


def milliseconds(arguments: list[str], program: tuple[str, ...] = ("-m", "odradek")) -> float:
    """Of one process that must succeed; nobody reads its output."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *program, *arguments], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def fill(client: WireClient, records: int) -> None:
    batch = bytes(
        build_batch([Record(n, CREATED_MS, None, VALUE) for n in range(RECORDS_PER_BATCH)]),
    )
    client.create_topics(["filled"], 1, {})
    for _ in range(records // RECORDS_PER_BATCH):
        client.produce(["filled"], batch)


def measure(run: Run) -> Section:
    """Takes about two minutes."""
    section = Section("The command line")
    topics = run.choose(TOPICS, TOPICS_WHEN_QUICK)
    records = run.choose(RECORDS, RECORDS_WHEN_QUICK)
    section.notes = [
        "Whole processes, with the start of Python, the standard output thrown away; the broker has a core "
        "and the command the other. The values that `consume` prints have 100 bytes, a line each."
    ]
    rounds = range(run.choose(STARTS, 1))
    with (
        run.folder("commands") as folder,
        odradek.Broker(process=True, data_dir=folder / "data") as broker,
        WireClient("127.0.0.1", broker.port) as client,
    ):
        client.create_topics([f"topic-{n}" for n in range(topics)], 1, {})
        fill(client, records)
        at = ["--bootstrap-server", f"127.0.0.1:{broker.port}"]
        with run.on_core(run.cores.load):
            python_ms = [milliseconds([], ("-c", "pass")) for _ in rounds]
            version_ms = [milliseconds(["--version"]) for _ in rounds]
            list_ms = [milliseconds(["topics", "list", *at]) for _ in rounds]
            read = ["consume", *at, "filled", "-f", "%s\\n"]
            read_s = [milliseconds(read) / 1000 for _ in range(run.rounds)]
    most_s = records / RECORDS_PER_S_MIN
    section.figures = [
        Figure.median("python -c pass", python_ms, "ms"),
        Figure.median("odradek --version", version_ms, "ms"),
        Figure.median(f"odradek topics list, {topics} topics", list_ms, "ms", LIST_MS_MAX),
        Figure.median(f"odradek consume -f, {records:,} records", read_s, "s", most_s),
    ]
    return section
