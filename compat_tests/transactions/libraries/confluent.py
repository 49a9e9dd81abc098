"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from compat_tests.kit.history import Partition, Records
from compat_tests.transactions.libraries import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    RECORDS_A_TRANSACTION,
    Failed,
    Fenced,
    Library,
    Reader,
    Source,
    TransactionalProducer,
)

NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
"""By default librdkafka 2.16 forgets its brokers when all connections are lost (KIP-899), and then may wait
for ever for a group coordinator that it knew before, with Kafka as with Odradek."""


class ConfluentProducer(TransactionalProducer):
    library = "confluent-kafka"

    FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

    def open(self) -> None:
        self._consumers: dict[str, Consumer] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._is_in_doubt = False
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
            except SystemError as failure:
                # confluent-kafka loses the exception of a fatal error where a delivery report comes with it.
                raise Failed(str(failure)) from failure
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
            else:
                self._is_in_doubt = True

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
        if self._is_in_doubt:
            # The next records of this one would get sequence numbers that the broker may have, and would be
            # lost, with Kafka as with Odradek (findings/librdkafka-abort-sequence.sh).
            self._begin_anew()

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


class IdempotentConfluentProducer(ConfluentProducer):
    def open(self) -> None:
        self._consumers = {}
        self._is_in_doubt = False
        self._producer = self._new(
            {"enable.idempotence": True, "message.timeout.ms": int(PATIENCE_SECONDS * 1000)}
        )

    def begin(self) -> None:
        """Nothing to begin."""


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


class ConfluentSource(Source):
    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
                **NO_REBOOTSTRAP,
            }
        )
        # Without an offset it begins where the group has committed.
        self._consumer.assign([TopicPartition(*partition) for partition in partitions])
        self._unread = set(partitions)
        self._ahead: list[Any] = []

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        while self._unread or self._ahead:
            if not self._ahead:
                for message in self._consumer.consume(100, 0.2):
                    where = (message.topic(), message.partition())
                    if message.error() is None:
                        self._ahead.append(message)
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        self._unread.discard(where)
                self._ahead.sort(key=lambda message: (message.partition(), message.offset()))
            if self._ahead:
                number = self._ahead[0].partition()
                taken = [one for one in self._ahead[:RECORDS_A_TRANSACTION] if one.partition() == number]
                del self._ahead[: len(taken)]
                values = [message.value() for message in taken]
                return (taken[0].topic(), number), values, taken[-1].offset() + 1
        return None


LIBRARY = Library(ConfluentProducer, ConfluentReader, ConfluentSource, idempotent=IdempotentConfluentProducer)
