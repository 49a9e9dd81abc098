"""What is measured: one class per kind of measurement, one list of cases with the ratio each must reach."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import ClassVar

from benchmarks.brokers import Running
from benchmarks.frames import Frame, batch_of, fetch_frame, list_offsets_frame, produce_frame, write_frames
from benchmarks.load import HERE, Pinning, Watch, run_load
from benchmarks.page_cache import fill_page_cache
from benchmarks.run import GIGABYTE
from benchmarks.wire_client import WireClient
from compat_tests.reference import tool_command

WARM_UP_S = 0.5
"""For how long most loads run before they measure."""
BULK_S = 1.0
"""How long gigabytes are written: it ends before the kernel throttles writers to the disk's speed."""


def kept_of_bulk(partitions: int) -> dict[str, str]:
    """Settings of topics into which gigabytes are written, by the number of partitions of all: the memory of
    what goes is used again, so that neither a full disk is measured nor a host that has to find memory for
    its machine."""
    kept_bytes = str(max(64_000_000 // partitions, 8_000_000))
    return {"segment.bytes": kept_bytes, "retention.bytes": kept_bytes, "file.delete.delay.ms": "100"}


def settle(work: pathlib.Path) -> None:
    """Returns with a disk that has nothing left to write, and with memory as it is on a machine that has run
    for long. Before each measurement that writes gigabytes."""
    os.sync()
    fill_page_cache(work)


@dataclass
class Case:
    """One row of the table. `measure` gives one figure for one broker; higher is better unless `lower`."""

    name: str
    unit: str
    at_least: float | None = None
    """Odradek divided by Kafka; for `lower` cases the most that it may be."""
    lower: bool = False
    broker: str = "odradek"
    """`odradek-flush` starts ours with log.flush.interval.messages=1."""
    pinned_only: bool = False
    watch: Watch = field(default_factory=Watch)
    """Of the load in C, where that is the client."""
    warm_up_s: ClassVar[float] = 0.0
    """For how long the load runs before it measures."""
    is_kafka_warm: bool = True
    """False once its warming has come to no end."""

    def prepare(self, broker: Running, work: pathlib.Path) -> None:
        """Makes topics and frames, once per broker."""

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        raise NotImplementedError(self.name)

    def measured_before(self, rounds: int) -> tuple[bool, dict[str, list[float]]] | None:
        """Where another row's runs have told it already: whether Kafka was warm, and the figures of the last
        rounds by broker."""
        return None

    def clean_up(self, broker: Running) -> None:
        """Drops what `prepare` made."""


@dataclass
class ProduceCase(Case):
    """Closed-loop produce with acks=all."""

    warm_up_s: ClassVar[float] = WARM_UP_S

    connections: int = 50
    depth: int = 1
    batch_bytes: int = 100
    varied: bool = False
    """Ten topics of ten partitions, versions 9, 11 and 13, three sizes, producer ids with sequences."""
    scales: tuple[float, float, float] = (0.5, 1.0, 1.5)
    """The three sizes of a varied run, as parts of `batch_bytes`."""
    bulk: bool = False
    """Gigabytes are written, and go again: see `kept_of_bulk` and `settle`; a measurement lasts `BULK_S`."""
    unit: str = "requests/s"
    _topics: dict[str, list[str]] = field(default_factory=dict)

    def prepare(self, broker: Running, work: pathlib.Path) -> None:
        names = [
            f"bench-{abs(hash((self.name, time.monotonic_ns()))) % 10**9}-{i}"
            for i in range(10 if self.varied else 1)
        ]
        with WireClient("127.0.0.1", broker.port) as client:
            partitions = 10 if self.varied else 1
            configs = kept_of_bulk(len(names) * partitions) if self.bulk else None
            ids = client.create_topics(names, partitions, configs, at=broker.node_id)
        self._topics[broker.name] = names
        write_frames(self._path(broker, work), self._varied(ids) if self.varied else self._plain(ids))

    def _path(self, broker: Running, work: pathlib.Path) -> pathlib.Path:
        return work / f"{broker.name}-{self.connections}-{self.batch_bytes}-{self.varied}.frames"

    def _plain(self, ids: dict[str, bytes]) -> list[Frame]:
        batch = batch_of(max(1, self.batch_bytes // 1000), min(self.batch_bytes, 1000))
        return [produce_frame(name, topic_id, 0, batch) for name, topic_id in ids.items()]

    def _varied(self, ids: dict[str, bytes]) -> list[Frame]:
        frames = []
        for topic_index, (name, topic_id) in enumerate(ids.items()):
            for partition in range(10):
                for choice, scale in enumerate(self.scales):
                    size = int(self.batch_bytes * scale)
                    batch = batch_of(max(1, size // 1000), min(size, 1000))
                    version = (9, 11, 13)[(choice + partition + topic_index) % 3]
                    slot = topic_index * 10 + partition
                    frames.append(produce_frame(name, topic_id, partition, batch, version=version, slot=slot))
        return frames

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        warm_up = self.warm_up_s
        if self.bulk:
            settle(work)
            seconds, warm_up = BULK_S, 0.1
        arguments = ["-c", str(self.connections), "-d", str(self.depth)]
        arguments += ["-s", str(seconds), "-w", str(warm_up)]
        if self.varied:
            with WireClient("127.0.0.1", broker.port) as client:
                arguments += ["-i", str(client.producer_ids(self.connections))]
        result = self.watch.add(run_load(broker, pinning, self._path(broker, work), *arguments))
        if self.unit == "MB/s":
            return result["bytes_sent"] / result["seconds"] / 1e6
        return result["requests"] / result["seconds"]

    def clean_up(self, broker: Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics(self._topics.pop(broker.name))


@dataclass
class ListOffsetsCase(Case):
    """ListOffsets(latest) of one partition: what Spark's connector sends twice for every 500 records."""

    warm_up_s: ClassVar[float] = WARM_UP_S

    connections: int = 1
    unit: str = "requests/s"
    topic: str = field(default_factory=lambda: f"bench-list-{time.monotonic_ns()}")

    def prepare(self, broker: Running, work: pathlib.Path) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([self.topic], 1)
        write_frames(work / f"{broker.name}-list.frames", [list_offsets_frame(self.topic, 0)])

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        result = run_load(
            broker,
            pinning,
            work / f"{broker.name}-list.frames",
            "-c",
            str(self.connections),
            "-s",
            str(seconds),
            "-w",
            str(self.warm_up_s),
        )
        self.watch.add(result)
        return result["requests"] / result["seconds"]

    def clean_up(self, broker: Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([self.topic])


@dataclass
class FetchCase(Case):
    """Fetch of 1 MB batches over some connections: CPU seconds of the server for each gigabyte, or GB/s."""

    CONNECTIONS: ClassVar = 4

    rate: bool = False
    topic: str = field(default_factory=lambda: f"bench-fetch-{time.monotonic_ns()}")
    batches: int = 500

    def prepare(self, broker: Running, work: pathlib.Path) -> None:
        batch = batch_of(1000, 1000)
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([self.topic], 1, at=broker.node_id)
            for _ in range(self.batches):
                client.produce([self.topic], batch)
        frames = [fetch_frame(self.topic, 0, 1000 * i, max_bytes=len(batch)) for i in range(self.batches)]
        write_frames(work / f"{broker.name}-fetch.frames", frames)

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        before = broker.cpu_seconds()
        result = run_load(
            broker,
            pinning,
            work / f"{broker.name}-fetch.frames",
            "-c",
            str(self.CONNECTIONS),
            "-s",
            str(seconds),
        )
        self.watch.add(result)
        if self.rate:
            return result["bytes_received"] / result["seconds"] / GIGABYTE
        return (broker.cpu_seconds() - before) / (result["bytes_received"] / GIGABYTE)

    def clean_up(self, broker: Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([self.topic])


@dataclass
class ConfluentCase(Case):
    """confluent-kafka (librdkafka) as a user runs it, in a process of its own."""

    work: str = "produce"
    record_bytes: int = 100
    unit: str = "MB/s"

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        command = [
            sys.executable,
            str(HERE / "confluent_load.py"),
            self.work,
            broker.bootstrap,
            str(self.record_bytes),
        ]
        done = subprocess.run(pinning.load(command), capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-2000:])
        return float(done.stdout)


@dataclass
class EndToEndCase(Case):
    """Kafka's own EndToEndLatency tool: 100 bytes, acks=all, ms between produce and consume.

    A run takes seconds and tells several figures: a row that `follows` another one shows those of its runs.
    """

    figure: str = "50th"
    """Which of the percentiles that the tool prints in whole milliseconds; "mean": the mean, in fractions."""
    follows: EndToEndCase | None = None
    messages: int = 6_000
    unit: str = "ms"
    lower: bool = True
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """What each run has told so far, by broker."""

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        figures = self._run(broker, pinning)
        self.runs.setdefault(broker.name, []).append(figures)
        return figures[self.figure]

    def measured_before(self, rounds: int) -> tuple[bool, dict[str, list[float]]] | None:
        if self.follows is None or not self.follows.runs:
            return None
        return self.follows.is_kafka_warm, {
            broker: [figures[self.figure] for figures in runs[-rounds:]]
            for broker, runs in self.follows.runs.items()
        }

    def _run(self, broker: Running, pinning: Pinning) -> dict[str, float]:
        topic = f"bench-e2e-{time.monotonic_ns()}"
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([topic], 1)
        command = tool_command(
            "org.apache.kafka.tools.EndToEndLatency",
            "--bootstrap-server", broker.bootstrap, "--topic", topic,
            "--num-records", str(self.messages), "--producer-acks", "all", "--record-size", "100",
        )  # fmt: skip
        done = subprocess.run(pinning.load(command), capture_output=True, text=True, timeout=300, check=False)
        figures = {}
        for line in done.stdout.splitlines():
            if line.startswith("Avg latency:"):
                figures["mean"] = float(line.split()[2])
            if line.startswith("Percentiles:"):
                for percentile in line.removeprefix("Percentiles:").split(", "):
                    name, value = percentile.split(" = ")
                    figures[name.strip()] = float(value)
        if not {"mean", "50th", "99th"} <= figures.keys():
            raise RuntimeError(f"EndToEndLatency said: {done.stdout[-500:]} {done.stderr[-1500:]}")
        return figures


def all_cases() -> list[Case]:
    """The table of docs/performance.md, in its order."""
    cases: list[Case] = []

    def produce(name: str, at_least: float, **settings: object) -> None:
        for varied in (False, True):
            suffix = ", varied" if varied else ""
            cases.append(ProduceCase(name=name + suffix, at_least=at_least, varied=varied, **settings))  # type: ignore[arg-type]

    produce("one-record produce, 50 connections", 1.3)
    produce("one-record produce, 50 connections, 5 in flight", 2.0, depth=5)
    produce("one-record produce, 50 connections, 16 in flight", 2.5, depth=16)
    produce("one-record produce, 1 connection", 1.1, connections=1)
    produce("one-record produce, 50 connections, flushed (Kafka: not flushed)", 0.8, broker="odradek-flush")
    cases.append(ListOffsetsCase(name="ListOffsets, 1 connection", unit="requests/s", at_least=1.1))
    cases.append(
        ListOffsetsCase(name="ListOffsets, 50 connections", unit="requests/s", at_least=1.3, connections=50)
    )
    bulk = {"connections": 8, "unit": "MB/s", "bulk": True}
    megabyte = {"batch_bytes": 1_000_000, "scales": (0.5, 0.75, 1.0)}  # max.message.bytes is 1,048,588
    produce("produce of 1 MB batches, 8 connections", 4.0, **bulk, **megabyte)
    produce("produce of 16 KB batches, 8 connections", 2.0, batch_bytes=16_000, **bulk)
    cases.append(FetchCase(name="fetch of 1 MB batches: server CPU", unit="s/GB", at_least=1.2, lower=True))
    cases.append(FetchCase(name="fetch of 1 MB batches, 4 connections", unit="GB/s", rate=True))
    for work in ("produce", "consume"):
        for size, text in ((100, "100 B"), (1000, "1 KB"), (10_000, "10 KB")):
            cases.append(
                ConfluentCase(
                    name=f"confluent-kafka {work}, {text}",
                    unit="MB/s",
                    at_least=0.95,
                    work=work,
                    record_bytes=size,
                )
            )
    # The tool tells percentiles in whole milliseconds. The p50 of both is 0, beside which there is nothing to
    # miss: it has no target, and the mean, which comes in fractions, has the one for what is usual.
    mean = EndToEndCase(name="EndToEndLatency 100 B: mean", figure="mean", at_least=1.0)
    cases.append(mean)
    for figure, text, at_most in (("50th", "p50", None), ("99th", "p99", 1.2)):
        name = f"EndToEndLatency 100 B: {text}"
        cases.append(EndToEndCase(name=name, at_least=at_most, figure=figure, follows=mean))
    return cases
