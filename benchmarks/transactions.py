"""The part `transactions`: what they cost, beside Apache Kafka, and what an idle transactional id costs.

One producer and fifty, with few and many records and partitions: rate, the server's processor time, the time
of a commit; fetches at isolation level read_committed beside the same bytes at read_uncommitted, of large
transactions and of many small ones; then a hundred thousand transactional ids that do nothing: memory, and
the time until they are loaded at a start.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.cases import Case
from benchmarks.comparison import Warming, run_case, warm_compiler
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.frames import CLIENT_ID, Frame, write_frames
from benchmarks.load import PATIENCE_S, Pinning, run_load
from benchmarks.machine import CHECKOUT
from benchmarks.run import GIGABYTE, Run
from benchmarks.transaction_load import NOT_READY, begin
from benchmarks.wire_client import WireClient
from compat_tests.reference import Kafka
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.partitioner import partition_for
from odradek.wire.records import Record, build_batch

PRODUCERS = 50
STEADY_RATE = 2_000
"""Transactions a second: some six tenths of what Kafka reached with fifty producers on one core. In a closed
loop the times of two brokers are those of different loads: who ends more transactions has more under way."""
IDLE_IDS, FEW_IDLE_IDS = 100_000, 200
IDS_UNDER_WAY = 200
STATE_PARTITIONS = 50
"""Of `__transaction_state`, by default."""
ABORTED_EVERY = 5
FETCH_VERSION, INIT_VERSION = 11, 4
LEVEL, ONE_RECORD = 1.0, 1.5
"""Of Kafka's rate: at least as fast, and half as fast again where a transaction has one record."""
TRANSACTIONAL_ID_NOT_FOUND = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@dataclass(frozen=True)
class Shape:
    """Of the transactions of a log that is fetched."""

    name: str
    count: int
    few: int
    """How many of them in the small form."""
    batches: int
    records: int
    """In each batch."""
    value_bytes: int
    response_bytes: int


LARGE = Shape("large transactions", 50, 4, 10, 1000, 1000, 1_000_000)
"""An answer has one batch, which is a little longer."""
SMALL = Shape("small transactions", 6000, 50, 1, 1, 100, 250_000)
"""An answer has some 1,000 of them, and tells of 200 that were aborted."""


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 20 minutes, a quarter of them for the idle ids."""
    found = Section("Transactions")
    found.notes = [
        f"{run.rounds} measurements of {run.seconds:g} s for each case and broker, each broker on one core, "
        "the load on another. The load speaks transaction.version 2 in a closed loop: one Produce that adds "
        "its partitions by itself, then EndTxn; a producer whose last transaction is not complete asks again "
        f"after a millisecond, as often as it takes. Where a rate is named {PRODUCERS} producers begin so "
        "many transactions a second instead of one after the other. Records have 100 bytes.",
        warming.told(),
        "read_committed is measured on logs in which every fifth transaction was aborted, the same logs and "
        f"the same requests at both isolation levels: {LARGE.count} transactions of {LARGE.batches} batches "
        f"of a megabyte, each fetched by itself, and {SMALL.count:,} of one record, "
        f"{SMALL.response_bytes // 1000} KB of them in an answer.",
        f"Memory of idle transactional ids is RSS {brokers.READY_S:.0f} s after a start has loaded them, "
        "less that after one with none to load. A Java virtual machine keeps what it once touched of its "
        "heap (1 GB here), garbage of the loading with it: what they add to what is in use of the heap after "
        "a full collection is told besides.",
    ]
    pinning = run.load_pinning
    with run.folder("transactions") as folder, contextlib.ExitStack() as stack:
        running = {
            "kafka": stack.enter_context(brokers.kafka(run.load_program, folder, run.cores.server)),
            "odradek": stack.enter_context(brokers.odradek(run.load_program, folder, run.cores.server)),
        }
        warm_compiler(running["kafka"], folder, pinning, warming.compile_seconds)
        for case in all_cases(is_small=run.is_quick):
            if warming.only in case.name:
                found.outcomes.append(run_case(case, running, run, pinning, warming))
    if warming.only:
        return found
    found.figures += prices_of_isolation(found.outcomes)
    outcomes, figures = idle_ids(run, run.choose(IDLE_IDS, FEW_IDLE_IDS))
    found.outcomes += outcomes
    found.figures += figures
    return found


def all_cases(*, is_small: bool) -> list[Case]:
    return [*_rates(), *_times(), *_fetches(is_small)]


def _rates() -> list[Case]:
    """Transactions a second, and what the server's core gives for one."""
    cases: list[Case] = [
        TransactionCase(
            name=f"transactions, {_of(producers)}, {records} records, {partitions} partitions",
            unit="transactions/s",
            at_least=ONE_RECORD if records == 1 else LEVEL,
            records=records,
            partitions=partitions,
            producers=producers,
        )
        for producers, records, partitions in (
            *((1, 1, 1), (1, 10, 10), (1, 100, 1), (1, 100, 10)),
            *((PRODUCERS, 1, 1), (PRODUCERS, 100, 10)),
        )
    ]
    for producers in (1, PRODUCERS):
        cases.append(
            TransactionCase(
                name=f"server CPU of a transaction, {_of(producers)}, 1 record",
                unit="us",
                lower=True,
                at_least=LEVEL,
                producers=producers,
                figure="cpu_us",
            )
        )
    return cases


