"""A log directory goes from a node of ours to Apache Kafka and back, after stops in order and after kills.

Kafka's broker has the id, the port and the log directory of the node, and nobody formats anything. Its
controllers know the topics, so that their ids are those in `partition.metadata`.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.differential.harness import Side
from compat_tests.kit.readers import committed_offset
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember, broker_properties
from compat_tests.reference import CURRENT, PREVIOUS
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, build_batch

NODE_ID = 1
SEGMENT_BYTES = 1_048_576
VALUE_BYTES = 20_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "plain": (8, {}),
    "compacted": (5, {**COMPACTED, "segment.bytes": str(SEGMENT_BYTES)}),
    "segments": (4, {"segment.bytes": str(SEGMENT_BYTES)}),
    "transactional": (8, {}),
    "empty": (4, {}),
    "sequences": (1, {}),
    **{codec: (3, {"segment.bytes": str(SEGMENT_BYTES)}) for codec in CODECS},
}
"""Partitions and settings; 42, and ten of the coordinators. Compression is that of the producers."""
PROPERTIES = {"log.cleaner.backoff.ms": "500", "broker.heartbeat.interval.ms": "500"}
GROUP = "readers"
BAD_WORDS = ("ERROR", "WARN", "invalid", "corrupt", "Corrupt", "stray")
EXPECTED_LINES = (
    "Could not find offset index file",  # beside short logs after our stop (docs/differences.md)
    "Unable to read the broker epoch",  # after a kill
)
SESSION_MS = "3000"
"""A broker that was killed is forgotten soon, and its id is free."""

Place = tuple[str, int]
Content = dict[Place, list[tuple[int, bytes | None, bytes | None]]]


class Successor(KafkaMember):
    """Kafka's broker in the place of a node of ours."""

    def __init__(self, node: OdradekMember, properties: Mapping[str, str]) -> None:
        assert isinstance(node.controllers, Controllers)
        super().__init__(node.controllers, node.node_id, properties)
        self.port, self.data_dir = node.port, node.data_dir

    def _format(self, config: pathlib.Path) -> None:
        text = broker_properties(self._controllers, self.node_id, self.port, self.data_dir, self._properties)
        config.write_text(text)

    def _logging(self) -> list[str]:
        return ["-Dlog4j2.level=INFO"]

    @property
    def log(self) -> str:
        return self._log_text()


Broker = OdradekMember | Successor


class Writer:
    """Clients that write to the directory in each stage of its life, and live through all stages."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stage = 0
        self._producers = {
            codec: Producer({**self._common(), "enable.idempotence": True, "compression.type": codec})
            for codec in ("none", *CODECS)
        }
        self._transactional = self._new_transactional()
        self._first_batch: tuple[bytes, int] | None = None

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "linger.ms": 5,
            "batch.size": 100_000,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }

    def _new_transactional(self) -> Producer:
        settings = {"transactional.id": "through-all", "transaction.timeout.ms": 600_000}
        producer = Producer({**self._common(), **settings})
        producer.init_transactions(DEADLINE_SECONDS)
        return producer

    def write(self) -> None:
        """Ends a transaction that the broker before has begun, writes everywhere, and begins one more."""
        if self._stage:
            self._transactional.commit_transaction(DEADLINE_SECONDS)
        self._write_partitions("plain", self._producers["none"], 20)
        for codec in CODECS:
            self._write_partitions(codec, self._producers[codec], 60, b"compressible " * 100)
        self._write_partitions("compacted", self._producers["none"], 90, bytes(VALUE_BYTES), keys=10)
        self._write_partitions("segments", self._producers["none"], 90, bytes(VALUE_BYTES))
        for number in range(6):
            self._transaction(number, is_committed=bool(number % 3))
        self._transactional.begin_transaction()
        self._write_partitions("transactional", self._transactional, 2)
        self._stage += 1

    def _transaction(self, number: int, *, is_committed: bool) -> None:
        producer = self._transactional
        producer.begin_transaction()
        self._write_partitions("transactional", producer, 5, b"%d" % number)
        if is_committed:
            producer.commit_transaction(DEADLINE_SECONDS)
        else:
            producer.abort_transaction(DEADLINE_SECONDS)

    def _write_partitions(
        self, topic: str, producer: Producer, count: int, filling: bytes = b"", *, keys: int = 0
    ) -> None:
        errors: list[KafkaError] = []

        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                errors.append(error)

        for number in range(count):
            key = b"%d" % (number % keys if keys else number)
            value = b"%d-%d " % (self._stage, number) + filling
            for partition in range(TOPICS[topic][0]):
                producer.produce(topic, value, key, partition=partition, on_delivery=told)
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert not errors

    def repeat_batch(self) -> None:
        """Sends one batch again: a broker that knows its producer tells the first offset."""
        side = Side("broker", self._bootstrap)
        try:
            if self._first_batch is None:
                told = side.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=9), 4)
                assert told.error_code == 0
                # Producers of old records are forgotten.
                now_ms = time.time_ns() // 1_000_000
                records = [Record(offset, now_ms, None, b"once", ()) for offset in range(3)]
                batch = build_batch(
                    records, producer_id=told.producer_id, producer_epoch=told.producer_epoch, base_sequence=0
                )
                self._first_batch = bytes(batch), self._produce(side, bytes(batch))
                return
            batch_bytes, offset = self._first_batch
            assert self._produce(side, batch_bytes) == offset
        finally:
            side.close()

    @staticmethod
    def _produce(side: Side, batch: bytes) -> int:
        data = PartitionProduceData(index=0, records=batch)
        topics = [TopicProduceData(name="sequences", partition_data=[data])]
        told = side.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
        (partition,) = told.responses[0].partition_responses
        assert partition.error_code == 0, partition
        return int(partition.base_offset)


def read_all(bootstrap: str, isolation: str) -> Content:
    """Every record of every partition, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "of-the-test",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    places = [(topic, index) for topic, (count, _) in TOPICS.items() for index in range(count)]
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    found: Content = {place: [] for place in places}
    ended: set[Place] = set()

    def has_read_all() -> bool:
        for record in consumer.consume(500, 0.2):
            place = record.topic(), record.partition()
            error = record.error()
            if error is None:
                found[place].append((record.offset(), record.key(), record.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(place)
        return len(ended) == len(places)

    try:
        wait_until(has_read_all, "all is read", seconds=120)
    finally:
        consumer.close()
    return found


def assert_same(before: Content, after: Content) -> None:
    """`after` has all of `before`; of a compacted topic the newest of each key. Records that were deleted on
    demand may be back: Kafka writes the starts of logs once a minute."""
    for place, records in before.items():
        found = after[place]
        if place[0] == "compacted":
            newest, theirs = ({key: value for _, key, value in one} for one in (records, found))
            assert theirs == newest, place
            assert set(found) <= set(records), place
        else:
            assert found[-len(records) :] == records if place == ("segments", 0) else found == records, place


def open_transactions_are_left_out(committed: Content, all_records: Content) -> None:
    for index in range(TOPICS["transactional"][0]):
        assert 0 < len(committed["transactional", index]) < len(all_records["transactional", index])


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, count, 1, config=dict(config)) for name, (count, config) in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(DEADLINE_SECONDS)


def commit_offsets(bootstrap: str, offset: int) -> None:
    offsets = [TopicPartition("plain", index, offset) for index in range(TOPICS["plain"][0])]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    told = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, offsets)])
    told[GROUP].result(DEADLINE_SECONDS)


