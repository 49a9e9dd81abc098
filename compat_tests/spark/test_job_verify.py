"""`verify`: what is the same is said to be, and each kind of difference is found and shown."""

from __future__ import annotations

import json
import pathlib
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients import Message
from compat_tests.spark.realistic_topic import RealisticTopic, realistic_topic, some_messages
from compat_tests.spark.test_job_archive import archived, parquet_files
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS
from odradek.commands import main as cli
from odradek.spark.jobs import JobError, verify
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verified(spark: SparkSession, topic: RealisticTopic, **options: Any) -> Report:
    return verify.run(
        spark, bootstrap_servers=topic.tables.client.bootstrap, topic=topic.name, window_rows=50, **options
    )


@pytest.fixture
def small(tables: KafkaTables) -> RealisticTopic:
    """Ten rows in each of two partitions."""
    topic = RealisticTopic(tables, tables.new_topic("small", 2), 2)
    topic.add(
        [
            Message(b"%d" % n, b"k", (("h", b"1"),), partition=n % 2, timestamp_ms=START_MS + n)
            for n in range(20)
        ]
    )
    return topic


def change(spark: SparkSession, table: pathlib.Path, **columns: str) -> None:
    """Gives the rows of the first file other values; SQL expressions of the columns."""
    path = parquet_files(table)[0]
    rows = spark.read.parquet(str(path)).selectExpr(
        *(
            f"{columns.get(name, name)} AS {name}"
            for name in ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
        )
    )
    rows.coalesce(1).write.parquet(str(table.parent / "changed"))
    (changed,) = (table.parent / "changed").glob("part-*.parquet")
    shutil.copy(changed, path)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_an_archive_is_what_the_topic_is(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "verified"), tmp_path / "table"
    archived(spark, topic, table)
    report = verified(spark, topic, table=str(table))
    assert (report.ok, report.differences) == (True, [])
    assert report.figures[f"rows in topic {topic.name}"] == topic.count
    assert report.figures["windows"] >= 6
    rows = {row[0]: row for row in report.tables[0].rows}
    for partition in range(topic.partitions):
        # partition, rows of both, missing offsets of both, checksums of both, windows that differ
        _, mine, theirs, missing, theirs_missing, crc, their_crc, different = rows[partition]
        assert mine == theirs == len(topic.rows[partition])
        # Five aborted transactions of three records and a marker each; the last lies before the large row.
        assert missing == theirs_missing == 20
        assert (crc, different) == (their_crc, 0)
    topic.add(some_messages(random.Random(5), 20, topic.partitions))
    late = verified(spark, topic, table=str(table))
    assert not late.ok
    assert len(late.differences) == 10
    assert f"only in topic {topic.name}" in late.differences[0]
    lagging = verified(spark, topic, table=str(table), allow_lag=True)
    assert lagging.ok
    assert lagging.figures["offsets that the table has not reached"] == 20


CHANGES = {
    "value": ("CASE WHEN offset = 3 THEN X'58' ELSE value END", "offset 3: value is '"),
    "key": ("CASE WHEN offset = 4 THEN CAST(NULL AS BINARY) ELSE key END", "offset 4: key is 'k' in topic"),
    "headers": ("CASE WHEN offset = 5 THEN NULL ELSE headers END", "offset 5: headers is [h: '1'] in topic"),
    "timestamp": (
        "CASE WHEN offset = 6 THEN timestamp + INTERVAL 1 MILLISECOND ELSE timestamp END",
        "offset 6: timestamp is ",
    ),
}


def test_one_changed_row_is_found_and_shown(
    spark: SparkSession, small: RealisticTopic, tmp_path: pathlib.Path
) -> None:
    table = tmp_path / "table"
    archived(spark, small, table)
    change(spark, table, **{column: expression for column, (expression, _) in CHANGES.items()})
    report = verified(spark, small, table=str(table))
    assert not report.ok
    assert len(report.differences) == len(CHANGES)
    for line, (_, shown) in zip(report.differences, CHANGES.values(), strict=True):
        assert shown in line


def test_a_file_that_is_missing_or_there_twice_is_found(
    spark: SparkSession, small: RealisticTopic, tmp_path: pathlib.Path
) -> None:
    table = tmp_path / "table"
    archived(spark, small, table)
    path = parquet_files(table)[0]
    twin = path.with_name(f"copy-{path.name}")
    shutil.copy(path, twin)
    doubled = verified(spark, small, table=str(table))
    assert not doubled.ok
    assert f"1 times in topic {small.name}, 2 times in table {table}" in doubled.differences[0]
    twin.unlink()
    assert verified(spark, small, table=str(table)).ok
    path.unlink()
    missing = verified(spark, small, table=str(table))
    assert f"only in topic {small.name}: key 'k', value '" in missing.differences[0]
    assert len(missing.differences) == 10


def test_rows_that_retention_took_from_the_topic_are_no_difference(
    spark: SparkSession, small: RealisticTopic, tmp_path: pathlib.Path
) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    table = tmp_path / "table"
    archived(spark, small, table)
    with KafkaAdminClient(bootstrap_servers=small.tables.client.bootstrap) as admin:
        admin.delete_records({TopicPartition(small.name, 0): 4})
    report = verified(spark, small, table=str(table))
    assert report.ok
    assert report.figures["rows that the topic has no more"] == 4
    assert report.figures[f"rows in table {table}"] == 16


def test_two_topics_are_compared_by_position(spark: SparkSession, small: RealisticTopic) -> None:
    tables = small.tables
    copy = RealisticTopic(tables, tables.new_topic("copy", 2), 2)
    rows = [
        Message(value, key, headers, partition, ms)
        for partition, contents in small.rows.items()
        for ms, key, value, headers in contents
    ]
    copy.add(rows[:5])
    copy.abort(2)
    copy.add(rows[5:])
    report = verified(spark, small, other_topic=copy.name)
    assert report.ok, report.text()
    turned = RealisticTopic(tables, tables.new_topic("turned", 2), 2)
    turned.add([*rows[:3], rows[4], rows[3], *rows[5:]])
    report = verified(spark, small, other_topic=turned.name)
    assert [line.partition(": ")[0] for line in report.differences] == [
        "partition 0, position 3",
        "partition 0, position 4",
    ]
    one = RealisticTopic(tables, tables.new_topic("one", 1), 1)
    with pytest.raises(JobError, match=r"2 partitions and topic .* 1: they cannot be compared"):
        verified(spark, small, other_topic=one.name)


def test_the_command_writes_a_page_and_ends_with_status_1_for_differences(
    spark: SparkSession, small: RealisticTopic, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, page = tmp_path / "table", tmp_path / "page.html"
    servers = ["-b", small.tables.client.bootstrap, "--topic", small.name]

    def odradek(*arguments: str) -> int:
        return cli.main(["spark", *arguments[:1], *servers, "--table", str(table), *arguments[1:]])

    assert odradek("archive", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["figures"]["rows"] == 20
    assert odradek("verify") == 0
    assert "have the same 20 rows" in capsys.readouterr().out
    change(spark, table, value="X'58'")
    assert odradek("verify", "--output", "html", "--report", str(page)) == 1
    assert "differ (report: " in capsys.readouterr().out
    assert "First differences" in page.read_text()
    assert "<svg" in page.read_text()
    assert cli.main(["spark", "verify", *servers]) == 1
    assert "there is nothing to compare with" in capsys.readouterr().err
    assert cli.main(["spark", "archive", *servers[:2], "--topic", "none", "--table", str(table)]) == 1
    assert capsys.readouterr().err.startswith("odradek: topic none does not exist at ")