def _times() -> list[Case]:
    """How long a producer waits."""
    cases: list[Case] = []
    for producers, rate in ((1, 0), (PRODUCERS, 0), (PRODUCERS, STEADY_RATE)):
        load = _of(producers) + (f" with {rate:,} transactions/s" if rate else "")
        for figure in ("commit_p50_ms", "commit_p99_ms", "transaction_p99_ms"):
            what, share, _ = figure.split("_")
            cases.append(
                TransactionCase(
                    name=f"{what} of one record, {load}: {share}",
                    unit="ms",
                    lower=True,
                    at_least=LEVEL,
                    producers=producers,
                    load_rate=rate,
                    figure=figure,
                )
            )
    return cases


ISOLATIONS = ("read_uncommitted", "read_committed")
"""By their numbers."""


def _fetches(is_small: bool) -> list[Case]:
    """What the server's core gives for a gigabyte."""
    return [
        CommittedFetchCase(
            name=_fetch_of(shape, isolation),
            unit="s/GB",
            lower=True,
            at_least=LEVEL,
            isolation=isolation,
            shape=shape,
            count=shape.few if is_small else shape.count,
        )
        for shape in (LARGE, SMALL)
        for isolation in range(len(ISOLATIONS))
    ]


def _fetch_of(shape: Shape, isolation: int) -> str:
    return f"fetch of {shape.name}, {ISOLATIONS[isolation]}: server CPU"


def prices_of_isolation(outcomes: Sequence[Outcome]) -> list[Figure]:
    """What reading what is committed costs us, for each byte, beside reading everything."""
    medians = {outcome.case: statistics.median(outcome.odradek) for outcome in outcomes}
    return [
        Figure(
            f"fetch of {shape.name}: CPU at read_committed over that at read_uncommitted",
            medians[_fetch_of(shape, 1)] / medians[_fetch_of(shape, 0)],
            "x",
        )
        for shape in (LARGE, SMALL)
        if medians[_fetch_of(shape, 0)]
    ]


def _of(producers: int) -> str:
    return f"{producers} producer{'s' * (producers > 1)}"


