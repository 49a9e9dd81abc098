"""The part `transactions`: what they cost, beside Apache Kafka, and what an idle transactional id costs.

One producer and fifty, with few and many records and partitions; the time of a commit; fetches at isolation
level read_committed beside the same bytes at read_uncommitted; then a hundred thousand transactional ids that
do nothing: memory, and the time until they are loaded at a start.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.cases import Case
from benchmarks.comparison import Warming, run_case, warm_compiler
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.frames import CLIENT_ID, Frame, batch_of, write_frames
from benchmarks.load import PATIENCE_S, Pinning, run_load
from benchmarks.machine import CHECKOUT
from benchmarks.run import GIGABYTE, Run
from benchmarks.transaction_load import NOT_READY, begin
from benchmarks.wire_client import WireClient
from compat_tests.reference import Kafka
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch

PRODUCERS = 50
IDLE_IDS, FEW_IDLE_IDS = 100_000, 200
IDS_UNDER_WAY = 200
FETCHED_TRANSACTIONS, FEW_FETCHED = 50, 4
BATCHES_PER_TRANSACTION = 10
ABORTED_EVERY = 5
FETCH_VERSION, INIT_VERSION = 11, 4
RECORDS_A_BATCH = 1000
LEVEL, ONE_RECORD = 1.0, 1.5
"""Of Kafka's rate: at least as fast, and half as fast again where a transaction has one record."""


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 12 minutes, half of them for the idle ids."""
    found = Section("Transactions")
    found.notes = [
        f"{run.rounds} measurements of {run.seconds:g} s for each case and broker, each broker on one core, "
        "the load on another. The load speaks transaction.version 2 in a closed loop: one Produce that adds "
        "its partitions by itself, then EndTxn; a producer whose last transaction is not complete asks again "
        "after a millisecond, as often as it takes. Records have 100 bytes.",
        "read_committed is measured on a log in which every fifth transaction was aborted, the same log and "
        "the same requests at both isolation levels.",
    ]
    pinning = run.load_pinning
    with run.folder("transactions") as folder, contextlib.ExitStack() as stack:
        running = {
            "kafka": stack.enter_context(brokers.kafka(run.load_program, folder, run.cores.server)),
            "odradek": stack.enter_context(brokers.odradek(run.load_program, folder, run.cores.server)),
        }
        warm_compiler(running["kafka"], folder, pinning, warming.compile_seconds)
        for case in all_cases(run.choose(FETCHED_TRANSACTIONS, FEW_FETCHED)):
            found.outcomes.append(run_case(case, running, run, pinning, warming))
    outcome, figures = idle_ids(run, run.choose(IDLE_IDS, FEW_IDLE_IDS))
    found.outcomes.append(outcome)
    found.figures += figures
    return found


def all_cases(fetched: int) -> list[Case]:
    cases: list[Case] = []
    for records, partitions in ((1, 1), (10, 10), (100, 1), (100, 10)):
        cases.append(
            TransactionCase(
                name=f"transactions, 1 producer, {records} records, {partitions} partitions",
                unit="transactions/s",
                at_least=ONE_RECORD if records == 1 else LEVEL,
                records=records,
                partitions=partitions,
            )
        )
    cases.append(
        TransactionCase(
            name=f"transactions, {PRODUCERS} producers, 1 record",
            unit="transactions/s",
            at_least=ONE_RECORD,
            producers=PRODUCERS,
        )
    )
    for producers in (1, PRODUCERS):
        for figure in ("commit_p50_ms", "commit_p99_ms", "transaction_p99_ms"):
            what, share, _ = figure.split("_")
            cases.append(
                TransactionCase(
                    name=f"{what} of one record, {producers} producers: {share}",
                    unit="ms",
                    lower=True,
                    at_least=LEVEL,
                    producers=producers,
                    figure=figure,
                )
            )
    for isolation, name in ((0, "read_uncommitted"), (1, "read_committed")):
        cases.append(
            CommittedFetchCase(
                name=f"fetch of transactions, {name}: server CPU",
                unit="s/GB",
                lower=True,
                at_least=LEVEL,
                isolation=isolation,
                transactions=fetched,
            )
        )
    return cases


@dataclass
class TransactionCase(Case):
    """Transactions of `transaction_load`, their rate or a time of theirs."""

    records: int = 1
    partitions: int = 1
    producers: int = 1
    figure: str = "rate"
    """`rate`, or a name of what the load prints."""
    _topics: dict[str, str] = field(default_factory=dict)

    def prepare(self, broker: brokers.Running, work: pathlib.Path) -> None:
        topic = f"transactions-{time.monotonic_ns()}"
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([topic], self.partitions)
            # The first transactional id makes the topic of the coordinator.
            begin(client, "before all")
        self._topics[broker.name] = topic

    def measure(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        shape = (str(self.records), str(self.partitions), str(self.producers), str(seconds))
        command = [sys.executable, "-m", "benchmarks.transaction_load", str(broker.port)]
        command += [self._topics[broker.name], *shape]
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
        return result["transactions"] / result["seconds"] if self.figure == "rate" else result[self.figure]

    def clean_up(self, broker: brokers.Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([self._topics.pop(broker.name)])


@dataclass
class CommittedFetchCase(Case):
    """CPU seconds of the server for each gigabyte of a log of transactions, every fifth of them aborted."""

    isolation: int = 0
    transactions: int = FETCHED_TRANSACTIONS
    topic: str = field(default_factory=lambda: f"committed-{time.monotonic_ns()}")

    def prepare(self, broker: brokers.Running, work: pathlib.Path) -> None:
        size = len(batch_of(RECORDS_A_BATCH, 1000))
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([self.topic], 1)
            writer = Writer(client, self.topic)
            places = [
                place for n in range(self.transactions) for place in writer.write(n % ABORTED_EVERY != 0)
            ]
            wait_until_stable(client, self.topic)
        frames = [self._frame(place, size) for place in places]
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
    """Transactions of large batches in partition 0 of a topic."""

    def __init__(self, client: WireClient, topic: str) -> None:
        self._client, self._topic, self._id = client, topic, f"writer-of-{topic}"
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
        places = [self._produce() for _ in range(BATCHES_PER_TRANSACTION)]
        ended = EndTxnRequest(transactional_id=self._id, committed=is_committed, **identity)
        while code := self._client.call(ended, 4).error_code:
            assert code in NOT_READY, code
        return places

    def _added(self, request: AddPartitionsToTxnRequest) -> int:
        answer = self._client.call(request, 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def _produce(self) -> int:
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(n, now_ms, None, bytes(1000)) for n in range(RECORDS_A_BATCH)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
            transactional=True,
        )
        self._sequence += RECORDS_A_BATCH
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


def idle_ids(run: Run, count: int) -> tuple[Outcome, list[Figure]]:
    """Memory of so many transactional ids, and the seconds until they are loaded after a clean stop."""
    theirs_s: list[float] = []
    ours_s: list[float] = []
    with run.folder("idle-ids") as folder, run.on_core(run.cores.load):
        with run.odradek(folder) as node:
            with WireClient("127.0.0.1", node.port) as client:
                begin(client, "before all")
            before = node.running.rss_bytes()
            make_ids(node.port, count)
            grown = node.running.rss_bytes() - before
            for _ in range(run.rounds):
                node.stop()
                started = time.perf_counter()
                node.start()
                ours_s.append(loaded_s(node.port, count, started))
            after_start = node.running.rss_bytes()
        kafka = Kafka(
            properties=brokers.SETTINGS,
            jvm=brokers.KAFKA_JVM,
            prefix=brokers.pinned([], run.cores.server),
            parent=folder,
        )
        with kafka:
            make_ids(kafka.port, count)
            for _ in range(run.rounds):
                kafka.stop()
                started = time.perf_counter()
                kafka.start()
                theirs_s.append(loaded_s(kafka.port, count, started))
    what = f"start until {count:,} idle transactional ids are loaded"
    return Outcome(what, "s", True, LEVEL, theirs_s, ours_s), [
        Figure("memory of an idle transactional id, as it is made", grown / count, "bytes"),
        Figure(f"RSS with {count:,} idle transactional ids after a start", after_start / 1e6, "MB"),
    ]


def id_of(number: int) -> str:
    return f"an-application-of-ours-{number:06}"


class Requests(WireClient):
    """Many at a time; a broker answers those of a connection in their order."""

    def send(self, transactional_id: str) -> None:
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
                client.send(id_of(under_way[-1]))
            number = under_way.pop(0)
            code = client.take_code()
            assert code == 0 or code in NOT_READY, code
            if code:
                numbers.append(number)


def loaded_s(port: int, count: int, started: float) -> float:
    """Seconds from `started` until every id is described."""
    ids = [id_of(number) for number in range(count)]
    deadline = time.monotonic() + PATIENCE_S
    with WireClient("127.0.0.1", port) as client:
        while ids:
            some = ids[-1000:]
            answer = client.call(DescribeTransactionsRequest(transactional_ids=some), 0)
            codes = {one.error_code for one in answer.transaction_states}
            if codes == {0}:
                del ids[-1000:]
            else:
                assert codes <= {0, *NOT_READY}, codes
                assert time.monotonic() < deadline, "the ids are not loaded"
                time.sleep(0.01)
    return time.perf_counter() - started
