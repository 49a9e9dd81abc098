"""`archive`: what is in the table, for whoever reads it; and what a wrong topic, option or table is told."""

from __future__ import annotations

import json
import pathlib
import random
import threading
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients import Message, wait_until
from compat_tests.spark.realistic_topic import Content, RealisticTopic, realistic_topic, some_messages
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS
from odradek.spark.jobs import JobError, archive
from odradek.spark.jobs.compaction import SizeRules
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


HIDDEN = ("_", ".")


def archived(spark: SparkSession, topic: RealisticTopic, table: pathlib.Path, **options: Any) -> Report:
    bootstrap = topic.tables.client.bootstrap
    return archive.run(spark, bootstrap_servers=bootstrap, topics=[topic.name], table=str(table), **options)


def parquet_files(table: pathlib.Path) -> list[pathlib.Path]:
    """As a reader lists them that knows nothing of Spark."""
    return sorted(path for path in table.glob("topic=*/day=*/*.parquet") if not path.name.startswith(HIDDEN))


def rows_of(table: pathlib.Path) -> dict[int, list[Content]]:
    """By pyarrow alone, file by file, sorted by offset; a doubled offset fails."""
    import pyarrow.parquet as pq

    found: dict[int, dict[int, Content]] = {}
    for path in parquet_files(table):
        for row in pq.ParquetFile(path).read().to_pylist():
            headers = tuple((h["key"], h["value"]) for h in row["headers"] or ())
            content = (_ms(row["timestamp"]), row["key"], row["value"], headers)
            of_partition = found.setdefault(row["partition"], {})
            assert row["offset"] not in of_partition, (path, row["offset"])
            of_partition[row["offset"]] = content
            assert f"day={_day(content[0])}" in str(path)
    return {partition: [rows[offset] for offset in sorted(rows)] for partition, rows in found.items()}


def wait_for_all(topic: RealisticTopic, table: pathlib.Path, what: str) -> None:
    """Until the table has the rows of the topic. It is read when it has other files than before: a job runs
    beside it in this process."""
    seen: list[pathlib.Path] = []

    def has_all() -> bool:
        before, seen[:] = [*seen], parquet_files(table)
        return seen != before and rows_of(table) == topic.rows

    wait_until(has_all, what)


def _ms(when: datetime) -> int:
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).date()


def test_the_table_has_every_committed_row_once_run_after_run(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "archive"), tmp_path / "table"
    report = archived(spark, topic, table)
    assert rows_of(table) == topic.rows
    assert (report.ok, report.figures["rows"], report.figures["epochs"]) == (True, topic.count, 1)
    assert report.figures["files"] == len(parquet_files(table))
    assert archived(spark, topic, table).figures["rows"] == 0
    # Late data among it: days that are in the table already.
    topic.add(some_messages(random.Random(1), 100, topic.partitions, days_ago=3))
    assert archived(spark, topic, table).figures["rows"] == 100
    assert rows_of(table) == topic.rows
    read = spark.read.parquet(str(table))
    assert read.count() == topic.count
    assert set(read.columns) == {
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "day")
    }
    assert not list((table / "_odradek" / "staging").glob("*"))


def test_a_stream_goes_on_until_it_is_stopped_and_the_next_run_goes_on_there(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "streamed"), tmp_path / "table"
    stop, reports = threading.Event(), list[Report]()

    def run() -> None:
        options = {"stream": True, "trigger_seconds": 0.1, "max_offsets_per_trigger": 150, "stop": stop}
        reports.append(archived(spark, topic, table, **options))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for_all(topic, table, "the table has it all")
        topic.add(some_messages(random.Random(2), 40, topic.partitions))
        wait_for_all(topic, table, "the table has what came later")
    finally:
        stop.set()
        thread.join()
    assert reports[0].figures["rows"] == topic.count
    assert reports[0].figures["epochs"] > 3
    topic.add(some_messages(random.Random(3), 40, topic.partitions))
    assert archived(spark, topic, table).figures["rows"] == 40
    assert rows_of(table) == topic.rows


def test_an_epoch_that_spark_has_not_noted_is_neither_added_nor_counted_again(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "unnoted"), tmp_path / "table"
    assert archived(spark, topic, table).figures["rows"] == topic.count
    # As a stop leaves it that comes between the last file of the table and Spark's note of the epoch.
    for note in (table / "_odradek" / "checkpoint" / "commits").glob("*0*"):
        note.unlink()
    topic.add(some_messages(random.Random(4), 30, topic.partitions))
    figures = archived(spark, topic, table).figures
    assert (figures["rows"], figures["epochs"]) == (30, 1)
    assert rows_of(table) == topic.rows