@dataclass
class TransactionCase(Case):
    """Transactions of `transaction_load`, their rate or a time of theirs."""

    records: int = 1
    partitions: int = 1
    producers: int = 1
    load_rate: int = 0
    """Of a steady load, transactions a second; 0 for a closed loop."""
    figure: str = "rate"
    """`rate`, `cpu_us` (of the server, for a transaction), or a name of what the load prints."""
    _topics: dict[str, str] = field(default_factory=dict)

    def prepare(self, broker: brokers.Running, work: pathlib.Path) -> None:
        topic = f"transactions-{time.monotonic_ns()}"
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([topic], self.partitions)
            # The first transactional id makes the topic of the coordinator.
            begin(client, "before all")
        self._topics[broker.name] = topic

    def measure(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        shape = (self.records, self.partitions, self.producers, seconds, self.load_rate)
        command = [sys.executable, "-m", "benchmarks.transaction_load", str(broker.port)]
        command += [self._topics[broker.name], *map(str, shape)]
        cpu_seconds = broker.cpu_seconds()
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
        result["rate"] = result["transactions"] / result["seconds"]
        result["cpu_us"] = (broker.cpu_seconds() - cpu_seconds) / result["all_transactions"] * 1e6
        return result[self.figure]

    def clean_up(self, broker: brokers.Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([self._topics.pop(broker.name)])


@dataclass
class CommittedFetchCase(Case):
    """CPU seconds of the server for each gigabyte of a log of transactions, every fifth of them aborted."""

    isolation: int = 0
    shape: Shape = LARGE
    count: int = 0
    topic: str = field(default_factory=lambda: f"committed-{time.monotonic_ns()}")

    def prepare(self, broker: brokers.Running, work: pathlib.Path) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([self.topic], 1)
            writer = Writer(client, self.topic, self.shape)
            places = [place for n in range(self.count) for place in writer.write(n % ABORTED_EVERY != 0)]
            wait_until_stable(client, self.topic)
        if self.shape.batches == 1:
            # Where the log is so short that an answer ends with it, it is none of the size that is meant.
            places = places[: len(places) // 2 : len(places) // 16 + 1]
        frames = [self._frame(place, self.shape.response_bytes) for place in places]
        write_frames(work / f"{broker.name}-committed.frames", frames)

    def _frame(self, offset: int, max_bytes: int) -> Frame:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=self.isolation,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
            forgotten_topics_data=[],
            rack_id="",
        )
        # correlation id 4, throttle 4, error code 2, session 4, topics 4, name 2 + n, partitions 4, index 4
        return Frame(
            request_frame(request, FETCH_VERSION, 0, CLIENT_ID), -1, 28 + len(self.topic.encode()), 0
        )

    def measure(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        before = broker.cpu_seconds()
        frames = work / f"{broker.name}-committed.frames"
        result = run_load(broker, pinning, frames, "-c", "4", "-s", str(seconds))
        return (broker.cpu_seconds() - before) / (result["bytes_received"] / GIGABYTE)

    def clean_up(self, broker: brokers.Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([self.topic])


class Writer:
    """Transactions of one shape in partition 0 of a topic."""

    def __init__(self, client: WireClient, topic: str, shape: Shape) -> None:
        self._client, self._topic, self._shape = client, topic, shape
        self._id = f"writer-of-{topic}"
        self._producer_id, self._epoch = begin(client, self._id)
        self._sequence = 0

    def write(self, is_committed: bool) -> list[int]:
        """One transaction; the offsets of its batches."""
        identity = {"producer_id": self._producer_id, "producer_epoch": self._epoch}
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )
        while code := self._added(added):
            assert code in NOT_READY, code
        places = [self._produce() for _ in range(self._shape.batches)]
        ended = EndTxnRequest(transactional_id=self._id, committed=is_committed, **identity)
        while code := self._client.call(ended, 4).error_code:
            assert code in NOT_READY, code
        return places

    def _added(self, request: AddPartitionsToTxnRequest) -> int:
        answer = self._client.call(request, 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def _produce(self) -> int:
        now_ms, shape = int(time.time() * 1000), self._shape
        batch = build_batch(
            [Record(n, now_ms, None, bytes(shape.value_bytes)) for n in range(shape.records)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        self._sequence += shape.records
        data = [PartitionProduceData(index=0, records=batch)]
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        answer = self._client.call(request, 11).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        return int(answer.base_offset)


def wait_until_stable(client: WireClient, topic: str) -> None:
    """Returns when every marker is there."""

    def end(isolation: int) -> int:
        asked = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])
        return int(client.call(request, 5).topics[0].partitions[0].offset)

    deadline = time.monotonic() + PATIENCE_S
    while end(1) < end(0):
        assert time.monotonic() < deadline, "a transaction is still open"
        time.sleep(0.05)


# -- idle ids


@dataclass
class Idle:
    """What a broker's starts with some number of idle ids cost; a value each."""

    loaded_s: list[float] = field(default_factory=list)
    rss_bytes: list[float] = field(default_factory=list)
    heap_bytes: list[float] = field(default_factory=list)
    """Of a Java virtual machine, what it cannot do without."""

    def each(self, none: Idle, count: int) -> list[float]:
        """Bytes of memory for each of `count` ids, when `none` had none."""
        without = statistics.median(none.rss_bytes)
        return [max(0.0, rss - without) / count for rss in self.rss_bytes]


def idle_ids(run: Run, count: int) -> tuple[list[Outcome], list[Figure]]:
    """Memory of so many transactional ids, and the seconds until they are loaded after a clean stop."""
    with run.folder("idle-ids") as folder, run.on_core(run.cores.load):
        with run.odradek(folder) as node:
            our_none, ours, made_bytes = idle_costs(run, node, lambda: node.running, count)
        kafka = Kafka(
            properties=brokers.SETTINGS,
            jvm=brokers.KAFKA_JVM,
            prefix=brokers.pinned([], run.cores.server),
            parent=folder,
            is_fast_to_start=False,
        )
        with kafka:
            running = lambda: brokers.Running("kafka", kafka.pid, kafka.port, run.load_program)  # noqa: E731
            their_none, theirs, _ = idle_costs(run, kafka, running, count)
    many = f"{count:,} idle transactional ids"
    what = f"start until {many} are loaded"
    rss_mb = [[rss / 1e6 for rss in costs.rss_bytes] for costs in (theirs, ours)]
    heap_bytes = max(0.0, statistics.median(theirs.heap_bytes) - statistics.median(their_none.heap_bytes))
    without_s = statistics.median(our_none.loaded_s)
    return [
        Outcome(what, "s", True, LEVEL, theirs.loaded_s, ours.loaded_s),
        Outcome(f"RSS with {many} after a start", "MB", True, LEVEL, *rss_mb),
        Outcome(
            "RSS of an idle transactional id that was loaded",
            "bytes",
            True,
            LEVEL,
            theirs.each(their_none, count),
            ours.each(our_none, count),
        ),
    ], [
        Figure.median(f"of our {what}: for the ids", [max(0.0, s - without_s) for s in ours.loaded_s], "s"),
        Figure("RSS of one of ours that was made", made_bytes / count, "bytes"),
        Figure("one of Kafka's that was loaded: of the heap after a collection", heap_bytes / count, "bytes"),
    ]


def idle_costs(
    run: Run, broker: brokers.Odradek | Kafka, running: Callable[[], brokers.Running], count: int
) -> tuple[Idle, Idle, float]:
    """Without any ids, with so many that were loaded; and the bytes by which making them has grown RSS."""
    with WireClient("127.0.0.1", broker.port) as client:
        begin(client, "before all")
    none = idle_starts(run, broker, running, count)
    before_bytes = running().rss_bytes()
    make_ids(broker.port, count)
    made_bytes = running().rss_bytes() - before_bytes
    loaded = idle_starts(run, broker, running, count)
    check_ids(broker.port, count)
    return none, loaded, max(0, made_bytes)


def idle_starts(
    run: Run, broker: brokers.Odradek | Kafka, running: Callable[[], brokers.Running], count: int
) -> Idle:
    """Clean stops and starts, with whatever ids there are."""
    costs = Idle()
    for _ in range(run.rounds):
        broker.stop()
        started = time.perf_counter()
        broker.start()
        costs.loaded_s.append(loaded_s(broker.port, one_for_each_coordinator(count), started))
        time.sleep(brokers.READY_S)
        costs.rss_bytes.append(running().rss_bytes())
        if isinstance(broker, Kafka):
            costs.heap_bytes.append(live_heap_bytes(broker.pid))
    return costs


def live_heap_bytes(pid: int) -> int:
    """What a Java virtual machine still uses of its heap after a full collection."""
    for command in ("GC.run", "GC.heap_info"):
        told = subprocess.run(
            ["jcmd", str(pid), command], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        ).stdout
    found = re.search(r"heap\s+total \d+K, used (\d+)K", told)
    if found is None:
        raise RuntimeError(f"jcmd GC.heap_info said: {told[-1000:]}")
    return int(found.group(1)) * 1024


def id_of(number: int) -> str:
    return f"an-application-of-ours-{number:06}"


def one_for_each_coordinator(count: int) -> list[str]:
    """Of so many ids one in each partition of `__transaction_state`, which are loaded as a whole."""
    found: dict[int, str] = {}
    for number in range(count):
        found.setdefault(partition_for(id_of(number), STATE_PARTITIONS), id_of(number))
        if len(found) == STATE_PARTITIONS:
            break
    return list(found.values())


class Requests(WireClient):
    """Many at a time; a broker answers those of a connection in their order."""

    def begin(self, transactional_id: str) -> None:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        self._socket.sendall(request_frame(request, INIT_VERSION, 1, CLIENT_ID))

    def take_code(self) -> int:
        (length,) = struct.unpack(">i", self._receive(4))
        _, answer = read_response(self._receive(length), InitProducerIdRequest, INIT_VERSION)
        return int(answer.error_code)


def make_ids(port: int, count: int) -> None:
    with Requests("127.0.0.1", port) as client:
        begin(client, id_of(0))
        under_way: list[int] = []
        numbers = list(range(count))[::-1]
        while numbers or under_way:
            while numbers and len(under_way) < IDS_UNDER_WAY:
                under_way.append(numbers.pop())
                client.begin(id_of(under_way[-1]))
            number = under_way.pop(0)
            code = client.take_code()
            assert code == 0 or code in NOT_READY, code
            if code:
                numbers.append(number)


def loaded_s(port: int, ids: Sequence[str], started: float) -> float:
    """Seconds from `started` until the coordinators of these ids answer, whether they have them or not."""
    deadline = time.monotonic() + PATIENCE_S
    with WireClient("127.0.0.1", port) as client:
        while codes_of(client, ids) - {0, TRANSACTIONAL_ID_NOT_FOUND}:
            assert time.monotonic() < deadline, "the ids are not loaded"
            time.sleep(0.01)
    return time.perf_counter() - started


def check_ids(port: int, count: int) -> None:
    """None may be missing."""
    with WireClient("127.0.0.1", port) as client:
        for first in range(0, count, 1000):
            codes = codes_of(client, map(id_of, range(first, min(first + 1000, count))))
            assert codes == {0}, codes


def codes_of(client: WireClient, ids: Iterable[str]) -> set[int]:
    """What the description of these ids is answered with."""
    answer = client.call(DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
    codes = {int(one.error_code) for one in answer.transaction_states}
    assert codes <= {0, TRANSACTIONAL_ID_NOT_FOUND, *NOT_READY}, codes
    return codes
