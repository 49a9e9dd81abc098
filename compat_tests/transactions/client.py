"""One client of a history as a process of its own: a worker, a reader, or whoever reads the log at the end.

    python -m compat_tests.transactions.client '{"role": "worker", ...}'

So that a library that ends its process (librdkafka's assertions do) ends nothing else. It says on its
standard output what it does, a JSON list a line, and always before it does it: what is known of a process
that is gone is what it has said. When it is told "stop", or nobody is there to say so, it ends its
transaction and goes.

`workload.py` starts these and makes a history of what they say.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import json
import os
import random
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition

from compat_tests.clients.aio import LoopThread
from compat_tests.clients.java import JavaFailure
from compat_tests.transactions import readers
from compat_tests.transactions.history import Outcome, Partition, Records
from compat_tests.transactions.producers import (
    IDEMPOTENT,
    LIBRARIES,
    NO_REBOOTSTRAP,
    PATIENCE_SECONDS,
    Aborted,
    Failed,
    HastyJavaProducer,
    JavaProducer,
    TransactionalProducer,
)

PRODUCERS = {**LIBRARIES, JavaProducer.library: HastyJavaProducer}
SENDS_MAX = 6
ABORTS, ABANDONS, CONSUMES, FLUSHES = 0.15, 0.04, 0.4, 0.3
"""How often a transaction is aborted on purpose or left open; how often it has offsets, or a flush within."""
POLL_SECONDS = 0.2

Tell = Callable[..., None]
"""What is said: a name, and what belongs to it."""


def tick() -> int:
    """Nanoseconds of the machine's one monotonic clock: processes can be compared by it."""
    return time.monotonic_ns()


class Worker:
    """One producer after another under one transactional id.

    Says "opened" (tick) when its first producer is there; then for each transaction "began" (tick), "sends"
    (topic, partition, value) and "consumes" (group, topic, partition, start, end), "commits" (tick) if it
    does, and "ended" (tick, outcome, [[value, offset]] of what was acknowledged).
    """

    def __init__(self, tell: Tell, stopping: threading.Event, **about: Any) -> None:
        """`about`: name, library, bootstrap, seed, the partitions `output` and `own`, its group;
        `first_value` of those that nobody else sends; `life`: how many processes it had before;
        `leaves_open`: whether it goes in the middle of a transaction when it is stopped;
        `pause_seconds` between two transactions, at most."""
        self._tell, self._stopping = tell, stopping
        self.name, self._bootstrap = about["name"], about["bootstrap"]
        self._kind = PRODUCERS[about["library"]]
        self._output = [(topic, number) for topic, number in about["output"]]
        self.own, self.group = tuple(about["own"]), about["group"]
        self._is_another, self._leaves_open = about["life"] > 0, about["leaves_open"]
        self._pause_seconds = about["pause_seconds"]
        self._chance = random.Random("/".join([about["seed"], self.name, *["again"] * about["life"]]))
        self._values = itertools.count(about["first_value"])
        self._position = 0

    def run(self) -> None:
        """Until it is stopped. Raises AssertionError; a failure of the library's is none."""
        try:
            self._start_over(None)
            if self._is_another:
                self._position = readers.committed_offset(self._bootstrap, self.group, self.own)
            self._tell("opened", tick())
            while not self._stopping.wait(self._chance.random() * self._pause_seconds):
                self._one()
            if self._leaves_open:
                self._leave()
            else:
                self._producer.close()
        except Failed:
            pass  # in closing: there is nothing left to lose

    def _leave(self) -> None:
        """Begins a transaction that nobody will end."""
        self._tell("began", tick())
        with contextlib.suppress(Failed):
            self._producer.begin()
            for where in self._output:
                self._send(where)
            self._producer.flush()
            self._consume(self._position + 1)
        self._tell("ended", tick(), Outcome.ABORTED.value, [])

    def _start_over(self, old: Any) -> None:
        """A new producer; when it is there, whatever the old one had begun is over."""
        if old is not None:
            old.abandon()
        # Long: brokers are killed all the time, and a busy machine has few moments with a coordinator.
        # Whether clients get on at all is asked at the end.
        deadline = time.monotonic() + 6 * PATIENCE_SECONDS
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
        producer = self._producer
        self._tell("began", tick())
        outcome, position = Outcome.ABORTED, self._position
        is_over = False
        try:
            producer.begin()
            position = self._fill(producer)
            draw = self._chance.random()
            if draw < ABORTS:
                producer.abort()
                is_over = True
            elif draw > ABORTS + ABANDONS:
                outcome = Outcome.UNKNOWN
                self._tell("commits", tick())
                producer.commit()
                is_over, outcome = True, Outcome.COMMITTED
        except Failed as failure:
            if isinstance(failure, Aborted):
                is_over, outcome = True, Outcome.ABORTED
            # How far it came with its offsets is not known.
            position = -1
        if not is_over:
            self._start_over(producer)
        if outcome is Outcome.COMMITTED:
            self._position = position
        elif position != self._position:
            self._position = readers.committed_offset(self._bootstrap, self.group, self.own)
        acknowledged = [[int(value), offset] for (_, value), offset in producer.acknowledged.items()]
        self._tell("ended", tick(), outcome.value, acknowledged)
        producer.acknowledged.clear()

    def _fill(self, producer: TransactionalProducer) -> int:
        """Sends a few values and perhaps offsets; returns where the group is to be after it."""
        chance = self._chance
        for _ in range(chance.randrange(1, SENDS_MAX + 1)):
            self._send(chance.choice(self._output))
            if chance.random() < FLUSHES:
                producer.flush()
        if chance.random() >= CONSUMES:
            return self._position
        end = self._position + chance.randrange(1, 10)
        self._consume(end)
        return end

    def _send(self, where: Partition) -> None:
        value = next(self._values)
        self._tell("sends", *where, value)
        self._producer.send(where, b"%d" % value)

    def _consume(self, end: int) -> None:
        self._tell("consumes", self.group, *self.own, self._position, end)
        self._producer.send_offsets(self.group, {self.own: end})


