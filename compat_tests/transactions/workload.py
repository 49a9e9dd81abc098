"""Producers and readers of three libraries that leave a `History` behind, and what is done to them meanwhile.

Workers run random transactions: a few values to random partitions, sometimes the offsets of a group, then a
commit, an abort, or nothing at all, with a new producer under the old name. Readers poll every partition at
isolation level read_committed. Both go on through crashes of the broker and lost connections; whatever a
library tells them is written down, and what it does not tell is unknown.
"""

from __future__ import annotations

import abc
import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition

from compat_tests.clients.aio import LoopThread
from compat_tests.transactions import readers
from compat_tests.transactions.brokers import TransactionBroker
from compat_tests.transactions.history import (
    Consumed,
    History,
    Outcome,
    Partition,
    Read,
    Records,
    Send,
    Transaction,
)
from compat_tests.transactions.producers import (
    LIBRARIES,
    NO_REBOOTSTRAP,
    PATIENCE_SECONDS,
    TIMEOUT_MS,
    Failed,
)

SENDS_MAX = 6
ABORTS, ABANDONS, CONSUMES, FLUSHES = 0.15, 0.04, 0.4, 0.3
"""How often a transaction is aborted on purpose or left open; how often it has offsets, or a flush within."""
PAUSE_SECONDS_MAX = 0.02
POLL_SECONDS = 0.2
JOIN_SECONDS = 120.0

_values = itertools.count(1)
"""No value is ever sent twice."""


def tick() -> int:
    return time.monotonic_ns()


# -- producers


class Worker:
    """One producer after another under one transactional id, each in the same thread."""

    def __init__(
        self, name: str, library: str, bootstrap: str, seed: int, output: Sequence[Partition], own: Partition
    ) -> None:
        self.name = name
        self._kind, self._bootstrap = LIBRARIES[library], bootstrap
        self._chance = random.Random(f"{seed}/{name}")
        self._output, self.own, self.group = list(output), own, f"group-of-{name}"
        self._position = 0
        self.transactions: list[Transaction] = []
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        """Raises what went wrong; a failure of the library's is none, an error of ours is."""
        self._thread.join(JOIN_SECONDS)
        self.raise_failure()
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"{self.name}: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            self._start_over(None)
            while not self._stopping.wait(self._chance.random() * PAUSE_SECONDS_MAX):
                self._one()
            self._producer.close()
        except Failed:
            pass  # in closing: there is nothing left to lose
        except BaseException as failure:
            self._failure = failure

    def _start_over(self, old: Any) -> None:
        """A new producer; when it is there, whatever the old one had begun is over."""
        if old is not None:
            old.abandon()
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while True:
            self._producer = self._kind(self._bootstrap, self.name)
            try:
                self._producer.open()
                return
            except Failed as failure:
                self._producer.abandon()
                if time.monotonic() > deadline:
                    raise AssertionError(f"{self.name} gets no producer: {failure}") from failure

    def _one(self) -> None:
        producer, chance = self._producer, self._chance
        began, commit_asked = tick(), None
        sends: list[tuple[Partition, int]] = []
        consumed: list[Consumed] = []
        outcome = Outcome.ABORTED
        is_over = False
        try:
            producer.begin()
            for _ in range(chance.randrange(1, SENDS_MAX + 1)):
                sends.append((chance.choice(self._output), next(_values)))
                producer.send(sends[-1][0], b"%d" % sends[-1][1])
                if chance.random() < FLUSHES:
                    producer.flush()
            if chance.random() < CONSUMES:
                end = self._position + chance.randrange(1, 10)
                consumed.append(Consumed(self.group, self.own, self._position, end))
                producer.send_offsets(self.group, {self.own: end})
            draw = chance.random()
            if draw < ABORTS:
                producer.abort()
                is_over = True
            elif draw > ABORTS + ABANDONS:
                commit_asked, outcome = tick(), Outcome.UNKNOWN
                producer.commit()
                is_over, outcome = True, Outcome.COMMITTED
        except Failed:
            pass
        if not is_over:
            self._start_over(producer)
        if outcome is Outcome.COMMITTED:
            self._position = consumed[0].end if consumed else self._position
        elif consumed:
            self._position = readers.committed_offset(self._bootstrap, self.group, self.own)
        self.transactions.append(
            Transaction(
                process=self.name,
                outcome=outcome,
                began=began,
                ended=tick(),
                commit_asked=commit_asked,
                sends=tuple(
                    Send(partition, value, producer.acknowledged.get((partition, b"%d" % value)))
                    for partition, value in sends
                ),
                consumed=tuple(consumed),
            )
        )
        producer.acknowledged.clear()


