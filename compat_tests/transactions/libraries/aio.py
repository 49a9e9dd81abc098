"""aiokafka, its coroutines run on an event loop in a thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import aiokafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from compat_tests.clients.aio import LoopThread
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
        with told(self.FENCED, self.FAILED):
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
        where = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
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


class IdempotentAiokafkaProducer(AiokafkaProducer):
    def _settings(self) -> dict[str, Any]:
        return {"enable_idempotence": True}

    def begin(self) -> None:
        """Nothing to begin."""


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
        where = [TopicPartition(*partition) for partition in self._partitions]
        self._consumer.assign(where)
        for one in where:
            self._consumer.seek(one, 0)

    def poll(self) -> dict[Partition, Records]:
        assert self._consumer is not None
        return values_by_partition(
            self._loop.run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        )

    def close(self) -> None:
        if self._consumer is not None:
            self._loop.run(self._consumer.stop())


class AiokafkaSource(Source):
    def __init__(self, bootstrap: str, group: str, partitions: list[Partition]) -> None:
        super().__init__(bootstrap, group, partitions)
        self._loop = LoopThread()
        self._loop.run(self._open())

    async def _open(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await self._consumer.start()
        self._where = [TopicPartition(*partition) for partition in self.partitions]
        self._consumer.assign(self._where)
        self._ends = await self._consumer.end_offsets(self._where)

    def poll(self) -> tuple[Partition, list[bytes], int] | None:
        return self._loop.run(self._poll())

    async def _poll(self) -> tuple[Partition, list[bytes], int] | None:
        while True:
            for one in self._where:
                batches = await self._consumer.getmany(one, timeout_ms=100, max_records=RECORDS_A_TRANSACTION)
                for records in batches.values():
                    return tuple(one), [record.value for record in records], records[-1].offset + 1
            positions = [await self._consumer.position(one) >= self._ends[one] for one in self._where]
            if all(positions):
                return None


LIBRARY = Library(AiokafkaProducer, AiokafkaReader, AiokafkaSource, idempotent=IdempotentAiokafkaProducer)
