"""The load: producers, readers and group members of three client libraries, each in a thread of its own.

Each only does what the unmodified library does; what it is told is written into the ledger. Whatever a
library raises that is no passing refusal ends its worker and fails the soak.
"""

from __future__ import annotations

import abc
import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentTopicPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from compat_tests.clients import POLL_SECONDS, Client, Member, Record
from compat_tests.clients.aio import AiokafkaMember, LoopThread
from compat_tests.clients.confluent import ConfluentMember
from compat_tests.clients.kafka_python import KafkaPythonMember
from compat_tests.kit.working import Working
from compat_tests.soak.ledger import Commits, Identity, Records

UNACKNOWLEDGED_MAX = 400
BURST_RECORDS_MAX = 40
PAUSE_SECONDS_MAX = 0.25
"""The load leaves the broker and two cores some air: what is tried here is crashes, not throughput."""
PATIENCE_SECONDS = 120
"""How long a producer goes on trying; far longer than any restart takes."""

COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd", None)


# -- producers


class Load(Working):
    """A producer: bursts of random size to random partitions, numbered per partition."""

    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, records: Records, *, idempotent: bool
    ) -> None:
        super().__init__()
        self.name, self.idempotent = name, idempotent
        self._bootstrap, self._topic, self._partitions, self._records = bootstrap, topic, partitions, records
        self._chance = random.Random(name)
        self.compression = self._chance.choice(COMPRESSIONS)
        self._numbers: dict[int, int] = defaultdict(int)
        self._room = threading.Semaphore(UNACKNOWLEDGED_MAX)

    def __str__(self) -> str:
        return self.name

    def _run(self) -> None:
        """Ends when every record is acknowledged."""
        self.open()
        while not self._ending.wait(self._chance.random() * PAUSE_SECONDS_MAX):
            for _ in range(self._chance.randrange(1, BURST_RECORDS_MAX)):
                partition = self._chance.randrange(self._partitions)
                identity = Identity(self.name, partition, self._numbers[partition])
                self._numbers[partition] += 1
                while not self._room.acquire(timeout=0.1):
                    self.idle()
                self.send(identity)
        self.close()

    def acknowledged(self, identity: Identity, partition: int, offset: int) -> None:
        try:
            self._records.acknowledge(identity, (partition, offset))
        except AssertionError as failure:
            self._failure = self._failure or failure
        self._room.release()

    def failed(self, identity: Identity, error: BaseException) -> None:
        """No restart takes as long as a producer's patience, so there is no good reason for this."""
        self._failure = self._failure or RuntimeError(f"{identity} was not acknowledged: {error!r}")
        self._room.release()

    @abc.abstractmethod
    def idle(self) -> None:
        """Called while there is no room for another record."""

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def send(self, identity: Identity) -> None:
        """Hands one record to the library; `acknowledged` or `failed` is called for it once."""

    @abc.abstractmethod
    def close(self) -> None:
        """Returns when the library has an answer for every record."""


class KafkaPythonLoad(Load):
    def open(self) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=self.idempotent,
            compression_type=self.compression,
            linger_ms=5,
            max_block_ms=PATIENCE_SECONDS * 1000,
            delivery_timeout_ms=PATIENCE_SECONDS * 1000,
        )

    def send(self, identity: Identity) -> None:
        future = self._producer.send(self._topic, identity.value(), partition=identity.partition)
        future.add_callback(lambda answer: self.acknowledged(identity, answer.partition, answer.offset))
        future.add_errback(lambda error: self.failed(identity, error))

    def idle(self) -> None:
        """It has a thread of its own."""

    def close(self) -> None:
        self._producer.flush(PATIENCE_SECONDS)
        self._producer.close()


