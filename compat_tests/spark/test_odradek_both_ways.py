"""From topic to topic by `format("odradek")` alone, which needs no jar: also on the newest PySpark 4."""

from __future__ import annotations

import pathlib

import pytest

from compat_tests.clients import Message
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit import readers
from compat_tests.spark.odradek_tables import OdradekTables
from compat_tests.spark.sessions import past_ended_workers
from compat_tests.spark.topics import finish
from compat_tests.stories import START_MS

TYPE = "key binary, value binary"


@pytest.fixture
def both(spark, client: KafkaPythonClient) -> OdradekTables:  # type: ignore[no-untyped-def]
    return OdradekTables(spark, client)


def committed(tables: OdradekTables, topic: str, partitions: int) -> list[int]:
    """The numbers that a consumer with read_committed finds, sorted, doubles included."""
    places = [(topic, number) for number in range(partitions)]
    found = readers.values_of(tables.client.bootstrap, places)
    return sorted(int(value) for there in found.values() for value in there)


@pytest.mark.smoke
def test_a_table_goes_from_topic_to_topic_as_it_is(both: OdradekTables) -> None:
    source, copy = both.new_topic("source", 3), both.new_topic("copy", 3)
    sent = [
        Message(b"%d" % n, b"k%d" % n, (("h", b"%d" % n),), partition=n % 3, timestamp_ms=START_MS + n)
        for n in range(90)
    ]
    both.client.produce(source, sent)
    rows = both.read(source, includeHeaders="true").drop("topic")
    writer = rows.write.format("odradek").option("kafka.bootstrap.servers", both.client.bootstrap)
    for _ in range(2):
        writer.option("topic", copy).option("writeId", copy).mode("append").save()
    starts = {0: 0, 1: 0, 2: 0}
    original, copied = both.client.read(source, starts, 90), both.client.read(copy, starts, 90)
    assert sorted((r.partition, r.timestamp_ms, *r.content()) for r in copied) == sorted(
        (r.partition, r.timestamp_ms, *r.content()) for r in original
    )
    assert committed(both, copy, 3) == list(range(90))


def test_a_stream_goes_from_topic_to_topic_once(both: OdradekTables, tmp_path: pathlib.Path) -> None:
    source, copy = both.new_topic("source", 2, range(100)), both.new_topic("copy", 2)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        stream = both.stream(source, startingOffsets="earliest").select("key", "value")
        writer = stream.writeStream.format("odradek").option("topic", copy)
        writer = writer.option("kafka.bootstrap.servers", both.client.bootstrap)
        finish(writer.option("checkpointLocation", str(checkpoint)))

    run()
    both.produce(source, range(100, 150), 2)
    run()
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):  # as if the driver had died before it wrote down the end
        (commits / name).unlink(missing_ok=True)
    run()
    assert committed(both, copy, 2) == list(range(150))


def test_rows_that_are_cut_off_are_not_written(both: OdradekTables, tmp_path: pathlib.Path) -> None:
    topic, flag = both.new_topic("cut", 2), tmp_path / "flag"
    flag.touch()
    path = str(flag)

    def failing(batches):  # type: ignore[no-untyped-def]
        import os

        yield from batches
        if os.path.exists(path):
            raise RuntimeError("the flag is up")

    rows = both.spark.range(0, 400, numPartitions=2).selectExpr(
        "CAST(NULL AS BINARY) AS key", "CAST(rpad(CAST(id AS STRING), 20000, ' ') AS BINARY) AS value"
    )
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    both.spark.conf.set(setting, "10")
    try:
        writer = rows.mapInArrow(failing, TYPE).write.format("odradek").mode("append").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", both.client.bootstrap).option("writeId", topic)
        with pytest.raises(Exception, match="the flag is up"):
            writer.save()
        flag.unlink()
        past_ended_workers(writer.save)
    finally:
        both.spark.conf.unset(setting)
    assert committed(both, topic, 2) == list(range(400))