class Sender:
    """One idempotent producer after another: no transactions, each value is on its own.

    Says "opened" (tick) first, and for a few values at a time "began" (tick), "sends" (topic, partition,
    value), "commits" (tick), and "ended" (tick, outcome, [[value, offset]] of what was acknowledged). What
    was not is perhaps still to come.
    """

    def __init__(self, tell: Tell, stopping: threading.Event, **about: Any) -> None:
        """`about`: as that of a `Worker`, without what transactions need."""
        self._tell, self._stopping = tell, stopping
        self.name, self._bootstrap = about["name"], about["bootstrap"]
        self._kind = IDEMPOTENT[about["library"]]
        self._output = [(topic, number) for topic, number in about["output"]]
        self._pause_seconds = about["pause_seconds"]
        self._chance = random.Random("/".join([about["seed"], self.name, *["again"] * about["life"]]))
        self._values = itertools.count(about["first_value"])

    def run(self) -> None:
        """Until it is stopped."""
        self._tell("opened", tick())
        producer: TransactionalProducer | None = None
        while not self._stopping.wait(self._chance.random() * self._pause_seconds):
            if producer is None:
                producer = self._kind(self._bootstrap, self.name)
                try:
                    producer.open()
                except Failed:
                    producer = None
                    continue
            if not self._one(producer):
                producer.abandon()
                producer = None
        if producer is not None:
            with contextlib.suppress(Failed):
                producer.close()

    def _one(self, producer: TransactionalProducer) -> bool:
        """Whether everything was acknowledged."""
        self._tell("began", tick())
        self._tell("commits", tick())
        count = self._chance.randrange(1, SENDS_MAX + 1)
        with contextlib.suppress(Failed):
            producer.begin()
            for _ in range(count):
                where, value = self._chance.choice(self._output), next(self._values)
                self._tell("sends", *where, value)
                producer.send(where, b"%d" % value)
            producer.flush()
        acknowledged = [[int(value), offset] for (_, value), offset in producer.acknowledged.items()]
        producer.acknowledged.clear()
        self._tell("ended", tick(), Outcome.UNKNOWN.value, acknowledged)
        return len(acknowledged) == count


