"""Kafka 0.7 beside confluent-kafka: every codec, transactions, moves between data directories."""

from __future__ import annotations

import pathlib
import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition

import odradek
from compat_tests.kafka07.conftest import Oldest
from odradek.wire.compression import Compression
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.kafka07.client import Client07, contents, options
from tests.raw_client import RawClient

PATIENCE_S = 30
VALUES = [b"one", b"", b"three" * 1000]


def consumed(broker: odradek.Broker, topic: str, count: int) -> list[tuple[bytes | None, bytes | None, int]]:
    """(key, value, timestamp) of the first records, which have the time of their creation."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    for record in consumer.consume(count, PATIENCE_S):
        assert record.error() is None
        kind, timestamp = record.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME
        found.append((record.key(), record.value(), timestamp))
    consumer.close()
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY])
def test_confluent_kafka_reads_what_0_7_writes(oldest: Oldest, topic: str, codec: Compression) -> None:
    before_ms = time.time_ns() // 1_000_000
    with Client07(oldest.port) as client:
        client.produce(*VALUES, topic=topic, codec=codec)
    after_ms = time.time_ns() // 1_000_000
    found = consumed(oldest.broker, topic, len(VALUES))
    assert [(key, value or b"") for key, value, _ in found] == [(None, value) for value in VALUES]
    assert all(before_ms <= timestamp <= after_ms for *_, timestamp in found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_0_7_reads_what_confluent_kafka_writes(oldest: Oldest, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": oldest.broker.bootstrap_servers, "compression.type": codec})
    for value in VALUES:
        producer.produce(topic, value, b"key", headers=[("name", b"content")], partition=0)
    assert producer.flush(PATIENCE_S) == 0
    with Client07(oldest.port) as client:
        assert client.values(topic) == VALUES
        assert client.end(topic) == sum(10 + len(value) for value in VALUES)


def test_0_7_reads_transactions_whatever_came_of_them(oldest: Oldest, topic: str) -> None:
    servers = oldest.broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number, is_committed in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            assert producer.flush(PATIENCE_S) == 0
            producer.abort_transaction(PATIENCE_S)
    with Client07(oldest.port) as client:
        # Markers take no place.
        assert client.values(topic) == [b"0", b"1", b"2"]
        assert client.end(topic) == 33


def test_positions_stay_when_a_partition_moves_to_another_directory(tmp_path: pathlib.Path) -> None:
    given, port = options()
    directories = [tmp_path / "one", tmp_path / "two"]
    both = ",".join(map(str, directories))
    values = [b"%05d" % number * 10 for number in range(500)]
    with odradek.Broker(process=True, data_dir=both, options=given) as broker:
        with Client07(port) as client, RawClient(broker.port) as today:
            client.produce(*values[:300])
            assert client.end() == 300 * 60
            (home,) = (one for one in directories if (one / "t-0").exists())
            (target,) = (one for one in directories if one != home)
            topics = [AlterReplicaLogDirTopic(name="t", partitions=[0])]
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(target), topics=topics)])
            answer = today.ask(request, 2)
            assert answer.results[0].partitions[0].error_code == 0
            deadline = time.monotonic() + PATIENCE_S
            while (home / "t-0").exists() or not (target / "t-0").exists():
                assert time.monotonic() < deadline
                assert client.fetch(60 * 100, 120)[1] == client.fetch(60 * 100, 120)[1]
            client.produce(*values[300:])
            assert client.values() == values
            assert contents(client.fetch(60 * 123, 60)[1]) == values[123:124]
        broker.kill()
        broker.start()
        with Client07(port) as client:
            assert (client.start(), client.end()) == (0, 500 * 60)
            assert client.values(position=60 * 200) == values[200:]
