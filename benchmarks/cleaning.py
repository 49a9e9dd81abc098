"""The parts `compaction-speed` and `compaction-latency`: compaction beside Apache Kafka's cleaner, and what
producers feel of ours.

A log is kept from being compacted while it is written by `min.compaction.lag.ms`; set to 0, all of it becomes
due at once. Its last segment stays active and is no part of it. Both brokers say themselves, in what they
log, how long a round took and how far it went.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.brokers import Running
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.frames import batch_of, produce_frame, write_frames
from benchmarks.load import (
    RATE,
    STEADY,
    STEADY_SAYS,
    CorePinning,
    Pinning,
    Watch,
    finish_load,
    run_load,
    start_load,
)
from benchmarks.run import Cores, Run
from benchmarks.wire_client import Pipeline, WireClient
from odradek.wire.records import Record, build_batch

NEVER_MS = 86_400_000
ROUND_PATIENCE_S = 180
WARM_UP_S = 0.3
TIMES_IDLE_MAX = 2.0
LENGTH = struct.Struct(">i")
SETTINGS = {"log.cleaner.backoff.ms": "100"}
LIMITED_S = 5
"""At the limited rate so many seconds go for each time that a log is read; it is read twice."""
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
    r"cleaned log (\S+) \(dirty section = \[(?:\d+), (\d+)\]\)\s+"
    r"(?:[\d,.]+) MB of log processed in ([\d,.]+) seconds"
)
WE_SAY = re.compile(r"compacted (\S+) up to offset (\d+) in ([\d.]+) s: ")


@dataclass(frozen=True)
class Shape:
    """What a log to be compacted looks like."""

    megabytes: int
    keys: int
    segment_bytes: int
    value_bytes: int = 1000
    records_per_batch: int = 16
    settle_s: float = 2.0
    """How long a broker is left alone when all is on the disk: ours looks for what to flush once a second."""

    @property
    def input_bytes(self) -> int:
        return self.megabytes << 20

    @property
    def least_end(self) -> int:
        """Before this offset no round over the whole log ends: two segments from its end."""
        left = self.input_bytes - 2 * self.segment_bytes
        return left // (self.value_bytes + 40)

    def __str__(self) -> str:
        return (
            f"{self.megabytes:,} MB in segments of {self.segment_bytes >> 20} MB, batches of "
            f"{self.records_per_batch} records of {self.value_bytes:,} bytes, {self.keys:,} keys at random"
        )


FULL = Shape(megabytes=2000, keys=500_000, segment_bytes=64 << 20)
SMALL = Shape(megabytes=4, keys=500, segment_bytes=1 << 20, settle_s=0)
"""No topic may have smaller segments. Enough, too, to have ours start the process that compacts."""


def rounds_of(broker: Running, topic: str) -> list[tuple[int, float]]:
    """(first dirty offset afterwards, seconds) of every round over a topic of one partition so far."""
    says = KAFKA_SAYS if broker.name == "kafka" else WE_SAY
    found = says.findall(broker.log.read_text(errors="replace"))
    return [(int(end), float(took.replace(",", ""))) for name, end, took in found if name == f"{topic}-0"]


@contextlib.contextmanager
def kafka(run: Run, folder: pathlib.Path) -> Iterator[Running]:
    """Apache Kafka that logs what its cleaner does."""
    logging = folder / "log4j2.properties"
    logging.write_text(KAFKA_LOGGING)
    options = [f"-Dlog4j2.configurationFile={logging}"]
    with brokers.kafka(run.load_program, folder, run.cores.server, settings=SETTINGS, jvm=options) as broker:
        yield broker


def write_batches(shape: Shape, path: pathlib.Path) -> None:
    """So many bytes of batches, each behind its length; the same ones each time but for their timestamp."""
    chance = random.Random(7)
    values = [chance.randbytes(shape.value_bytes // 2).hex().encode() for _ in range(64)]
    now_ms = int(time.time() * 1000)
    written = 0
    with path.open("wb") as file:
        while written < shape.input_bytes:
            records = [
                Record(place, now_ms, b"key-%012d" % chance.randrange(shape.keys), chance.choice(values))
                for place in range(shape.records_per_batch)
            ]
            batch = build_batch(records)
            file.write(LENGTH.pack(len(batch)) + batch)
            written += len(batch)


def batches(path: pathlib.Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(LENGTH.size):
            yield file.read(LENGTH.unpack(head)[0])


def fill(broker: Running, topic: str, shape: Shape, path: pathlib.Path) -> None:
    """Makes a topic that is not due yet, and gives the disk time to have it all."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(shape.segment_bytes),
        "min.compaction.lag.ms": str(NEVER_MS),
        "min.cleanable.dirty.ratio": "0.01",
    }
    with Pipeline("127.0.0.1", broker.port) as client:
        client.create_topics([topic], 1, configs)
        for batch in batches(path):
            client.write(topic, batch)
    os.sync()
    time.sleep(shape.settle_s)