class Reader(abc.ABC):
    """Polls all partitions from their start on; a consumer that fails is followed by another.

    Says "read" (session, tick, topic, partition, [[offset, value]]).
    """

    failures: tuple[type[BaseException], ...]

    def __init__(self, tell: Tell, stopping: threading.Event, **about: Any) -> None:
        """`about`: name, library, bootstrap, partitions, `isolation` level; `life`: how many processes it had
        before."""
        self._tell, self._stopping = tell, stopping
        self.name, self._bootstrap = f"{about['name']}-{about['life']}", about["bootstrap"]
        self._partitions = [(topic, number) for topic, number in about["partitions"]]
        self._isolation = readers.ISOLATION[about["isolation"]]

    def run(self) -> None:
        """Until it is stopped."""
        for session in itertools.count():
            if self._stopping.is_set():
                return
            self._session(f"{self.name}-{session}")

    def _session(self, name: str) -> None:
        try:
            self.open()
            while not self._stopping.is_set():
                for (topic, number), records in self.poll().items():
                    self._tell("read", name, tick(), topic, number, records)
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
    failures = ()

    def open(self) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.name,
                "enable.auto.commit": False,
                "isolation.level": self._isolation,
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
    failures = (aiokafka.errors.KafkaError, TimeoutError)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._loop = LoopThread()
        self._consumer: AIOKafkaConsumer | None = None

    def open(self) -> None:
        self._loop.run(self._open())

    async def _open(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level=self._isolation, enable_auto_commit=False
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


class KafkaPythonReader(Reader):
    failures = (kafka.errors.KafkaError,)

    def open(self) -> None:
        self._consumer: KafkaConsumer | None = None
        self._consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level=self._isolation, enable_auto_commit=False
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


class JavaReader(Reader):
    failures = (JavaFailure,)

    def open(self) -> None:
        self._ask = JavaProducer.program().ask
        self._ask(
            "consume", self.name, f"bootstrap.servers={self._bootstrap}", f"isolation.level={self._isolation}"
        )
        self._ask("assign", self.name, *(part for where in self._partitions for part in (*where, 0)))

    def poll(self) -> dict[Partition, Records]:
        read: dict[Partition, list[tuple[int, int]]] = defaultdict(list)
        for line in self._ask("poll", self.name, int(POLL_SECONDS * 1000)):
            topic, *numbers = line.split("\t")
            partition, offset, value = map(int, numbers)
            read[topic, partition].append((offset, value))
        return dict(read)

    def close(self) -> None:
        self._ask("leave", self.name)


READERS = {
    "confluent-kafka": ConfluentReader,
    "aiokafka": AiokafkaReader,
    "kafka-python": KafkaPythonReader,
    "java": JavaReader,
}


def read_log(tell: Tell, stopping: threading.Event, **about: Any) -> None:
    """Says "log" (isolation level, topic, partition, [[offset, value]]) of all `partitions`."""
    partitions = [(topic, number) for topic, number in about["partitions"]]
    for isolation in (readers.READ_COMMITTED, readers.READ_UNCOMMITTED):
        read = readers.read_all(about["bootstrap"], partitions, isolation)
        for (topic, number), records in read.items():
            tell("log", isolation, topic, number, [[offset, int(value)] for offset, value in records])


ROLES: dict[str, Callable[..., None]] = {
    "worker": lambda *where, **about: Worker(*where, **about).run(),
    "sender": lambda *where, **about: Sender(*where, **about).run(),
    "reader": lambda *where, **about: READERS[about["library"]](*where, **about).run(),
    "log": read_log,
}


def main(arguments: list[str]) -> None:
    about = json.loads(arguments[0])
    # Whatever a library prints is no event.
    said = os.dup(1)
    os.dup2(2, 1)
    stopping = threading.Event()

    def tell(*event: Any) -> None:
        # Without a buffer: what has been said stays said.
        line = memoryview(json.dumps(event).encode() + b"\n")
        while line:
            line = line[os.write(said, line) :]

    def wait_for_the_end() -> None:
        sys.stdin.readline()
        stopping.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    status = 1
    try:
        ROLES[about["role"]](tell, stopping, **about)
        status = 0
    except BaseException:
        tell("failed", traceback.format_exc())
    finally:
        # At once: whatever threads the libraries have may wait for something that never comes.
        os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
