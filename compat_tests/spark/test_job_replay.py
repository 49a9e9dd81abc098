"""`replay`: archive, replay, verify gives the same log, once."""

from __future__ import annotations

import pathlib
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients import Message
from compat_tests.spark.realistic_topic import Content, RealisticTopic, realistic_topic, some_messages
from compat_tests.spark.test_job_archive import archived
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS
from odradek.spark.jobs import JobError, replay, verify
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replayed(
    spark: SparkSession, topic: RealisticTopic, table: pathlib.Path, to: str, **options: Any
) -> Report:
    servers = topic.tables.client.bootstrap
    return replay.run(
        spark, bootstrap_servers=servers, table=str(table), topic=topic.name, to_topic=to, **options
    )


def same(spark: SparkSession, topic: RealisticTopic, to: str) -> Report:
    servers = topic.tables.client.bootstrap
    return verify.run(spark, bootstrap_servers=servers, topic=topic.name, other_topic=to, window_rows=50)


def contents(tables: KafkaTables, topic: RealisticTopic, name: str) -> dict[int, list[Content]]:
    """As another client reads the topic."""
    read = tables.client.read(name, dict.fromkeys(range(topic.partitions), 0), topic.count)
    rows: dict[int, list[Content]] = {}
    for record in sorted(read, key=lambda r: (r.partition, r.offset)):
        rows.setdefault(record.partition, []).append((record.timestamp_ms, *record.content()))
    return rows


def test_archive_replay_verify_gives_the_same_log_once(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "replayed"), tmp_path / "table"
    archived(spark, topic, table)
    to = tables.new_topic("target", topic.partitions)
    report = replayed(spark, topic, table, to, compression="zstd")
    assert (report.figures["rows"], report.figures["rows that were there already"]) == (topic.count, 0)
    assert contents(tables, topic, to) == topic.rows
    assert same(spark, topic, to).ok
    # Again: nothing. With what came later: only that.
    again = replayed(spark, topic, table, to)
    assert (again.figures["rows"], again.figures["rows that were there already"]) == (0, topic.count)
    topic.add(some_messages(random.Random(4), 30, topic.partitions))
    archived(spark, topic, table)
    assert replayed(spark, topic, table, to).figures["rows"] == 30
    assert same(spark, topic, to).ok
    # An id of its own is a replay of its own.
    assert replayed(spark, topic, table, to, replay_id=to).figures["rows"] == topic.count
    assert not same(spark, topic, to).ok


def test_the_rate_is_bounded(spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = RealisticTopic(tables, tables.new_topic("paced", 2), 2)
    topic.add([Message(b"%d" % n, partition=n % 2, timestamp_ms=START_MS + n) for n in range(60)])
    archived(spark, topic, tmp_path / "table")
    to = tables.new_topic("target", 2)
    began = time.monotonic()
    assert replayed(spark, topic, tmp_path / "table", to, rows_per_second=20.0).figures["rows"] == 60
    # 60 rows at 20 a second; a second is what the last step of each partition may be early.
    assert time.monotonic() - began > 2
    assert same(spark, topic, to).ok


def test_what_is_wrong_is_told_in_one_sentence(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    from kafka import KafkaAdminClient

    topic, table = RealisticTopic(tables, tables.new_topic("wrong", 2), 2), tmp_path / "table"
    topic.add([Message(b"%d" % n, partition=n % 2, timestamp_ms=START_MS + n) for n in range(4)])
    archived(spark, topic, table)

    def refusal(to: str, **options: Any) -> str:
        with pytest.raises(JobError) as refused:
            replayed(spark, topic, options.pop("table", table), to, **options)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert "topic nowhere does not exist" in refusal("nowhere")
    narrow = tables.new_topic("narrow", 1)
    assert f"topic {narrow} has 1 partitions, and the table has rows of partition 1" in refusal(narrow)
    (tmp_path / "empty").mkdir()
    assert "is not a table of odradek spark archive" in refusal(narrow, table=tmp_path / "empty")
    assert "0 rows a second are none" in refusal(narrow, rows_per_second=0)
    assert "compression 'lzma' is none" in refusal(narrow, compression="lzma")
    with KafkaAdminClient(bootstrap_servers=tables.client.bootstrap) as admin:
        stamped = f"stamped-{narrow}"
        config = {"num_partitions": 2, "replication_factor": 1}
        config["configs"] = {"message.timestamp.type": "LogAppendTime"}  # type: ignore[assignment]
        admin.create_topics({stamped: config}, wait_for_metadata=True)
    assert "would give all rows new timestamps: set it to CreateTime" in refusal(stamped)
