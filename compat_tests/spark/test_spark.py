"""Batch and streaming, reading and writing, with Spark's own Kafka connector."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from compat_tests.brokers import TestBroker
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import START_MS, topic_name

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def client(bootstrap: str) -> KafkaPythonClient:
    return KafkaPythonClient(bootstrap)


def numbers(client: KafkaPythonClient, partitions: int, count: int, start: int = 0) -> list[Message]:
    return [
        Message(b"%d" % n, key=b"k%d" % n, partition=n % partitions, timestamp_ms=START_MS + n * 1000)
        for n in range(start, start + count)
    ]


def filled(client: KafkaPythonClient, partitions: int = 3, count: int = 90) -> str:
    topic = topic_name("spark")
    client.create_topic(topic, partitions)
    client.produce(topic, numbers(client, partitions, count), "lz4")
    return topic


def kafka(reader: Any, bootstrap: str, topic: str, **options: str) -> Any:
    """A reader or a stream reader on the topic."""
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )


def values(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_a_batch_is_read_with_all_its_columns(spark: Any, client: KafkaPythonClient, bootstrap: str) -> None:
    topic = topic_name("spark")
    client.create_topic(topic, 2)
    messages = numbers(client, 2, 20)
    messages.append(Message(None, key=b"gone", headers=(("a", b"1"), ("b", b"")), timestamp_ms=START_MS))
    client.produce(topic, messages)
    rows = kafka(spark.read, bootstrap, topic, includeHeaders="true").collect()
    assert len(rows) == 21
    by_place = {(row.partition, row.offset): row for row in rows}
    assert by_place.keys() == {(n % 2, n // 2) for n in range(20)} | {(0, 10)}
    for n in range(20):
        row = by_place[n % 2, n // 2]
        assert (bytes(row.key), bytes(row.value), row.topic) == (b"k%d" % n, b"%d" % n, topic)
    last = by_place[0, 10]
    assert last.value is None
    assert [(header.key, bytes(header.value)) for header in last.headers] == [("a", b"1"), ("b", b"")]


def test_a_batch_is_written(spark: Any, client: KafkaPythonClient, bootstrap: str) -> None:
    topic = topic_name("spark")
    client.create_topic(topic, 1)
    frame = spark.range(500).selectExpr(
        "CAST(id AS STRING) AS key",
        "CAST(id * 2 AS STRING) AS value",
        "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers",
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).option("includeHeaders", "true").save()
    records = client.read(topic, {0: 0}, 500)
    assert sorted((record.key, record.value, record.headers) for record in records) == sorted(
        (b"%d" % n, b"%d" % (2 * n), (("h", b"x"),)) for n in range(500)
    )


def test_a_batch_starts_and_ends_where_it_is_told(
    spark: Any, client: KafkaPythonClient, bootstrap: str
) -> None:
    topic = filled(client)

    def read(**options: str) -> list[int]:
        return values(kafka(spark.read, bootstrap, topic, **options))

    assert read(startingOffsets="earliest", endingOffsets="latest") == list(range(90))
    exact = json.dumps({topic: {"0": 10, "1": -2, "2": 30}})
    upto = json.dumps({topic: {"0": 12, "1": 1, "2": -1}})
    assert read(startingOffsets=exact, endingOffsets=upto) == [1, 30, 33]
    middle = json.dumps({topic: {str(p): START_MS + 60_000 for p in range(3)}})
    assert read(startingOffsetsByTimestamp=middle) == list(range(60, 90))
    assert read(startingTimestamp=str(START_MS + 81_000)) == list(range(81, 90))


def test_more_partitions_than_the_topic_has(spark: Any, client: KafkaPythonClient, bootstrap: str) -> None:
    frame = kafka(spark.read, bootstrap, filled(client), minPartitions="9")
    assert frame.rdd.getNumPartitions() >= 9
    assert values(frame) == list(range(90))


def test_a_stream_takes_no_more_at_once_than_it_is_told(
    spark: Any, client: KafkaPythonClient, bootstrap: str, tmp_path: pathlib.Path
) -> None:
    stream = kafka(
        spark.readStream,
        bootstrap,
        filled(client),
        startingOffsets="earliest",
        maxOffsetsPerTrigger="30",
    )
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(sizes) == 90
    assert max(sizes) <= 30
    assert values(spark.read.parquet(str(tmp_path / "out"))) == list(range(90))


def test_a_stream_into_files_has_every_record_once_over_a_restart(
    spark: Any, client: KafkaPythonClient, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    topic = filled(client)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def start() -> Any:
        stream = kafka(
            spark.readStream, broker.bootstrap, topic, startingOffsets="earliest", failOnDataLoss="true"
        )
        writer = stream.writeStream.format("parquet").option("path", out)
        return writer.option("checkpointLocation", checkpoint).start()

    query = start()
    wait_until(lambda: sum(p["numInputRows"] for p in query.recentProgress) >= 90, "the first part is read")
    broker.crash_and_restart()
    client.produce(topic, numbers(client, 3, 90, start=90))
    wait_until(lambda: sum(p["numInputRows"] for p in query.recentProgress) >= 180, "the second part is read")
    query.stop()
    client.produce(topic, numbers(client, 3, 90, start=180))
    query = start()  # from its checkpoint
    query.processAllAvailable()
    query.stop()
    assert values(spark.read.parquet(out)) == list(range(270))


def test_a_stream_into_kafka_loses_nothing_over_a_restart(
    spark: Any, client: KafkaPythonClient, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    source, sink = filled(client), topic_name("sink")
    client.create_topic(sink, 1)
    stream = kafka(
        spark.readStream, broker.bootstrap, source, startingOffsets="earliest", maxOffsetsPerTrigger="30"
    )
    query = (
        stream.select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    wait_until(lambda: sum(p["numInputRows"] for p in query.recentProgress) >= 30, "it has begun")
    broker.crash_and_restart()
    client.produce(source, numbers(client, 3, 60, start=90))
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None
    records = client.read(sink, {0: 0}, 150)
    assert {int(record.value or b"-1") for record in records} == set(range(150))
