"""The part `share`: share groups beside Apache Kafka.

Records a second of one and of fifty members of a share group over one partition, and what a record costs
the broker; the time from produce to delivery at a modest rate; the memory of a million records in flight, as
whole ranges and with every second record acknowledged.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.cases import Case
from benchmarks.comparison import Warming, run_case, warm_compiler
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.frames import batch_of
from benchmarks.load import PATIENCE_S, Pinning
from benchmarks.machine import CHECKOUT
from benchmarks.run import Run
from benchmarks.share_load import BATCH_SIZE, BYTES_MAX, RECORDS_MAX, WAIT_MS, join, topic_id_of
from benchmarks.transactions import live_heap_bytes
from benchmarks.wire_client import Pipeline, WireClient
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import share_acknowledge
from odradek.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic
from odradek.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest

MEMBERS = 50
MODES = {"whole batches": "batch_optimized", "strict limit": "record_limit"}
"""Of acquiring, by the names that tables have for them."""
BATCH_BYTES = 16_000
RECORDS, FEW_RECORDS = {100: 1_200_000, 1000: 400_000}, {100: 40_000, 1000: 8_000}
"""In a log that a measurement reads from its begin, at most to its end; by the bytes of a value."""
RATE = 500
"""Records a second of the measurements of times."""
LEVEL = 1.0
IN_FLIGHT, FEW_IN_FLIGHT = (100, 10_000), (2, 250)
"""Partitions, and records of each: the most that `group.share.max.partition.max.record.locks` can permit."""
MEMORY_ROUNDS = 3
"""At most: each has brokers of its own."""
IN_FLIGHT_BATCH = 125
"""Records of a batch of the log that is held in flight."""
SHARE_VERSION = 2
"""Of ShareFetch and ShareAcknowledge."""
ACCEPT = 1

SETTINGS = {
    "group.share.max.session.timeout.ms": "1800000",
    "group.share.session.timeout.ms": "1800000",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.partition.max.record.locks": "10000",
    "group.share.max.record.lock.duration.ms": "3600000",
}
"""Members that are not heard of for a while stay; groups are assigned at once, and may hold more records, for
a longer time, than they do by default."""


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 20 minutes."""
    found = Section("Share groups")
    partitions, each = IN_FLIGHT
    found.notes = [
        f"{run.rounds} measurements of {run.seconds:g} s for each case and broker, each broker on one core, "
        "the load on another: `benchmarks/share_load.py`, one process that replays templates and looks at no "
        f"record. Members send what Kafka's client sends by default: at most {RECORDS_MAX} records in a "
        "fetch, which accepts those of the one before. Batches of the log have 16 KB. A measurement has a "
        "new group, which reads from the first record on; its processor time is of the broker alone, and "
        "for each record that was delivered and accepted.",
        warming.told(),
        f"Times from produce to delivery are of {RATE} records of 100 bytes a second, each produced by "
        "itself with acks=all, from the moment when it was sent until the response that has it is read; the "
        "processor time beside them is of both, produce and delivery.",
        f"{partitions * each:,} records in flight are {each:,} in each of {partitions} partitions, acquired "
        f"by one member, {BATCH_SIZE} at a time; then every second one is acknowledged by itself. Memory is "
        "RSS without mapped files for Odradek, and for Kafka what is in use of the heap after a full "
        "collection, each less what it was before; how much RSS grew in all is told besides, pages of mapped "
        "segments that Odradek has sent among it.",
    ]
    pinning = run.load_pinning
    cases = all_cases(run.choose(RECORDS, FEW_RECORDS))
    with run.folder("share") as folder, contextlib.ExitStack() as stack:
        running = {
            "kafka": stack.enter_context(
                brokers.kafka(run.load_program, folder, run.cores.server, settings=SETTINGS)
            ),
            "odradek": stack.enter_context(run.odradek(folder, SETTINGS)).running,
        }
        warm_compiler(running["kafka"], folder, pinning, warming.compile_seconds)
        for case in cases:
            if warming.only in case.name:
                found.outcomes.append(run_case(case, running, run, pinning, warming))
    found.figures += load_figures(cases)
    if warming.only:
        return found
    outcomes, figures = in_flight(run, *run.choose(IN_FLIGHT, FEW_IN_FLIGHT))
    found.outcomes += outcomes
    found.figures += figures
    return found