def compact(broker: Running, topic: str, shape: Shape) -> float:
    """Makes a topic due; returns the seconds of the round over it."""
    with WireClient("127.0.0.1", broker.port) as client:
        client.configure_topic(topic, {"min.compaction.lag.ms": "0"})
    deadline = time.monotonic() + ROUND_PATIENCE_S
    while not (found := rounds_of(broker, topic)):
        assert time.monotonic() < deadline, f"{broker.name} does not compact {topic}"
        # Not more often: this is the core of the load, whose p99 a look every 20 ms would be.
        time.sleep(0.1)
    end, seconds = found[0]
    assert end >= shape.least_end, f"{broker.name} compacted {topic} to offset {end} only"
    return seconds


def drop(broker: Running, topic: str) -> None:
    with WireClient("127.0.0.1", broker.port) as client:
        client.delete_topics([topic])


# Seconds, beside Kafka


def speed(run: Run) -> Section:
    """Takes about two and a half minutes a round, and one round more than asked for. A round of one broker
    that has not ended after three minutes ends the part."""
    shape = run.choose(FULL, SMALL)
    # The input, the log of one broker before and after, and what is left of the other's.
    run.need_room(shape.input_bytes * 4, "Compaction beside Kafka")
    took: dict[str, list[float]] = {"kafka": [], "odradek": []}
    limited: dict[str, list[float]] = {"kafka": [], "odradek": []}
    processor: dict[str, list[float]] = {"kafka": [], "odradek": []}
    with run.folder("compaction") as folder:
        path = folder / "batches"
        write_batches(shape, path)
        with kafka(run, folder) as theirs, run.odradek(folder, SETTINGS) as ours, run.on_core(run.cores.load):
            pair = [theirs, ours.running]
            for number in range(run.rounds + 1):
                for broker in pair if number % 2 else pair[::-1]:
                    seconds, used = one_round(broker, f"round-{number}", shape, path)
                    if number:
                        took[broker.name].append(seconds)
                        processor[broker.name].append(used)
            limit = shape.input_bytes // LIMITED_S
            for broker in pair:
                with WireClient("127.0.0.1", broker.port) as client:
                    client.configure_brokers({"log.cleaner.io.max.bytes.per.second": str(limit)})
            for number in range(run.rounds):
                for broker in pair if number % 2 else pair[::-1]:
                    limited[broker.name].append(one_round(broker, f"limited-{number}", shape, path)[0])
    found = Section("Compaction beside Kafka's cleaner")
    found.notes = [
        f"The same batches to both: {shape}. Each broker is on core {run.cores.server} with its cleaner, the "
        "other one idle meanwhile, nothing else asked of them. Seconds as each broker says them. The first "
        "round of each is there to warm it and does not count."
    ]
    name = f"compaction of {shape.megabytes:,} MB, one core"
    found.outcomes = [
        Outcome(name, "s", True, 1.0, took["kafka"], took["odradek"]),
        Outcome(
            f"the same with log.cleaner.io.max.bytes.per.second at {limit / 1e6:,.0f} MB",
            *("s", True, None),
            *(limited["kafka"], limited["odradek"]),
        ),
    ]
    for broker_name, title in (("kafka", "Apache Kafka"), ("odradek", "Odradek")):
        what = f"processor time of {title} meanwhile, start and end of the round included"
        found.figures.append(Figure.median(what, processor[broker_name], "s"))
    return found


def one_round(broker: Running, topic: str, shape: Shape, path: pathlib.Path) -> tuple[float, float]:
    """Seconds, and seconds of the processor for the broker and its children."""
    fill(broker, topic, shape, path)
    before = cpu_seconds(broker)
    seconds = compact(broker, topic, shape)
    used = cpu_seconds(broker) - before
    print(f"  {broker.name}, {topic}: {seconds:.2f} s, {used:.2f} s of processor", flush=True)
    drop(broker, topic)
    return seconds, used


def cpu_seconds(broker: Running) -> float:
    """Of a broker and its children so far."""
    total = broker.cpu_seconds()
    for child in broker.children():
        with contextlib.suppress(FileNotFoundError):
            total += brokers.cpu_seconds(child)
    return total


# What producers feel


@dataclass(frozen=True)
class Layout:
    """Which core the process that compacts is on, and which one the producers' load."""

    says: str
    cleaner: int
    load: int
    limit: float | None = None
    """How many times idle a produce's p99 may be."""


def layouts(cores: Cores) -> list[Layout]:
    """Where there is no third core, the cleaner has one of its own when the load is on the broker's. The
    load's is shared with it then, too: what comes of that is told, and allowed anything."""
    of_the_broker = Layout("of the broker", cores.server, cores.load)
    if cores.third != cores.load:
        return [Layout("of its own", cores.third, cores.load, TIMES_IDLE_MAX), of_the_broker]
    if cores.load == cores.server:
        return [of_the_broker]
    return [
        Layout("of its own", cores.load, cores.server, TIMES_IDLE_MAX),
        Layout("of the load", cores.load, cores.load),
        of_the_broker,
    ]


