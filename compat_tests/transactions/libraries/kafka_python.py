"""kafka-python."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import kafka.errors
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from compat_tests.kit.history import Partition, Records
from compat_tests.transactions.libraries import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    RECORDS_A_TRANSACTION,
    Failed,
    Library,
    Reader,
    Source,
    TransactionalProducer,
    told,
    values_by_partition,
)
from tests.kafka_python import refresh_metadata_soon

refresh_metadata_soon()  # in a process of its own, which has no conftest


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
        with told(self.FENCED, self.FAILED):
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
        with told(self.FENCED, self.FAILED):
            self._producer.begin_transaction()

    def send(self, partition: Partition, value: bytes) -> None:
        topic, number = partition
        with told(self.FENCED, self.FAILED):
            future = self._producer.send(topic, value, partition=number)

        def delivered(answer: Any) -> None:
            self.acknowledged[partition, value] = answer.offset

        future.add_callback(delivered)
        self._sent.append(future)

    def flush(self) -> None:
        with told(self.FENCED, self.FAILED):
            self._producer.flush(PATIENCE_SECONDS)
        for future in self._sent:
            if future.failed():
                raise Failed(repr(future.exception))

    def send_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        where = {
            TopicPartition(*partition): OffsetAndMetadata(offset, "", -1)
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
        with told(self.FENCED, (*self.FAILED, TimeoutError)):
            ended.result(PATIENCE_SECONDS)

    def close(self) -> None:
        with told(self.FENCED, self.FAILED):
            self._producer.close(5)

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self._producer.close(1)


class IdempotentKafkaPythonProducer(KafkaPythonProducer):
    def open(self) -> None:
        with told(self.FENCED, self.FAILED):
            self._producer = self._new(
                enable_idempotence=True, acks="all", delivery_timeout_ms=int(PATIENCE_SECONDS * 1000)
            )

    def begin(self) -> None:
        self._sent = []


class KafkaPythonReader(Reader):
    failures = (kafka.errors.KafkaError,)

    def open(self) -> None:
        self._consumer: KafkaConsumer | None = None
        self._consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap, isolation_level=self._isolation, enable_auto_commit=False
        )
        where = [TopicPartition(*partition) for partition in self._partitions]
        self._consumer.assign(where)
        for one in where:
            self._consumer.seek(one, 0)

    def poll(self) -> dict[Partition, Records]:
        assert self._consumer is not None
        return values_by_partition(self._consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


class KafkaPythonSource(Source):
    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        self._where = [TopicPartition(*partition) for partition in partitions]
        self._consumer.assign(self._where)
        self._ends = self._consumer.end_offsets(self._where)

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        while True:
            batches = self._consumer.poll(timeout_ms=100, max_records=RECORDS_A_TRANSACTION)
            for one, records in batches.items():
                # One partition a transaction: what else came is read again.
                for other, rest in batches.items():
                    if other != one:
                        self._consumer.seek(other, rest[0].offset)
                return tuple(one), [record.value for record in records], records[-1].offset + 1
            if all(self._consumer.position(one) >= self._ends[one] for one in self._where):
                return None


LIBRARY = Library(
    KafkaPythonProducer, KafkaPythonReader, KafkaPythonSource, idempotent=IdempotentKafkaPythonProducer
)