# -- rates and times


@dataclass
class ShareCase(Case):
    """Members of `share_load`: their rate, a time of theirs, or what they cost the broker.

    A row that `follows` another one shows a figure of its runs.
    """

    members: int = 1
    value_bytes: int = 100
    mode: str = "batch_optimized"
    records: int = 0
    """Of the log, where there is no producer beside the members."""
    produced_rate: int = 0
    figure: str = "rate"
    """A name of what the load prints."""
    follows: ShareCase | None = None
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """What each run has told so far, by broker."""
    _topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By broker, with the last offset."""

    def prepare(self, broker: brokers.Running, work: pathlib.Path) -> None:
        if self.produced_rate:
            return
        topic = f"share-{time.monotonic_ns()}"
        count = BATCH_BYTES // self.value_bytes
        with Pipeline("127.0.0.1", broker.port) as client:
            client.create_topics([topic], 1)
            batch = batch_of(count, self.value_bytes)
            for _ in range(self.records // count):
                client.write(topic, batch)
        self._topics[broker.name] = topic, self.records // count * count - 1

    def measure(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        with contextlib.ExitStack() as stack:
            if self.produced_rate:
                # Where the first record has the first offset, a record is known by its offset.
                topic, last = stack.enter_context(_new_topic(broker)), -1
            else:
                topic, last = self._topics[broker.name]
            shape = (self.members, seconds, self.produced_rate, self.mode, self.value_bytes)
            command = [sys.executable, "-m", "benchmarks.share_load", str(broker.port), str(broker.pid)]
            command += [topic, str(last), *map(str, shape)]
            done = subprocess.run(
                pinning.load(command),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                cwd=CHECKOUT,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-2000:])
        result: dict[str, float] = json.loads(done.stdout)
        self.runs.setdefault(broker.name, []).append(result)
        return result[self.figure]

    def measured_before(self, rounds: int) -> tuple[bool, dict[str, list[float]]] | None:
        if self.follows is None or not self.follows.runs:
            return None
        return self.follows.is_kafka_warm, {
            broker: [figures[self.figure] for figures in runs[-rounds:]]
            for broker, runs in self.follows.runs.items()
        }

    def clean_up(self, broker: brokers.Running) -> None:
        if broker.name in self._topics:
            with WireClient("127.0.0.1", broker.port) as client:
                client.delete_topics([self._topics.pop(broker.name)[0]])


@contextlib.contextmanager
def _new_topic(broker: brokers.Running) -> Iterator[str]:
    topic = f"share-{time.monotonic_ns()}"
    with WireClient("127.0.0.1", broker.port) as client:
        client.create_topics([topic], 1)
        yield topic
        client.delete_topics([topic])


def all_cases(records: Mapping[int, int]) -> list[ShareCase]:
    """`records` in a log, by the bytes of a value."""
    cases: list[ShareCase] = []

    def add(first: ShareCase, *more: tuple[str, str, str]) -> None:
        """A row, and rows of the same runs: name, unit and figure, of which less is better."""
        cases.append(first)
        for name, unit, figure in more:
            cases.append(
                ShareCase(
                    name=name,
                    unit=unit,
                    lower=True,
                    at_least=LEVEL,
                    members=first.members,
                    value_bytes=first.value_bytes,
                    mode=first.mode,
                    records=first.records,
                    produced_rate=first.produced_rate,
                    figure=figure,
                    follows=first,
                )
            )

    for members in (1, MEMBERS):
        for value_bytes, size in ((100, "100 B"), (1000, "1 KB")):
            for said, mode in MODES.items():
                shape = f"{_of(members)}, {size}, {said}"
                rate = ShareCase(
                    name=f"share: {shape}",
                    unit="records/s",
                    at_least=LEVEL,
                    members=members,
                    value_bytes=value_bytes,
                    mode=mode,
                    records=records[value_bytes],
                )
                add(rate, (f"share, server CPU of a record: {shape}", "us", "cpu_us"))
    for members in (1, MEMBERS):
        shape = f"{RATE} records/s, {_of(members)}"
        usual = ShareCase(
            name=f"produce to delivery, {shape}: p50",
            unit="ms",
            lower=True,
            at_least=LEVEL,
            members=members,
            produced_rate=RATE,
            figure="p50_ms",
        )
        add(
            usual,
            (f"produce to delivery, {shape}: p99", "ms", "p99_ms"),
            (f"produce to delivery, {shape}: server CPU of a record", "us", "cpu_us"),
        )
    return cases


def _of(members: int) -> str:
    return f"{members} member{'s' * (members > 1)}"


def load_figures(cases: Iterable[ShareCase]) -> list[Figure]:
    """Whether the load can be believed."""
    busy = [one["load_busy"] for case in cases for runs in case.runs.values() for one in runs]
    what = "of the time of a measurement: the load running, at most"
    return [Figure(what, max(busy) * 100, "%")] if busy else []


# -- records in flight


@dataclass
class InFlight:
    """What records in flight cost a broker, a value for each round; bytes and microseconds for a record."""

    whole_bytes: list[float] = field(default_factory=list)
    every_second_bytes: list[float] = field(default_factory=list)
    acquire_us: list[float] = field(default_factory=list)
    """Of the broker's processor, for a record that is acquired."""
    acknowledge_us: list[float] = field(default_factory=list)
    """The same for one that is acknowledged by itself."""
    rss_bytes: list[float] = field(default_factory=list)
    """By how much RSS grew in all."""