# -- readers


class Reader(abc.ABC):
    """Polls all partitions from their start on; a consumer that fails is followed by another."""

    library: str
    failures: tuple[type[BaseException], ...]

    def __init__(self, name: str, bootstrap: str, partitions: Sequence[Partition]) -> None:
        self.name, self._bootstrap, self._partitions = name, bootstrap, list(partitions)
        self.reads: list[Read] = []
        self._next: dict[Partition, int] = {}
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(JOIN_SECONDS)
        self.raise_failure()
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"{self.name}: {self._failure!r}") from self._failure

    def has_read(self, last: dict[Partition, int]) -> bool:
        """Whether the last record of each partition has been seen."""
        return all(self._next.get(partition, 0) > offset for partition, offset in last.items())

    def _run(self) -> None:
        try:
            for session in itertools.count():
                if self._stopping.is_set():
                    return
                self._session(f"{self.name}-{session}")
        except BaseException as failure:
            self._failure = failure

    def _session(self, name: str) -> None:
        try:
            self.open()
            while not self._stopping.is_set():
                for partition, records in self.poll().items():
                    self.reads.append(Read(name, tick(), partition, records))
                    self._next[partition] = records[-1][0] + 1
        except self.failures:
            self._stopping.wait(POLL_SECONDS)
        finally:
            self.close()

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def poll(self) -> dict[Partition, Records]: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class ConfluentReader(Reader):
    library = "confluent-kafka"
    failures = ()

    def open(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
                **NO_REBOOTSTRAP,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in self._partitions])

    def poll(self) -> dict[Partition, Records]:
        read: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
        for message in self._consumer.consume(200, POLL_SECONDS):
            if message.error() is None:  # else the broker is away, and librdkafka goes on by itself
                partition = (message.topic(), message.partition())
                read[partition].append((message.offset(), int(message.value())))
        return dict(read)

    def close(self) -> None:
        self._consumer.close()


def _values_by_partition(batches: Any) -> dict[Partition, Records]:
    return {
        (where.topic, where.partition): [(record.offset, int(record.value)) for record in records]
        for where, records in batches.items()
        if records
    }


class AiokafkaReader(Reader):
    library = "aiokafka"
    failures = (aiokafka.errors.KafkaError, TimeoutError)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._loop = LoopThread()
        self._consumer: AIOKafkaConsumer | None = None

    def open(self) -> None:
        self._loop.run(self._open())

    async def _open(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level="read_committed", enable_auto_commit=False
        )
        await self._consumer.start()
        where = [AioTopicPartition(*partition) for partition in self._partitions]
        self._consumer.assign(where)
        for one in where:
            self._consumer.seek(one, 0)

    def poll(self) -> dict[Partition, Records]:
        assert self._consumer is not None
        return _values_by_partition(
            self._loop.run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        )

    def close(self) -> None:
        if self._consumer is not None:
            self._loop.run(self._consumer.stop())

    def stop(self) -> None:
        super().stop()
        self._loop.close()