class ConfluentLoad(Load):
    def open(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": self.idempotent,
                "compression.type": self.compression or "none",
                "linger.ms": 5,
                "message.timeout.ms": PATIENCE_SECONDS * 1000,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def send(self, identity: Identity) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failed(identity, KafkaException(error))
            else:
                self.acknowledged(identity, message.partition(), message.offset())

        self._producer.produce(
            self._topic, identity.value(), partition=identity.partition, on_delivery=delivered
        )
        self._producer.poll(0)

    def idle(self) -> None:
        self._producer.poll(0)

    def close(self) -> None:
        assert self._producer.flush(PATIENCE_SECONDS) == 0, "not everything was flushed"


class AiokafkaLoad(Load):
    def __init__(self, thread: LoopThread, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._loop = thread

    def open(self) -> None:
        self._loop.run(self._open())

    async def _open(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=self.idempotent,
            compression_type=self.compression,
            linger_ms=5,
            request_timeout_ms=PATIENCE_SECONDS * 1000,
        )
        await self._producer.start()

    def send(self, identity: Identity) -> None:
        self._loop.run(self._send(identity))

    async def _send(self, identity: Identity) -> None:
        def delivered(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            if error is not None:
                self.failed(identity, error)
            else:
                self.acknowledged(identity, future.result().partition, future.result().offset)

        future = await self._producer.send(self._topic, identity.value(), partition=identity.partition)
        future.add_done_callback(delivered)

    def idle(self) -> None:
        """Its loop runs in another thread."""

    def close(self) -> None:
        self._loop.run(self._producer.stop())


# -- readers and members


class Reader(Member):
    """Reads every partition from its start, in no group, as long as the soak lasts."""

    def __init__(self, name: str, records: Records, partitions: int, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.name, self._records, self.partitions = name, records, partitions

    def __str__(self) -> str:
        return self.name

    def _run(self) -> None:
        self.open()
        while not self._ending.is_set():
            for record in self.poll_over_crashes():
                self.see(record)
            self.after_poll()
        self.close()

    def poll_over_crashes(self) -> list[Record]:
        """Some libraries raise what passes by itself, such as a refused connection, out of a poll."""
        try:
            return self.poll()
        except (kafka.errors.KafkaError, aiokafka.errors.KafkaError) as error:
            if not error.retriable:
                raise
            self._ending.wait(POLL_SECONDS)
            return []

    def see(self, record: Record) -> None:
        self._records.see(self.name, (record.partition, record.offset), record.value)

    def after_poll(self) -> None:
        """Nothing; a member commits here."""


class KafkaPythonReader(Reader, KafkaPythonMember):
    def open(self) -> None:
        bootstrap, _, topic = self._arguments
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        where = [TopicPartition(topic, partition) for partition in range(self.partitions)]
        self._consumer.assign(where)
        self._consumer.seek_to_beginning(*where)


class ConfluentReader(Reader, ConfluentMember):
    def open(self) -> None:
        # librdkafka has no consumer without a group; this one never joins and commits nothing.
        self._consumer = Consumer({**self._settings, "group.id": self.name, "reconnect.backoff.max.ms": 500})
        self._consumer.assign(
            [ConfluentTopicPartition(self._topic, partition, 0) for partition in range(self.partitions)]
        )


class AiokafkaReader(Reader, AiokafkaMember):
    async def _open(self) -> None:
        bootstrap, _, topic = self._arguments
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        await self._consumer.start()
        self._consumer.assign([AioTopicPartition(topic, p) for p in range(self.partitions)])
        for partition in range(self.partitions):
            self._consumer.seek(AioTopicPartition(topic, partition), 0)


class GroupMember(Reader):
    """A member of a group: commits what it has read of its partitions, never less than the group has."""

    library = ""
    # A kill may take the goodbye of one that left with it. The others' joins wait for that one, and aiokafka
    # gives up a join after 40 s and cannot be closed before.
    session_timeout_ms = 10_000
    refusals: tuple[type[BaseException], ...] = ()
    """What the library raises for a commit that did not get through; the next one makes up for it."""

    def __init__(self, group: str, commits: Commits, *arguments: Any) -> None:
        super().__init__(group, *arguments)
        self.group, self._commits = group, commits
        self._next: dict[int, int] = {}

    def see(self, record: Record) -> None:
        super().see(record)
        self._next[record.partition] = record.offset + 1

    def after_poll(self) -> None:
        self.assigned = self.assignment()
        self._next = {p: offset for p, offset in self._next.items() if p in self.assigned}
        offsets = self._commits.begin(self.group, self._next)
        acknowledged = False
        try:
            if offsets:
                self.commit_offsets(offsets)
                acknowledged = True
        except self.refusals:
            pass
        finally:
            self._commits.end(self.group, offsets, acknowledged=acknowledged)

    @abc.abstractmethod
    def commit_offsets(self, offsets: Mapping[int, int]) -> None: ...


class KafkaPythonGroupMember(GroupMember, KafkaPythonMember):
    library = "kafka-python"
    refusals = (kafka.errors.KafkaError,)

    def commit_offsets(self, offsets: Mapping[int, int]) -> None:
        topic = self._arguments[2]
        self._consumer.commit(
            {TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}
        )


class ConfluentGroupMember(GroupMember, ConfluentMember):
    library = "confluent-kafka"
    refusals = (KafkaException,)

    def commit_offsets(self, offsets: Mapping[int, int]) -> None:
        wanted = [ConfluentTopicPartition(self._topic, p, offset) for p, offset in offsets.items()]
        for one in self._consumer.commit(offsets=wanted, asynchronous=False):
            if one.error is not None:
                raise KafkaException(one.error)


class AiokafkaGroupMember(GroupMember, AiokafkaMember):
    library = "aiokafka"
    # IllegalStateError: the partition went to another member since the last poll.
    refusals = (aiokafka.errors.KafkaError, aiokafka.errors.IllegalStateError, TimeoutError)

    def commit_offsets(self, offsets: Mapping[int, int]) -> None:
        topic = self._arguments[2]
        self._loop.run(
            self._consumer.commit({AioTopicPartition(topic, p): offset for p, offset in offsets.items()})
        )


# -- the libraries


class Library:
    """Makes the workers of one library for one topic."""

    def __init__(
        self,
        load: Callable[..., Load],
        reader: Callable[..., Reader],
        member: Callable[..., GroupMember],
    ) -> None:
        self.load, self.reader, self.member = load, reader, member


def libraries(thread: LoopThread) -> dict[str, Library]:
    """By name. What is asyncio runs on the loop of `thread`."""

    def aiokafka_load(*arguments: Any, **keywords: Any) -> Load:
        return AiokafkaLoad(thread, *arguments, **keywords)

    def aiokafka_reader(name: str, records: Records, partitions: int, *arguments: Any) -> Reader:
        return AiokafkaReader(name, records, partitions, thread, *arguments)

    def aiokafka_member(
        group: str, commits: Commits, records: Records, partitions: int, *arguments: Any
    ) -> GroupMember:
        return AiokafkaGroupMember(group, commits, records, partitions, thread, *arguments)

    return {
        "kafka-python": Library(KafkaPythonLoad, KafkaPythonReader, KafkaPythonGroupMember),
        "confluent-kafka": Library(ConfluentLoad, ConfluentReader, ConfluentGroupMember),
        "aiokafka": Library(aiokafka_load, aiokafka_reader, aiokafka_member),
    }


def whole_log(client: Client, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
    """Every partition from its start to its end, as `client` reads it now."""
    where = [TopicPartition(topic, partition) for partition in range(partitions)]
    with KafkaConsumer(bootstrap_servers=client.bootstrap) as consumer:
        ends = {one.partition: end for one, end in consumer.end_offsets(where).items()}
    log: dict[int, list[bytes | None]] = {}
    for partition, end in ends.items():
        read = client.read(topic, {partition: 0}, end)
        assert [record.offset for record in read] == list(range(end)), f"offsets of partition {partition}"
        log[partition] = [record.value for record in read]
    return log