def in_flight(run: Run, partitions: int, each: int) -> tuple[list[Outcome], list[Figure]]:
    """Memory and processor time of so many records that are acquired and not acknowledged."""
    found = {"kafka": InFlight(), "odradek": InFlight()}
    with run.on_core(run.cores.load):
        for turn in range(min(run.rounds, MEMORY_ROUNDS)):
            for name in ("kafka", "odradek") if turn % 2 == 0 else ("odradek", "kafka"):
                with run.folder("in-flight") as folder, contextlib.ExitStack() as stack:
                    if name == "kafka":
                        broker = stack.enter_context(
                            brokers.kafka(run.load_program, folder, run.cores.server, settings=SETTINGS)
                        )
                    else:
                        broker = stack.enter_context(run.odradek(folder, SETTINGS)).running
                    hold(broker, partitions, each, found[name])
    theirs, ours = found["kafka"], found["odradek"]
    many = f"{partitions * each:,} records in flight"
    rows = (
        ("memory of each, whole ranges", "bytes", theirs.whole_bytes, ours.whole_bytes),
        (
            "memory of each, every second acknowledged",
            "bytes",
            theirs.every_second_bytes,
            ours.every_second_bytes,
        ),
        ("server CPU to acquire one", "us", theirs.acquire_us, ours.acquire_us),
        ("server CPU to acknowledge one by itself", "us", theirs.acknowledge_us, ours.acknowledge_us),
    )
    return [
        Outcome(f"{many}: {what}", unit, True, LEVEL, kafka, odradek) for what, unit, kafka, odradek in rows
    ], [
        Figure.median(f"Kafka, {many}: growth of RSS", [rss / 1e6 for rss in theirs.rss_bytes], "MB"),
        Figure.median(f"Odradek, {many}: growth of RSS", [rss / 1e6 for rss in ours.rss_bytes], "MB"),
    ]


