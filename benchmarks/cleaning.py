"""`python -m benchmarks.cleaning`: compaction, Apache Kafka's and ours beside each other.

Two questions. How many seconds does one round over the same log take on one core: each broker is pinned to
one, with its cleaner, gets the same batches, and says itself in its log how long it took. And what does a
client feel of it: the p99 of one-record produces, one at a time, idle and while a log is being compacted,
with the broker and our cleaner on different cores and on one (Kafka's cleaner is a thread of its broker:
there it has all cores).

A log is kept from being compacted while it is written by `min.compaction.lag.ms` and timestamps in the past;
all of it becomes due at once. Its last segment stays active and is no part of it. Rounds alternate; the first
one of each broker is there to warm it and does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import brokers
from benchmarks.wire_client import WireClient
from compat_tests import reference
from odradek.wire.checksums import crc32c
from odradek.wire.compression import compression_named
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.records import Record, build_batch

LAG_MS = 3_600_000
SEGMENT_BYTES = 64 << 20
MEGABYTE = 1024 * 1024
PRODUCE_VERSION = 9
LENGTH = struct.Struct(">i")
TIMESTAMPS, TIMESTAMPS_AT = struct.Struct(">qq"), 27
CHECKSUM, CHECKSUM_AT, CHECKED_FROM = struct.Struct(">I"), 17, 21
"""Of a batch: base and maximum timestamp, and the checksum of what follows it."""
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "100"}
KAFKA_LOGGING = """\
rootLogger.level = WARN
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c %m%n
logger.cleaner.name = org.apache.kafka.storage.internals.log
logger.cleaner.level = INFO
"""
KAFKA_SAYS = re.compile(
    r"cleaned log (\S+) \(dirty section = \[(\d+), (\d+)\]\)\s+"
    r"([\d,.]+) MB of log processed in ([\d,.]+) seconds"
)
WE_SAY = re.compile(r"compacted (\S+) up to offset (\d+) in ([\d.]+) s: ([\d.]+) MB read")


@dataclass
class Shape:
    """What the logs look like."""

    megabytes: int
    value_bytes: int
    records_per_batch: int
    keys: int
    codec: str


@dataclass
class Running:
    """A broker that answers."""

    name: str
    pid: int
    port: int
    log: pathlib.Path

    def rounds(self, topic: str) -> list[tuple[int, float]]:
        """(first dirty offset afterwards, seconds) of every round over the topic that its log tells of."""
        text = self.log.read_text(errors="replace")
        found = (
            [
                (name, int(end), float(took.replace(",", "")))
                for name, _, end, _, took in KAFKA_SAYS.findall(text)
            ]
            if self.name == "kafka"
            else [(name, int(end), float(took)) for name, end, took, _ in WE_SAY.findall(text)]
        )
        return [(end, took) for name, end, took in found if name == f"{topic}-0"]


@contextlib.contextmanager
def kafka(work: pathlib.Path, core: int | None) -> Iterator[Running]:
    config = work / "log4j2.properties"
    config.write_text(KAFKA_LOGGING)
    jvm = [*brokers.KAFKA_JVM, f"-Dlog4j2.configurationFile={config}"]
    broker = reference.Kafka(properties=SETTINGS, jvm=jvm, prefix=brokers.pinned([], core), parent=work)
    with broker:
        yield Running("kafka", broker.pid, broker.port, broker.directory / "broker.log")


@contextlib.contextmanager
def odradek(work: pathlib.Path, core: int | None) -> Iterator[Running]:
    port = reference.free_port()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="odradek-", dir=work))
    log = directory / "broker.log"
    command = [sys.executable, "-m", "odradek", "serve", "--listen", f"127.0.0.1:{port}"]
    command += ["--data-dir", str(directory / "data")]
    command += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            brokers.pinned(command, core), stdout=output, stderr=output, env=brokers.user_environment()
        )
    try:
        reference.wait_until_open(port, process, log)
        yield Running("odradek", process.pid, port, log)
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def write_batches(shape: Shape, path: pathlib.Path) -> None:
    """About as many bytes of batches as asked for, each behind its length; the same ones each time."""
    chance = random.Random(7)
    values = [chance.randbytes(shape.value_bytes // 2).hex().encode() for _ in range(64)]
    codec = compression_named(shape.codec)
    written = 0
    with path.open("wb") as file:
        # What counts is what was packed: a codec must not make the input endless.
        while written < shape.megabytes * MEGABYTE:
            records = [
                Record(place, 0, b"key-%012d" % chance.randrange(shape.keys), chance.choice(values))
                for place in range(shape.records_per_batch)
            ]
            batch = build_batch(records, compression=codec)
            file.write(LENGTH.pack(len(batch)) + batch)
            written += max(len(batch), shape.records_per_batch * shape.value_bytes)


def batches(path: pathlib.Path, timestamp_ms: int) -> Iterator[bytearray]:
    """The written ones, all records with this timestamp."""
    with path.open("rb") as file:
        while head := file.read(LENGTH.size):
            batch = bytearray(file.read(LENGTH.unpack(head)[0]))
            TIMESTAMPS.pack_into(batch, TIMESTAMPS_AT, timestamp_ms, timestamp_ms)
            CHECKSUM.pack_into(batch, CHECKSUM_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
            yield batch


class Pipeline(WireClient):
    """Requests of one kind, so many at a time: a log of gigabytes is not written one round trip after the
    other.
    """

    def __init__(self, host: str, port: int, depth: int = 32) -> None:
        super().__init__(host, port)
        self._depth = depth
        self._under_way = 0

    def __enter__(self) -> Pipeline:
        return self

    def send(self, request: ProduceRequest, version: int) -> None:
        if self._under_way == self._depth:
            self.receive(version)
        self._under_way += 1
        self._socket.sendall(request_frame(request, version, 1, "benchmark"))

    def receive(self, version: int) -> None:
        self._under_way -= 1
        (length,) = LENGTH.unpack(self._receive(LENGTH.size))
        _, response = read_response(self._receive(length), ProduceRequest, version)
        check(response)

    def finish(self, version: int) -> None:
        while self._under_way:
            self.receive(version)


def new_topic(client: WireClient, name: str, **settings: str) -> None:
    configs = [
        CreatableTopicConfig(name=one.replace("_", "."), value=value) for one, value in settings.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert answer.topics[0].error_code == 0, answer
    client.wait_for_leaders([name], 1)


def produce_request(topic: str, batch: bytes | bytearray) -> ProduceRequest:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def check(answer: ProduceResponse) -> None:
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def fill(broker: Running, topic: str, path: pathlib.Path, due_ms: int) -> None:
    """Write a log that is due at `due_ms`, which has to be in the future until the end."""
    with Pipeline("127.0.0.1", broker.port) as client:
        new_topic(
            client,
            topic,
            cleanup_policy="compact",
            segment_bytes=str(SEGMENT_BYTES),
            min_compaction_lag_ms=str(LAG_MS),
            min_cleanable_dirty_ratio="0.01",
        )
        for batch in batches(path, due_ms - LAG_MS):
            client.send(produce_request(topic, batch), PRODUCE_VERSION)
        client.finish(PRODUCE_VERSION)
    assert time.time() * 1000 < due_ms, "the log was not written in time: give --fill-seconds"


def wait_for_round(broker: Running, topic: str, patience_s: float) -> float:
    """Seconds of the first round over the topic."""
    deadline = time.monotonic() + patience_s
    while not (rounds := broker.rounds(topic)):
        assert time.monotonic() < deadline, f"{broker.name} does not compact {topic}"
        time.sleep(0.1)
    return rounds[0][1]


def wait_until(due_ms: int) -> None:
    time.sleep(max(due_ms / 1000 - time.time(), 0))


def seconds(
    running: list[Running], path: pathlib.Path, rounds: int, fill_seconds: float
) -> dict[str, list[float]]:
    """Of each broker the seconds of each round but the first. Printed beside them is the time of the
    processor: what counts where others use the core, too.
    """
    took: dict[str, list[float]] = {broker.name: [] for broker in running}
    for number in range(rounds + 1):
        for broker in running if number % 2 else running[::-1]:
            due_ms = int((time.time() + fill_seconds) * 1000)
            fill(broker, f"seconds-{number}", path, due_ms)
            wait_until(due_ms)
            before = cpu_seconds(broker.pid)
            one = wait_for_round(broker, f"seconds-{number}", 600)
            cpu = cpu_seconds(broker.pid) - before
            print(f"{broker.name}, round {number}: {one:.2f} s, {cpu:.2f} s of processor", flush=True)
            if number:
                took[broker.name].append(one)
    return took


def children(pid: int) -> list[int]:
    lists = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for one in lists for child in one.read_text().split()]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children, so far."""
    ticks = 0
    for one in (pid, *children(pid)):
        with contextlib.suppress(FileNotFoundError):
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(") ")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def probe(client: WireClient, topic: str, until_s: float) -> list[float]:
    """Milliseconds of one-record produces, one at a time, a millisecond apart."""
    took = []
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), b"key", b"v" * 100)]))
    while (now := time.perf_counter()) < until_s:
        check(client.call(produce_request(topic, batch), PRODUCE_VERSION))
        took.append((time.perf_counter() - now) * 1000)
        time.sleep(0.001)
    return took


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def latency(
    broker: Running, topic: str, path: pathlib.Path, fill_seconds: float, cleaner_core: int | None
) -> str:
    """A line about produces to another topic, idle and during a round."""
    due_ms = int((time.time() + fill_seconds) * 1000)
    with WireClient("127.0.0.1", broker.port) as client:
        new_topic(client, f"{topic}-probe")
        fill(broker, topic, path, due_ms)
        idle_s = min(max(due_ms / 1000 - time.time() - 1, 1), 10)
        probe(client, f"{topic}-probe", time.perf_counter() + 1)
        idle = probe(client, f"{topic}-probe", time.perf_counter() + idle_s)
        wait_until(due_ms)
        during: list[float] = []
        while not broker.rounds(topic):
            if cleaner_core is not None and broker.name == "odradek":
                for child in children(broker.pid):
                    os.sched_setaffinity(child, {cleaner_core})
            during += probe(client, f"{topic}-probe", time.perf_counter() + 0.25)
    figures = [f"p50 {quantile(one, 0.5):.3f} p99 {quantile(one, 0.99):.3f} ms" for one in (idle, during)]
    factor = quantile(during, 0.99) / quantile(idle, 0.99)
    return (
        f"idle {figures[0]}, compacting {figures[1]} ({factor:.2f} times; {broker.rounds(topic)[0][1]:.1f} s)"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--value-bytes", type=int, default=1000)
    parser.add_argument("--records-per-batch", type=int, default=16)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fill-seconds", type=float, help="how long writing a log may take")
    parser.add_argument(
        "--work", type=pathlib.Path, help="where the data goes; a temporary directory by default"
    )
    parser.add_argument("--only", choices=["seconds", "latency"])
    return parser.parse_args()


def main() -> None:
    options = parse()
    shape = Shape(
        options.megabytes, options.value_bytes, options.records_per_batch, options.keys, options.codec
    )
    fill_seconds = options.fill_seconds or max(20.0, options.megabytes / 15)
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=options.work) as directory:
        work = pathlib.Path(directory)
        path = work / "batches"
        write_batches(shape, path)
        os.sched_setaffinity(0, {1})
        if options.only != "latency":
            with kafka(work, 0) as theirs, odradek(work, 0) as ours:
                took = seconds([theirs, ours], path, options.rounds, fill_seconds)
            medians = {name: statistics.median(values) for name, values in took.items()}
            print(f"{shape}: median of {options.rounds} rounds, one core each")
            for name, median in medians.items():
                print(f"  {name:<8} {median:6.2f} s, {shape.megabytes / median:5.0f} MB/s  {took[name]}")
            print(f"  ours takes {medians['odradek'] / medians['kafka']:.2f} of Kafka's time")
        if options.only != "seconds":
            with odradek(work, 0) as ours:
                print("odradek, broker on core 0, cleaner on core 1 (with the client): ", end="", flush=True)
                print(latency(ours, "apart", path, fill_seconds, 1))
                print("odradek, broker and cleaner on core 0: ", end="", flush=True)
                print(latency(ours, "shared", path, fill_seconds, 0))
            with kafka(work, None) as theirs:
                print("kafka, all cores: ", end="", flush=True)
                print(latency(theirs, "shared", path, fill_seconds, None))


if __name__ == "__main__":
    main()