def test_compaction_leaves_the_same_rows_to_a_reader_at_any_moment(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "compacted"), tmp_path / "table"
    archived(spark, topic, table)
    for seed in range(3):
        topic.add(some_messages(random.Random(seed), 60, topic.partitions, seed))
        archived(spark, topic, table)
    before = parquet_files(table)
    # The large value's file stays as it is, under a second name for a moment.
    rules = SizeRules(small_bytes=500_000, files_min=3)
    over, seen, gone = threading.Event(), list[dict[int, list[Content]]](), list[str]()

    def read() -> None:
        while not over.is_set():
            try:
                seen.append(rows_of(table))
            except FileNotFoundError as error:
                gone.append(str(error))  # listed before the exchange and opened behind it: no wrong rows

    reader = threading.Thread(target=read)
    reader.start()
    try:
        report = archived(spark, topic, table, compact=True, size_rules=rules)
    finally:
        over.set()
        reader.join()
    after = parquet_files(table)
    assert report.figures["small files merged"] > len(before) - len(after) > 5
    assert rows_of(table) == topic.rows
    assert len(seen) > len(gone)
    assert all(rows == topic.rows for rows in seen)
    assert not list((table / "_odradek" / "compaction").glob("*"))
    topic.add(some_messages(random.Random(9), 60, topic.partitions))
    archived(spark, topic, table)
    assert rows_of(table) == topic.rows


def test_json_values_are_columns_and_what_is_none_keeps_its_bytes(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    values = [b'{"id": 1, "name": "a", "more": 1}', b'{"id": 2}', b'{"id": "x"}', b"{", b"", None, b"\xff"]
    topic = RealisticTopic(tables, tables.new_topic("json"), 1)
    topic.add([Message(value, b"k", timestamp_ms=START_MS) for value in values])
    options = {"value": "json", "schema": "id BIGINT, name STRING"}
    archived(spark, topic, tmp_path / "table", **options)
    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [row.value and tuple(row.value) for row in rows] == [(1, "a"), (2, None), *[None] * 5]
    undecoded = [None if row.undecoded is None else bytes(row.undecoded) for row in rows]
    assert undecoded == [None, None, *values[2:]]
    with pytest.raises(JobError, match="was made with value 'json', and not 'binary'"):
        archived(spark, topic, tmp_path / "table")


def test_what_is_wrong_is_told_in_one_sentence(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = RealisticTopic(tables, tables.new_topic("wrong", 1, range(5)), 1)
    table = tmp_path / "table"

    def refusal(**options: Any) -> str:
        arguments = {
            "bootstrap_servers": tables.client.bootstrap,
            "topics": [topic.name],
            "table": str(table),
        }
        with pytest.raises(JobError) as refused:
            archive.run(spark, **{**arguments, **options})
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert f"topic nowhere does not exist at {tables.client.bootstrap}" in refusal(topics=["nowhere"])
    assert "has a name like nowhere.*" in refusal(topics=[], topic_pattern="nowhere.*")
    assert "give topics by name, or one pattern" in refusal(topics=[])
    assert "needs a schema" in refusal(value="json")
    assert "is none in Spark's DDL or JSON form" in refusal(value="json", schema="id BIGINTEGER")
    assert not table.exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    assert "has files that no archive wrote (mine.txt)" in refusal(table=str(tmp_path / "other"))
    archived(spark, topic, table)
    checkpoint = table / "_odradek" / "checkpoint"
    checkpoint.rename(tmp_path / "elsewhere")
    assert f"the checkpoint {checkpoint} is gone" in refusal()
    (tmp_path / "elsewhere").rename(checkpoint)
    assert archived(spark, topic, table).figures["rows"] == 0


def test_records_that_are_gone_before_they_were_archived_are_told(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    topic = RealisticTopic(tables, tables.new_topic("gone", 1, range(10)), 1)
    archived(spark, topic, tmp_path / "table")
    tables.produce(topic.name, range(10, 30))
    with KafkaAdminClient(bootstrap_servers=tables.client.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic.name, 0): 20})
    with pytest.raises(JobError, match=f"archive of topic {topic.name} into .* failed: ") as refused:
        archived(spark, topic, tmp_path / "table")
    assert "\n" not in str(refused.value)
    assert archived(spark, topic, tmp_path / "table", fail_on_data_loss=False).figures["rows"] == 10
    assert json.loads((tmp_path / "table" / "_odradek" / "archive.json").read_text())["topics"] == [
        topic.name
    ]
