"""Transactional producers of four libraries, said the same way; each does what the unmodified library does,
and of kafka-python besides what a careful user of it has to. Only Java's of 4.3 speaks version 2 of the
protocol, where the cluster has it.

`IDEMPOTENT` are the same libraries without transactions: of these only `open`, `begin`, `send`, `flush`,
`close` and `abandon` are of use.

What a library raises becomes `Fenced` (another producer has the transactional id; this one is done for),
`Failed` (this transaction is; start over with a new producer) or `Aborted` (this transaction is over).
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition
from kafka.structs import OffsetAndMetadata

from compat_tests import reference
from compat_tests.clients.aio import LoopThread
from compat_tests.clients.java import SOURCE, JavaFailure, JavaProgram
from compat_tests.kit.java import compile_java
from compat_tests.transactions.history import Partition

PATIENCE_SECONDS = 40.0
"""Longer than any restart takes."""
TIMEOUT_MS = 6000
"""Of a transaction: what a dead producer left open is aborted after that."""


NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
"""By default librdkafka 2.16 forgets its brokers when all connections are lost (KIP-899), and then may wait
for ever for a group coordinator that it knew before, with Kafka as with Odradek."""


class Failed(Exception):
    """The library gave up on the transaction."""


class Fenced(Failed):
    """Another producer with the transactional id has taken over."""


class Aborted(Failed):
    """The library has aborted the transaction, whatever was asked; the producer is as good as before."""


class TransactionalProducer(abc.ABC):
    """Made by `open`; `acknowledged` has the offset of every value that the broker took."""

    library: str

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.bootstrap, self.transactional_id, self.timeout_ms = bootstrap, transactional_id, timeout_ms
        self.acknowledged: dict[tuple[Partition, bytes], int] = {}

    @abc.abstractmethod
    def open(self) -> None:
        """Takes the transactional id, which fences whoever had it and ends what that one left open."""

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def send(self, partition: Partition, value: bytes) -> None:
        """Hands a value to the library, which sends it when it likes."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Returns when the broker has everything."""

    @abc.abstractmethod
    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None: ...

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def abort(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Ends a producer without an open transaction; of no use to one that has failed."""

    @abc.abstractmethod
    def abandon(self) -> None:
        """Lets go of it, without a word to the broker if the library can: its transaction stays open."""


class ConfluentProducer(TransactionalProducer):
    library = "confluent-kafka"

    FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

    def open(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._producer = self._new(
            {"transactional.id": self.transactional_id, "transaction.timeout.ms": self.timeout_ms}
        )
        self._call(self._producer.init_transactions)

    def _new(self, settings: Mapping[str, Any]) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
                **NO_REBOOTSTRAP,
                **settings,
            }
        )

    def _call(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Until it succeeds or fails for good: a time-out within is to be tried again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                work(*arguments)
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() in self.FENCED:
                    raise Fenced(str(error)) from failure
                if not error.retriable() or time.monotonic() > deadline:
                    raise Failed(str(error)) from failure

    def begin(self) -> None:
        self._call(self._producer.begin_transaction)

    def send(self, partition: Partition, value: bytes) -> None:
        topic, number = partition

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged[partition, value] = message.offset()

        self._call(lambda: self._producer.produce(topic, value, partition=number, on_delivery=delivered))
        self._producer.poll(0)

    def flush(self) -> None:
        self._call(self._flush)

    def _flush(self) -> None:
        if self._producer.flush(PATIENCE_SECONDS):
            raise Failed("not everything was flushed")

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        consumer = self._consumers.get(group)
        if consumer is None:
            # The only way to a group's metadata; it never joins the group.
            consumer = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": group,
                    "log_level": 0,
                    **NO_REBOOTSTRAP,
                }
            )
            self._consumers[group] = consumer
        where = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        # librdkafka does not keep this time-out (its issue 5456), and where the coordinator of the group has
        # left the metadata it waits until any other broker comes or goes (5511): minutes, now and then.
        self._call(
            self._producer.send_offsets_to_transaction,
            *(where, consumer.consumer_group_metadata(), PATIENCE_SECONDS),
        )

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    def abandon(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.purge()
        # One that waits for a coordinator may wait for ever in its destructor, too.
        left = [self._producer, *self._consumers.values()]
        del self._producer
        self._consumers = {}
        threading.Thread(target=left.clear, daemon=True).start()


@contextlib.contextmanager
def _told(fenced: tuple[type[BaseException], ...], failed: tuple[type[BaseException], ...]) -> Iterator[None]:
    """What the library raises, as ours."""
    try:
        yield
    except fenced as failure:
        raise Fenced(repr(failure)) from failure
    except failed as failure:
        raise Failed(repr(failure)) from failure


class AiokafkaProducer(TransactionalProducer):
    """Its coroutines run on the loop of `thread`, a loop for all of them unless given."""

    library = "aiokafka"
    _shared: LoopThread | None = None

    FENCED = (aiokafka.errors.ProducerFenced,)
    # It guards its states by assertions: of one that has failed, every further call meets them.
    FAILED = (
        aiokafka.errors.KafkaError,
        aiokafka.errors.IllegalOperation,
        TimeoutError,
        AssertionError,
    )

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if AiokafkaProducer._shared is None:
            AiokafkaProducer._shared = LoopThread()
        self._loop = AiokafkaProducer._shared

    def _run(self, work: Any) -> Any:
        with _told(self.FENCED, self.FAILED):
            return self._loop.run(work)

    def open(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                self._run(self._open())
                return
            except Failed:
                # Of its bootstrap servers it asks each only once.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _settings(self) -> dict[str, Any]:
        return {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}

    async def _open(self) -> None:
        self._producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=2, **self._settings())
        try:
            await self._producer.start()
        except BaseException:
            await self._producer.stop()
            raise

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, partition: Partition, value: bytes) -> None:
        self._run(self._send(partition, value))

    async def _send(self, partition: Partition, value: bytes) -> None:
        topic, number = partition
        sent = await self._producer.send(topic, value, partition=number)

        def delivered(future: Any) -> None:
            if not future.cancelled() and future.exception() is None:
                self.acknowledged[partition, value] = future.result().offset

        sent.add_done_callback(delivered)

    def flush(self) -> None:
        self._run(self._producer.flush())

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        where = {AioTopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(where, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())

    def abandon(self) -> None:
        # It flushes what it has, without an end to the transaction; or fails, having failed before.
        with contextlib.suppress(Exception):
            self._loop.run(self._producer.stop())


class KafkaPythonProducer(TransactionalProducer):
    """Commits only when every value has arrived, which it asks for itself, and waits for no answer for ever.

    kafka-python 3.0.12 forgets a transactional request whose connection is lost at the moment of sending. Was
    it an AddPartitionsToTxn, what waits for it expires; that fails the futures of these values and nothing
    else, and a commit then succeeds without them, or, when no partition was added, without a word to the
    broker. Was it an EndTxn or one of those that carry offsets, the call that waits for its answer never
    returns. With Apache Kafka as with Odradek.
    """

    library = "kafka-python"

    FENCED = (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)
    FAILED = (kafka.errors.KafkaError, AssertionError)

    def open(self) -> None:
        with _told(self.FENCED, self.FAILED):
            self._producer = self._new(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
            )
            self._producer.init_transactions()

    def _new(self, **settings: Any) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=self.bootstrap,
            max_block_ms=int(PATIENCE_SECONDS * 1000),
            linger_ms=2,
            **settings,
        )

    def begin(self) -> None:
        self._sent: list[Any] = []
        with _told(self.FENCED, self.FAILED):
            self._producer.begin_transaction()

    def send(self, partition: Partition, value: bytes) -> None:
        topic, number = partition
        with _told(self.FENCED, self.FAILED):
            future = self._producer.send(topic, value, partition=number)

        def delivered(answer: Any) -> None:
            self.acknowledged[partition, value] = answer.offset

        future.add_callback(delivered)
        self._sent.append(future)

    def flush(self) -> None:
        with _told(self.FENCED, self.FAILED):
            self._producer.flush(PATIENCE_SECONDS)
        for future in self._sent:
            if future.failed():
                raise Failed(repr(future.exception))

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        where = {
            KafkaPythonTopicPartition(*partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        self._patiently(self._producer.send_offsets_to_transaction, where, group)

    def commit(self) -> None:
        self.flush()
        self._patiently(self._producer.commit_transaction)

    def abort(self) -> None:
        self._patiently(self._producer.abort_transaction)

    def _patiently(self, work: Callable[..., None], *arguments: Any) -> None:
        """In a thread that is left behind when it does not come back."""
        ended: Future[None] = Future()

        def run() -> None:
            try:
                ended.set_result(work(*arguments))
            except BaseException as failure:
                ended.set_exception(failure)

        threading.Thread(target=run, daemon=True).start()
        with _told(self.FENCED, (*self.FAILED, TimeoutError)):
            ended.result(PATIENCE_SECONDS)

    def close(self) -> None:
        with _told(self.FENCED, self.FAILED):
            self._producer.close(5)

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self._producer.close(1)


class JavaProducer(TransactionalProducer):
    """Kafka's own of 4.3, behind `Transactions.java`; one JVM for all of a process."""

    library = "java"
    SETTINGS: Mapping[str, object] = {
        "linger.ms": 2,
        "max.block.ms": int(PATIENCE_SECONDS * 1000),
        "reconnect.backoff.max.ms": 300,
    }
    FENCED = re.compile(r"\.(ProducerFenced|InvalidProducerEpoch|FencedInstanceId)Exception\b")
    _program: JavaProgram | None = None
    _names = itertools.count()

    @classmethod
    def program(cls) -> JavaProgram:
        """The JVM of this process, which ends with it."""
        if cls._program is None:
            source = SOURCE.with_name("Transactions.java")
            class_path = compile_java(reference.client_class_path(), source)
            cls._program = JavaProgram(class_path, "Transactions")
        return cls._program

    def open(self) -> None:
        self._name = next(JavaProducer._names)
        settings = {
            "bootstrap.servers": self.bootstrap,
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": self.timeout_ms,
            **self.SETTINGS,
        }
        self.program().ask("open", self._name, *(f"{name}={value}" for name, value in settings.items()))
        self._call("init")

    def _call(self, name: str, *arguments: object) -> None:
        try:
            self._ask(name, *arguments)
        except JavaFailure as failure:
            self._ask("acknowledged")
            if self.FENCED.search(str(failure)):
                raise Fenced(str(failure)) from failure
            raise Failed(str(failure)) from failure

    def _ask(self, name: str, *arguments: object) -> None:
        for line in self.program().ask(name, self._name, *arguments):
            topic, number, offset, value = line.split("\t")
            self.acknowledged[(topic, int(number)), value.encode()] = int(offset)

    def _in_transaction(self, name: str, *arguments: object) -> None:
        """What fails is aborted, as Kafka's documentation has it; or that fails, too, and nothing helps."""
        try:
            self._call(name, *arguments)
        except Fenced:
            raise
        except Failed as failure:
            self._call("abort")
            raise Aborted(*failure.args) from failure

    def begin(self) -> None:
        self._call("begin")

    def send(self, partition: Partition, value: bytes) -> None:
        self._in_transaction("send", *partition, value.decode())

    def flush(self) -> None:
        self._in_transaction("flush")

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        where = [part for partition, offset in offsets.items() for part in (*partition, offset)]
        self._in_transaction("offsets", group, *where)

    def commit(self) -> None:
        self._in_transaction("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close")

    def abandon(self) -> None:
        with contextlib.suppress(Failed):
            self._call("abandon")


class HastyJavaProducer(JavaProducer):
    """Gives up on requests early, and then on the transaction.

    What a connection that hangs still has in it comes late to the broker, when the transaction is aborted and
    perhaps another is open (KAFKA-17754): version 2 is there for that.
    """

    SETTINGS: Mapping[str, object] = {
        **JavaProducer.SETTINGS,
        "request.timeout.ms": 1000,
        "delivery.timeout.ms": 1500,
    }


LIBRARIES: dict[str, type[TransactionalProducer]] = {
    kind.library: kind for kind in (ConfluentProducer, AiokafkaProducer, KafkaPythonProducer, JavaProducer)
}


class IdempotentConfluentProducer(ConfluentProducer):
    def open(self) -> None:
        self._consumers = {}
        self._producer = self._new(
            {"enable.idempotence": True, "message.timeout.ms": int(PATIENCE_SECONDS * 1000)}
        )

    def begin(self) -> None:
        """Nothing to begin."""


class IdempotentAiokafkaProducer(AiokafkaProducer):
    def _settings(self) -> dict[str, Any]:
        return {"enable_idempotence": True}

    def begin(self) -> None:
        """Nothing to begin."""


class IdempotentKafkaPythonProducer(KafkaPythonProducer):
    def open(self) -> None:
        with _told(self.FENCED, self.FAILED):
            self._producer = self._new(
                enable_idempotence=True, acks="all", delivery_timeout_ms=int(PATIENCE_SECONDS * 1000)
            )

    def begin(self) -> None:
        self._sent = []


IDEMPOTENT: dict[str, type[TransactionalProducer]] = {
    kind.library: kind
    for kind in (IdempotentConfluentProducer, IdempotentAiokafkaProducer, IdempotentKafkaPythonProducer)
}
