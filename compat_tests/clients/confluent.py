"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients import (
    DEADLINE_SECONDS,
    FETCH_BYTES,
    POLL_SECONDS,
    Client,
    Member,
    Message,
    Record,
    wait_until,
)

PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}
"""What librdkafka reports while a broker is away; it goes on by itself."""

REBALANCING = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._NO_OFFSET,
    # After a restart of Kafka's broker.
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def _record(message: Any) -> Record:
    return Record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


def _records(messages: Iterable[Any]) -> list[Record]:
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(_record(message))
        elif error.code() not in PASSING:
            raise KafkaException(error)
    return records


class ConfluentMember(Member):
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": 300,
        }

    def open(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe([self._topic])

    def poll(self) -> list[Record]:
        return _records(self._consumer.consume(500, POLL_SECONDS))

    def assignment(self) -> frozenset[int]:
        return frozenset(partition.partition for partition in self._consumer.assignment())

    def try_commit(self) -> bool:
        try:
            self.commit()
        except KafkaException as failure:
            if failure.args[0].code() not in REBALANCING:
                raise
            return False
        return True

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class ConfluentClient(Client):
    def create_topic(self, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_SECONDS)
        # produce() fails at once for a partition that the metadata does not show yet.
        wait_until(lambda: self._partitions(admin, topic) == partitions, "the topic is visible")

    @staticmethod
    def _partitions(admin: AdminClient, topic: str) -> int:
        return len(admin.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions)

    def produce(self, topic: str, messages: Sequence[Message], codec: str = "none") -> list[tuple[int, int]]:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "acks": "all",
                # So that a few messages are one batch, however busy the machine is; the flush waits for none.
                "linger.ms": 1_000,
                # With more a retry changes the order; Kafka refuses the first produces to partitions that it
                # has only just created.
                "max.in.flight.requests.per.connection": 1,
            }
        )
        answers: dict[int, tuple[int, int]] = {}
        failures: list[Any] = []

        def produce(index: int, message: Message) -> None:
            def delivered(error: Any, where: Any) -> None:
                if error is not None:
                    failures.append(error)
                else:
                    answers[index] = (where.partition(), where.offset())

            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
                timestamp=message.timestamp_ms or 0,
                on_delivery=delivered,
            )

        for index, message in enumerate(messages):
            produce(index, message)
            producer.poll(0)
        producer.flush(DEADLINE_SECONDS)
        assert not failures, failures[0]
        return [answers[index] for index in range(len(messages))]

    def _consumer(self, group: str = "none", **settings: int | str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        fetch_bytes: int = FETCH_BYTES,
        reset: str = "earliest",
    ) -> list[Record]:
        consumer = self._consumer(max_partition_fetch_bytes=fetch_bytes, auto_offset_reset=reset)
        try:
            consumer.assign(
                [TopicPartition(topic, partition, offset) for partition, offset in starts.items()]
            )
            records: list[Record] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(records) < count and time.monotonic() < deadline:
                # What is left, since consume() waits for as many as it is asked for.
                records += _records(consumer.consume(min(count - len(records), 1000), 1.0))
            return records
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp_ms)], timeout=DEADLINE_SECONDS
            )
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = self._consumer(group)
        where = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while True:
                try:
                    consumer.commit(offsets=where, asynchronous=False)
                    break
                except KafkaException as failure:
                    # Apache Kafka may still be reading its groups after a restart.
                    is_loading = failure.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
                    if not is_loading or time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
        finally:
            consumer.close()

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        consumer = self._consumer(group)
        try:
            found = consumer.committed(
                [TopicPartition(topic, partition) for partition in partitions], timeout=DEADLINE_SECONDS
            )
            return {one.partition: one.offset if one.offset >= 0 else None for one in found}
        finally:
            consumer.close()

    def join(self, group: str, topic: str) -> Member:
        return ConfluentMember(self.bootstrap, group, topic).start()
