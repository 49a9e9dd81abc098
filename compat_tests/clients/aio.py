"""aiokafka, its coroutines run on an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import CommitFailedError, KafkaConnectionError

from compat_tests.clients import DEADLINE_SECONDS, FETCH_BYTES, POLL_SECONDS, Client, Member, Message, Record

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, for callers that are not coroutines."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_SECONDS + 15)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _start(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Starts it, again and again while nobody answers: aiokafka asks its bootstrap servers only once."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            await client.start()
            return
        except KafkaConnectionError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(POLL_SECONDS)


def _records(batches: Mapping[TopicPartition, Iterable[Any]]) -> list[Record]:
    return [
        Record(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
        for batch in batches.values()
        for r in batch
    ]


class AiokafkaMember(Member):
    rebalancing = (CommitFailedError,)
    session_timeout_ms = 10_000

    def __init__(self, thread: LoopThread, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self._loop = thread
        self._arguments = (bootstrap, group, topic)

    def open(self) -> None:
        self._loop.run(self._open())

    async def _open(self) -> None:
        bootstrap, group, topic = self._arguments
        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=300,
        )
        await _start(self._consumer)

    def poll(self) -> list[Record]:
        return _records(self._loop.run(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))))

    def assignment(self) -> frozenset[int]:
        return frozenset(partition.partition for partition in self._consumer.assignment())

    def commit(self) -> None:
        self._loop.run(self._consumer.commit())

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class AiokafkaClient(Client):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = LoopThread()

    def close(self) -> None:
        self._loop.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        self._loop.run(self._create_topic(topic, partitions))

    async def _create_topic(self, topic: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
            assert answer.topic_errors[0][1] == 0, answer
        finally:
            await admin.close()

    def produce(self, topic: str, messages: Sequence[Message], codec: str = "none") -> list[tuple[int, int]]:
        return self._loop.run(self._produce(topic, messages, codec))

    async def _produce(self, topic: str, messages: Sequence[Message], codec: str) -> list[tuple[int, int]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=5,
        )
        await _start(producer)
        try:
            futures = [
                await producer.send(
                    topic,
                    value=m.value,
                    key=m.key,
                    headers=list(m.headers),
                    partition=m.partition,
                    timestamp_ms=m.timestamp_ms,
                )
                for m in messages
            ]
            answers = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_SECONDS)
        finally:
            await producer.stop()
        return [(answer.partition, answer.offset) for answer in answers]

    async def _started(self, group: str | None = None, **settings: int | str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False, **settings
        )
        await _start(consumer)
        return consumer

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        fetch_bytes: int = FETCH_BYTES,
        reset: str = "earliest",
    ) -> list[Record]:
        return self._loop.run(self._read(topic, starts, count, fetch_bytes, reset))

    async def _read(
        self, topic: str, starts: Mapping[int, int], count: int, fetch_bytes: int, reset: str
    ) -> list[Record]:
        consumer = await self._started(max_partition_fetch_bytes=fetch_bytes, auto_offset_reset=reset)
        try:
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            records: list[Record] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(records) < count and time.monotonic() < deadline:
                records += _records(await consumer.getmany(timeout_ms=500))
            return records
        finally:
            await consumer.stop()

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return self._loop.run(self._offset_at(TopicPartition(topic, partition), timestamp_ms))

    async def _offset_at(self, where: TopicPartition, timestamp_ms: int) -> int | None:
        consumer = await self._started()
        try:
            consumer.assign([where])
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return None if found is None else int(found.offset)
        finally:
            await consumer.stop()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self._loop.run(self._commit(group, {TopicPartition(topic, p): o for p, o in offsets.items()}))

    async def _commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        consumer = await self._started(group)
        try:
            consumer.assign(list(offsets))
            await consumer.commit(dict(offsets))
        finally:
            await consumer.stop()

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        return self._loop.run(self._committed(group, [TopicPartition(topic, p) for p in partitions]))

    async def _committed(self, group: str, where: Sequence[TopicPartition]) -> dict[int, int | None]:
        consumer = await self._started(group)
        try:
            consumer.assign(list(where))
            return {one.partition: await consumer.committed(one) for one in where}
        finally:
            await consumer.stop()

    def join(self, group: str, topic: str) -> Member:
        return AiokafkaMember(self._loop, self.bootstrap, group, topic).start()
