"""`latest`: one row for each key, the last; upserts, deletions, and what is run again."""

from __future__ import annotations

import pathlib
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients import Message, wait_until
from compat_tests.spark.realistic_topic import RealisticTopic
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS
from odradek.spark.jobs import JobError, latest
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def brought_up(spark: SparkSession, topic: RealisticTopic, table: pathlib.Path, **options: Any) -> Report:
    servers = topic.tables.client.bootstrap
    options = {"buckets": 4, **options}
    return latest.run(spark, bootstrap_servers=servers, topic=topic.name, table=str(table), **options)


def changes(chance: random.Random, count: int, partitions: int) -> list[Message]:
    """Of thirty keys, each in the partition that it has; a fifth of them deletions, timestamps in any
    order.
    """
    numbers = [chance.randrange(30) for _ in range(count)]
    return [
        Message(
            value=None if chance.random() < 0.2 else chance.randbytes(20),
            key=b"key-%d" % number,
            headers=(("h", b"%d" % place),),
            partition=number % partitions,
            timestamp_ms=START_MS + chance.randrange(10_000),
        )
        for place, number in enumerate(numbers)
    ]


def expected(topic: RealisticTopic) -> dict[bytes, bytes]:
    """What a dictionary has after all changes in their order."""
    found: dict[bytes, bytes] = {}
    for rows in topic.rows.values():
        for _, key, value, _ in rows:
            if key is None:
                continue
            found.pop(key, None)
            if value is not None:
                found[key] = value
    return found


def in_table(table: pathlib.Path) -> dict[bytes, bytes]:
    """By pyarrow alone; a key that is there twice fails."""
    import pyarrow.parquet as pq

    found: dict[bytes, bytes] = {}
    for path in sorted(table.glob("bucket=*/*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            assert row["key"] not in found
            found[row["key"]] = row["value"]
    return found


def test_the_table_is_what_a_dictionary_would_be_run_after_run(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = RealisticTopic(tables, tables.new_topic("latest", 3), 3), tmp_path / "table"
    chance = random.Random(1)
    topic.add([*changes(chance, 200, 3), Message(b"no key", timestamp_ms=START_MS)])
    topic.abort(2)
    report = brought_up(spark, topic, table)
    assert in_table(table) == expected(topic)
    assert report.figures["keys"] == len(expected(topic)) < 30
    assert (report.figures["records read"], report.figures["of them without a key"]) == (201, 1)
    assert brought_up(spark, topic, table).figures["records read"] == 0
    for _ in range(2):
        topic.add(changes(chance, 20, 3), "zstd")
        brought_up(spark, topic, table)
        assert in_table(table) == expected(topic)
    assert spark.read.parquet(str(table)).count() == len(expected(topic))
    # Every key goes, and one comes back.
    topic.add(
        [Message(None, key, partition=int(key[4:]) % 3, timestamp_ms=START_MS) for key in expected(topic)]
    )
    brought_up(spark, topic, table)
    assert in_table(table) == {}
    topic.add([Message(b"back", b"key-1", partition=1, timestamp_ms=START_MS)])
    brought_up(spark, topic, table)
    assert in_table(table) == {b"key-1": b"back"}
    with pytest.raises(JobError, match="was made with buckets 4, and not 5"):
        brought_up(spark, topic, table, buckets=5)


def test_epochs_without_a_key_are_counted(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    """From PySpark 4.2 on Spark leaves out what it finds empty while it runs, and the counting with it."""
    topic, table = RealisticTopic(tables, tables.new_topic("latest", 2), 2), tmp_path / "table"
    figures = brought_up(spark, topic, table).figures
    assert (figures["keys"], figures["records read"]) == (0, 0)
    topic.add([Message(b"no key", partition=one, timestamp_ms=START_MS) for one in (0, 1, 1)])
    figures = brought_up(spark, topic, table).figures
    assert (figures["keys"], figures["records read"], figures["of them without a key"]) == (0, 3, 3)


def test_a_stream_keeps_it_up_to_date_for_readers_at_any_moment(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = RealisticTopic(tables, tables.new_topic("latest", 1), 1), tmp_path / "table"
    # Ten keys that are never deleted: a reader has to see ten, whenever it looks.
    chance = random.Random(2)

    def add(number: int) -> None:
        values = [Message(b"%d" % number, b"k%d" % key, timestamp_ms=START_MS + number) for key in range(10)]
        topic.add(chance.sample(values, 10))

    add(0)
    brought_up(spark, topic, table)
    stop, over, counts = threading.Event(), threading.Event(), list[int]()

    def read() -> None:
        while not over.is_set():
            try:
                counts.append(len(in_table(table)))
            except FileNotFoundError:
                pass  # listed before an exchange, opened behind it

    threads = [
        threading.Thread(
            target=brought_up,
            args=(spark, topic, table),
            kwargs={"stream": True, "trigger_seconds": 0.0, "max_offsets_per_trigger": 7, "stop": stop},
        ),
        threading.Thread(target=read),
    ]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 4):
            add(number)
        wait_until(
            lambda: set(in_table_patiently(table).values()) == {b"3"}, "all keys have their last value"
        )
    finally:
        stop.set()
        threads[0].join()
        over.set()
        threads[1].join()
    assert set(counts) == {10}


def in_table_patiently(table: pathlib.Path) -> dict[bytes, bytes]:
    try:
        return in_table(table)
    except FileNotFoundError:
        return {}