def hold(broker: brokers.Running, partitions: int, each: int, costs: InFlight) -> None:
    """Measures a broker that has done nothing yet."""
    count = partitions * each
    with Pipeline("127.0.0.1", broker.port) as writer:
        batch = batch_of(IN_FLIGHT_BATCH, 100)
        writer.create_topics(["warm"], 1)
        writer.create_topics(["held"], partitions)
        for partition in range(partitions):
            for _ in range(each // IN_FLIGHT_BATCH):
                writer.write("held", batch, partition)
        for _ in range(10):
            writer.write("warm", batch)
    with contextlib.ExitStack() as stack:
        # What a first group makes a broker do is no cost of records.
        first = stack.enter_context(Holder(broker.port, "warm", 1, 10 * IN_FLIGHT_BATCH))
        first.acquire()
        first.acknowledge_every_second()
        holder = stack.enter_context(Holder(broker.port, "held", partitions, each))
        time.sleep(brokers.READY_S)
        rss, memory, cpu_s = broker.rss_bytes(), memory_bytes(broker), broker.cpu_seconds()
        holder.acquire()
        costs.acquire_us.append((broker.cpu_seconds() - cpu_s) / count * 1e6)
        costs.whole_bytes.append(max(0, memory_bytes(broker) - memory) / count)
        cpu_s = broker.cpu_seconds()
        acknowledged = holder.acknowledge_every_second()
        costs.acknowledge_us.append((broker.cpu_seconds() - cpu_s) / acknowledged * 1e6)
        costs.every_second_bytes.append(max(0, memory_bytes(broker) - memory) / count)
        costs.rss_bytes.append(max(0, broker.rss_bytes() - rss))


def memory_bytes(broker: brokers.Running) -> int:
    """What the broker cannot do without."""
    return live_heap_bytes(broker.pid) if broker.name == "kafka" else broker.anonymous_bytes()


class Holder(WireClient):
    """The one member of a new group, which acquires `each` records in each partition of a topic."""

    def __init__(self, port: int, topic: str, partitions: int, each: int) -> None:
        super().__init__("127.0.0.1", port)
        self._group, self._member = f"holds-{topic}", str(uuid.uuid4())
        self._partitions, self._each = range(partitions), each
        self._epoch = 0
        self._ranges: dict[int, list[tuple[int, int]]] = {partition: [] for partition in self._partitions}
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.partition.max.record.locks": str(max(each, 100)),
            "share.record.lock.duration.ms": "3600000",
        }
        self.configure_group(self._group, settings)
        self._topic_id = topic_id_of(self, topic)
        join(self, self._group, topic, [self._member])

    def acquire(self) -> None:
        """All records."""
        missing = len(self._partitions) * self._each
        deadline = time.monotonic() + PATIENCE_S
        while missing > 0:
            assert time.monotonic() < deadline, f"{missing} records are not acquired"
            named = [
                FetchPartition(partition_index=one, acknowledgement_batches=[]) for one in self._partitions
            ]
            topics = [FetchTopic(topic_id=self._topic_id, partitions=named)]
            request = ShareFetchRequest(
                group_id=self._group,
                member_id=self._member,
                share_session_epoch=self._epoch,
                max_wait_ms=WAIT_MS,
                min_bytes=1,
                max_bytes=BYTES_MAX,
                max_records=RECORDS_MAX,
                batch_size=BATCH_SIZE,
                share_acquire_mode=0,
                is_renew_ack=False,
                topics=[] if self._epoch else topics,
                forgotten_topics_data=[],
            )
            self._epoch += 1
            answer = self.call(request, SHARE_VERSION)
            assert answer.error_code == 0, (ErrorCode(answer.error_code).name, answer.error_message)
            for topic in answer.responses:
                for one in topic.partitions:
                    for acquired in one.acquired_records:
                        self._ranges[one.partition_index].append(
                            (acquired.first_offset, acquired.last_offset)
                        )
                        missing -= acquired.last_offset - acquired.first_offset + 1

    def acknowledge_every_second(self) -> int:
        """The first record and those that follow it stay in flight. How many there were."""
        count = 0
        for partition, ranges in self._ranges.items():
            batches = [
                share_acknowledge.AcknowledgementBatch(
                    first_offset=offset, last_offset=offset, acknowledge_types=[ACCEPT]
                )
                for first, last in ranges
                for offset in range(first | 1, last + 1, 2)
            ]
            count += len(batches)
            self._acknowledge(partition, batches)
        return count

    def _acknowledge(self, partition: int, batches: Sequence[share_acknowledge.AcknowledgementBatch]) -> None:
        named = AcknowledgePartition(partition_index=partition, acknowledgement_batches=list(batches))
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            is_renew_ack=False,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[named])],
        )
        self._epoch += 1
        answer = self.call(request, SHARE_VERSION)
        codes = {
            answer.error_code,
            *(one.error_code for topic in answer.responses for one in topic.partitions),
        }
        assert codes == {0}, answer