class KafkaPythonReader(Reader):
    library = "kafka-python"
    failures = (kafka.errors.KafkaError,)

    def open(self) -> None:
        self._consumer: KafkaConsumer | None = None
        self._consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level="read_committed", enable_auto_commit=False
        )
        where = [KafkaPythonTopicPartition(*partition) for partition in self._partitions]
        self._consumer.assign(where)
        for one in where:
            self._consumer.seek(one, 0)

    def poll(self) -> dict[Partition, Records]:
        assert self._consumer is not None
        return _values_by_partition(self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


READERS = {kind.library: kind for kind in (ConfluentReader, AiokafkaReader, KafkaPythonReader)}


# -- all of it


class Workload:
    """Workers and readers of every library on one broker, and its topics."""

    def __init__(
        self,
        broker: TransactionBroker,
        seed: int,
        topics: dict[str, int],
        *,
        libraries: Iterable[str] = tuple(LIBRARIES),
        workers_each: int = 2,
    ) -> None:
        """`topics`: name -> partitions; the last is for the groups' offsets, a partition for each worker."""
        self.broker, self.seed = broker, seed
        *outputs, source = topics
        self.partitions = [(topic, number) for topic in outputs for number in range(topics[topic])]
        self.workers, self.readers = [], []
        for library in libraries:
            for _ in range(workers_each):
                own = (source, len(self.workers))
                name = f"{outputs[0]}-{library}-{len(self.workers)}"
                worker = Worker(name, library, broker.bootstrap, seed, self.partitions, own)
                self.workers.append(worker)
            self.readers.append(READERS[library](f"reader-of-{library}", broker.bootstrap, self.partitions))
        assert len(self.workers) <= topics[source], "every worker needs a partition of the last topic"

    def start(self) -> None:
        for one in (*self.readers, *self.workers):
            one.start()

    def raise_failure(self) -> None:
        for one in (*self.readers, *self.workers):
            one.raise_failure()

    def count(self) -> int:
        """Transactions that are over."""
        return sum(len(worker.transactions) for worker in self.workers)

    def run(self, seconds: float, trouble: Callable[[], None] | None = None) -> None:
        """Lets all work for so long, with `trouble` again and again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if trouble is not None:
                trouble()
            time.sleep(0.2)
            self.raise_failure()

    def finish(self) -> History:
        """Lets workers end their transactions and readers see the last record, then reads everything back."""
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            worker.join()
        bootstrap = self.broker.bootstrap
        # What was left open is aborted by its time-out; longer than this it may not take.
        readers.wait_until_stable(bootstrap, self.partitions, TIMEOUT_MS / 1000 + 15)
        ends = readers.ends(bootstrap, self.partitions)
        log = _numbers(readers.read_all(bootstrap, self.partitions, readers.READ_COMMITTED))
        everything = _numbers(readers.read_all(bootstrap, self.partitions, readers.READ_UNCOMMITTED))
        self._wait_for_readers(log)
        return History(
            transactions=[one for worker in self.workers for one in worker.transactions],
            reads=[read for reader in self.readers for read in reader.reads],
            log=log,
            everything=everything,
            ends=ends,
            committed={
                (worker.group, worker.own): readers.committed_offset(bootstrap, worker.group, worker.own)
                for worker in self.workers
            },
        )

    def _wait_for_readers(self, log: dict[Partition, list[tuple[int, int]]]) -> None:
        last = {partition: records[-1][0] for partition, records in log.items() if records}
        deadline = time.monotonic() + PATIENCE_SECONDS
        for reader in self.readers:
            while not reader.has_read(last):
                reader.raise_failure()
                assert time.monotonic() < deadline, f"{reader.name} does not come to the end"
                time.sleep(0.05)
        for reader in self.readers:
            reader.stop()


def _numbers(
    read: dict[Partition, list[tuple[int, bytes]]],
) -> dict[Partition, list[tuple[int, int]]]:
    return {
        partition: [(offset, int(value)) for offset, value in records] for partition, records in read.items()
    }


class Nemesis:
    """What happens to the broker and its connections, at random moments."""

    def __init__(self, broker: TransactionBroker, seed: int) -> None:
        self._broker, self._chance = broker, random.Random(f"{seed}/nemesis")
        self.kills = self.cuts = self.pauses = 0

    def strike(self) -> None:
        """Waits a while, then does one of three things."""
        time.sleep(self._chance.uniform(0.3, 2.5))
        match self._chance.choices(("kill", "cut", "pause"), (2, 3, 1))[0]:
            case "kill":
                self._broker.kill()
                time.sleep(self._chance.random() * 0.5)
                self._broker.start()
                self.kills += 1
            case "cut":
                self.cuts += self._broker.proxy.drop_connections()
            case "pause":
                self._broker.proxy.pause()
                time.sleep(self._chance.uniform(0.1, 1.5))
                self._broker.proxy.resume()
                self.pauses += 1

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.cuts} connections cut, {self.pauses} pauses"