def committed_offsets(bootstrap: str) -> set[int]:
    return {committed_offset(bootstrap, GROUP, ("plain", index)) for index in range(TOPICS["plain"][0])}


def delete_records(bootstrap: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition("segments", 0, offset)]).values():
        future.result(DEADLINE_SECONDS)


def is_compacted(broker: Broker) -> bool:
    """A log of 1.8 MB with ten keys has become shorter than a segment and the active one."""
    logs = broker.data_dir.glob("compacted-0/*.log")
    return sum(path.stat().st_size for path in logs) < 2 * SEGMENT_BYTES - VALUE_BYTES


def check_log_of_kafka(log: str) -> None:
    """Kafka has trusted our mark of a clean stop, has recovered after the kill, and has found no damage."""
    ours = [line for line in log.splitlines() if "org.apache.kafka.storage" in line or "LogManager" in line]
    bad = [line for line in ours if any(word in line for word in BAD_WORDS)]
    assert [line for line in bad if not any(expected in line for expected in EXPECTED_LINES)] == []
    skipped, recovered = log.find("Skipping recovery of 52 logs"), log.find("Recovering 52 logs")
    assert 0 < skipped < recovered


@pytest.mark.parametrize("version", [CURRENT, pytest.param(PREVIOUS, marks=pytest.mark.nightly)])
def test_kafka_takes_a_directory_of_ours_over_and_gives_it_back(version: str) -> None:
    with (
        Controllers({"broker.session.timeout.ms": SESSION_MS}, version=version) as controllers,
        OdradekMember(controllers, NODE_ID, PROPERTIES) as ours,
    ):
        assert isinstance(controllers, Controllers)
        kafka = Successor(ours, PROPERTIES)
        bootstrap = ours.bootstrap_servers
        create_topics(bootstrap)
        writer = Writer(bootstrap)
        stages: Sequence[tuple[Broker, str]] = [
            (ours, "stop"), (kafka, "stop"), (ours, "kill"), (kafka, "kill"), (ours, "stop"),
        ]  # fmt: skip
        try:
            before: Content | None = None
            for number, (broker, how) in enumerate(stages):
                if number:
                    broker.start()
                    assert committed_offsets(bootstrap) == {number}
                    after = read_all(bootstrap, "read_uncommitted")
                    assert before is not None
                    assert_same(before, after)
                writer.repeat_batch()
                writer.write()
                commit_offsets(bootstrap, number + 1)
                delete_records(bootstrap, 10 * (number + 1))
                wait_until(lambda broker=broker: is_compacted(broker), "compacted", seconds=60)
                before = read_all(bootstrap, "read_uncommitted")
                open_transactions_are_left_out(read_all(bootstrap, "read_committed"), before)
                assert before["segments", 0][0][0] == 10 * (number + 1)
                getattr(broker, how)()
            check_log_of_kafka(kafka.log)
        finally:
            kafka.kill()