@dataclass
class Felt:
    """p99 of a produce in ms and the seconds of the round, one of each a round."""

    idle: list[float] = field(default_factory=list)
    compacting: list[float] = field(default_factory=list)
    compacting_p50: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def latency(run: Run) -> Section:
    """Takes about a minute and a half a round."""
    shape = run.choose(FULL, SMALL)
    run.need_room(shape.input_bytes * 3, "Producing beside compaction")
    felt = {layout: Felt() for layout in layouts(run.cores)}
    watch = Watch()
    with run.folder("compaction") as folder:
        path, small_path, frames = folder / "batches", folder / "small", folder / "produce.frames"
        write_batches(shape, path)
        write_batches(SMALL, small_path)
        with run.odradek(folder, SETTINGS) as node, run.on_core(run.cores.load):
            broker = node.running
            with WireClient("127.0.0.1", broker.port) as client:
                ids = client.create_topics(["probe"], 1)
            write_frames(frames, [produce_frame("probe", ids["probe"], 0, batch_of(1, 100))])
            for number in range(run.rounds):
                for place, layout in enumerate(felt):
                    topic = f"round-{number}-{place}"
                    fill(broker, topic, shape, path)
                    start_cleaner(broker, f"before-{topic}", small_path, layout.cleaner)
                    pinning = CorePinning(layout.load)
                    feel(run.seconds, broker, pinning, topic, shape, frames, felt[layout], watch)
    return latency_section(run, shape, felt, watch)


def start_cleaner(broker: Running, topic: str, path: pathlib.Path, core: int) -> None:
    """Has the process that compacts started, by a small log, and puts it on a core. When it has nothing to do
    it stays for a minute."""
    fill(broker, topic, SMALL, path)
    compact(broker, topic, SMALL)
    drop(broker, topic)
    cleaners = broker.children()
    assert cleaners, "the broker compacts without a process of its own"
    for cleaner in cleaners:
        os.sched_setaffinity(cleaner, {core})


def feel(
    seconds_idle: float,
    broker: Running,
    pinning: Pinning,
    topic: str,
    shape: Shape,
    frames: pathlib.Path,
    felt: Felt,
    watch: Watch,
) -> None:
    """One round: a steady load on an idle broker, then the same while a topic is compacted."""
    warm_up = ["-w", str(WARM_UP_S)]
    idle = run_load(broker, pinning, frames, *STEADY, *warm_up, "-s", str(seconds_idle))
    felt.idle.append(watch.add(idle, RATE)["p99_us"] / 1000)
    load = start_load(broker, pinning, frames, *STEADY, *warm_up, "-s", str(2 * ROUND_PATIENCE_S))
    try:
        time.sleep(WARM_UP_S + 0.1)
        seconds = compact(broker, topic, shape)
    finally:
        meanwhile = finish_load(load, at_once=True)
    felt.compacting.append(watch.add(meanwhile, RATE)["p99_us"] / 1000)
    felt.compacting_p50.append(meanwhile["p50_us"] / 1000)
    felt.seconds.append(seconds)
    drop(broker, topic)


def latency_section(run: Run, shape: Shape, felt: dict[Layout, Felt], watch: Watch) -> Section:
    found = Section("Produces while a log is being compacted")
    where = "; ".join(
        f"'{layout.says}': cleaner on core {layout.cleaner}, load on core {layout.load}" for layout in felt
    )
    found.notes = [
        f"{shape}. The broker is on core {run.cores.server}; what compacts, at nice 19, is on one core or "
        f"another ({where}). {STEADY_SAYS} Idle is measured before each round, with the load where it is in "
        "the round, when all is on the disk."
    ]
    if any(layout.cleaner == layout.load for layout in felt):
        found.notes.append(
            "This machine has no third core. With the load beside the broker nothing shares the cleaner's "
            "core, but the two wait for each other, so that idle is another one. On the load's core the load "
            "goes first, but has to get it back each time."
        )
    for layout, one in felt.items():
        where = f"cleaner on a core {layout.says}"
        idle = Figure.median(f"p99 of a produce, idle ({where})", one.idle, "ms")
        ratios = [compacting / idle.value for compacting in one.compacting]
        found.figures += [
            idle,
            Figure.median(f"p99 of a produce, compacting ({where})", one.compacting, "ms"),
            Figure.median(f"p99 compacting in times of idle ({where})", ratios, "x", layout.limit),
            Figure.median(f"p50 of a produce, compacting ({where})", one.compacting_p50, "ms"),
            Figure.median(f"the round took ({where})", one.seconds, "s"),
        ]
    found.figures += watch.figures()
    return found
