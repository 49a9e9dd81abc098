"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CommitFailedError, KafkaConnectionError
from kafka.structs import OffsetAndMetadata

from compat_tests.clients import DEADLINE_SECONDS, FETCH_BYTES, Client, Member, Message, Record
from tests.kafka_python import refresh_metadata_soon

refresh_metadata_soon()  # for processes of tests, which have no conftest


def _records(batches: Mapping[TopicPartition, Iterable[Any]]) -> list[Record]:
    return [
        Record(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
        for batch in batches.values()
        for r in batch
    ]


JOIN_POLL_SECONDS = 2.0
"""Longer than it takes to join. kafka-python 3.0.12 loses a join that goes on when its `poll` ends, if new
metadata was the reason and it was made the leader: that takes the reason away, so the next `poll` does not
wait for the answer to SyncGroup, and heartbeats stay off until the session has expired."""


def _offset(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


class KafkaPythonMember(Member):
    rebalancing = (CommitFailedError,)

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self._arguments = (bootstrap, group, topic)

    def open(self) -> None:
        bootstrap, group, topic = self._arguments
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=300,
        )

    def poll(self) -> list[Record]:
        try:
            return _records(self._consumer.poll(timeout_ms=int(JOIN_POLL_SECONDS * 1000)))
        except KafkaConnectionError:
            # With a time-out of less than a restart takes, 3.0.12 lets its caller know that neither the
            # coordinator nor metadata were to be had; the next one goes on.
            return []

    def assignment(self) -> frozenset[int]:
        return frozenset(partition.partition for partition in self._consumer.assignment())

    def commit(self) -> None:
        # By itself it tries for 30 s; a restart of Apache Kafka on a busy machine may take longer. A refused
        # connection ends it before that.
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return self._consumer.commit(timeout_ms=int(DEADLINE_SECONDS * 1000))
            except KafkaConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonClient(Client):
    sends_null_headers = False  # its producer takes bytes only

    def create_topic(self, topic: str, partitions: int) -> None:
        with KafkaAdminClient(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics(
                {topic: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True
            )

    def produce(
        self, topic: str, messages: Sequence[Message], codec: str = "none", *, linger_ms: int = 5
    ) -> list[tuple[int, int]]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all",
            linger_ms=linger_ms,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=m.value,
                    key=m.key,
                    headers=list(m.headers),
                    partition=m.partition,
                    timestamp_ms=m.timestamp_ms,
                )
                for m in messages
            ]
            producer.flush(DEADLINE_SECONDS)
            answers = [future.get(timeout=DEADLINE_SECONDS) for future in futures]
        finally:
            producer.close()
        return [(answer.partition, answer.offset) for answer in answers]

    def _consumer(self, group: str | None = None, **settings: int | str) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            **settings,
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
        with self._consumer(max_partition_fetch_bytes=fetch_bytes, auto_offset_reset=reset) as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            records: list[Record] = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(records) < count and time.monotonic() < deadline:
                records += _records(consumer.poll(timeout_ms=500))
            return records

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        with self._consumer() as consumer:
            where = TopicPartition(topic, partition)
            found = consumer.offsets_for_times({where: timestamp_ms})[where]
            return None if found is None else int(found.offset)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        with self._consumer(group) as consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in offsets])
            consumer.commit({TopicPartition(topic, p): _offset(offset) for p, offset in offsets.items()})

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        with self._consumer(group) as consumer:
            return {p: consumer.committed(TopicPartition(topic, p)) for p in partitions}

    def join(self, group: str, topic: str) -> Member:
        return KafkaPythonMember(self.bootstrap, group, topic).start()
