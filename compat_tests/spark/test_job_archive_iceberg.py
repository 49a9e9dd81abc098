"""`archive` into tables of Iceberg: what is in them, for whoever reads them, whatever came in between."""

from __future__ import annotations

import pathlib
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients import Message, wait_until
from compat_tests.spark.orders import AVRO_SCHEMA, avro
from compat_tests.spark.realistic_topic import Content, RealisticTopic, realistic_topic, some_messages
from compat_tests.spark.test_job_replay import same
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS, topic_name
from odradek.spark.jobs import JobError, archive, replay, verify
from odradek.spark.jobs.compaction import SizeRules
from odradek.spark.jobs.iceberg import EPOCH
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ICEBERG = {"table_format": "iceberg"}


def new_name(story: str) -> str:
    """Of a table that is not there."""
    return "lake.shop." + topic_name(story).replace("-", "_")


def archived(spark: SparkSession, topic: RealisticTopic, table: str, **options: Any) -> Report:
    arguments = {"bootstrap_servers": topic.tables.client.bootstrap, "topics": [topic.name], **ICEBERG}
    return archive.run(spark, table=table, **{**arguments, **options})


def rows_of(spark: SparkSession, table: str) -> dict[int, list[Content]]:
    """Sorted by offset; a doubled offset fails."""
    found: dict[int, dict[int, Content]] = {}
    # A session of its own: catalogs remember for a while what a table was.
    rows = spark.newSession().table(table).selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    for row in rows:
        headers = tuple((h.key, _bytes(h.value)) for h in row.headers or ())
        of_partition = found.setdefault(row.partition, {})
        assert row.offset not in of_partition, row.offset
        of_partition[row.offset] = (row.ms, _bytes(row.key), _bytes(row.value), headers)
    return {partition: [rows[offset] for offset in sorted(rows)] for partition, rows in found.items()}


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def folder_of(spark: SparkSession, table: str) -> pathlib.Path:
    _, namespace, name = table.split(".")
    return pathlib.Path(spark.conf.get("spark.sql.catalog.lake.warehouse"), namespace, name)


def forget_last_commit(spark: SparkSession, table: str) -> None:
    """As if the job had been killed between Iceberg's commit and Spark's."""
    (commits,) = folder_of(spark, table).glob("_odradek/*/checkpoint/commits")
    last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    last.unlink()
    commits.joinpath(f".{last.name}.crc").unlink(missing_ok=True)


def java_table(spark: SparkSession, table: str) -> Any:
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark.newSession()._jsparkSession, table
    )


def test_the_table_has_every_committed_row_once_run_after_run(
    spark: SparkSession, tables: KafkaTables
) -> None:
    topic, table = realistic_topic(tables, "iceberg"), new_name("iceberg")
    report = archived(spark, topic, table)
    assert rows_of(spark, table) == topic.rows
    figures = report.figures
    assert (figures["rows"], figures["epochs"]) == (topic.count, 1)
    assert figures["files"] == spark.table(f"{table}.files").count() > 3
    # Late data among it: days that are in the table already.
    topic.add(some_messages(random.Random(1), 100, topic.partitions, days_ago=3))
    assert archived(spark, topic, table).figures["rows"] == 100
    forget_last_commit(spark, table)
    topic.add(some_messages(random.Random(2), 20, topic.partitions))
    # Also what is new since the epoch that it finds there.
    assert archived(spark, topic, table).figures["rows"] == 20
    assert rows_of(spark, table) == topic.rows


@pytest.mark.nightly
def test_an_epoch_is_found_again_when_its_snapshot_was_expired(
    spark: SparkSession, tables: KafkaTables
) -> None:
    topic, table = realistic_topic(tables, "expired"), new_name("expired")
    archived(spark, topic, table)
    rules = SizeRules(files_min=2)
    topic.add(some_messages(random.Random(1), 100, topic.partitions))
    archived(spark, topic, table, compact=True, size_rules=rules)
    there = java_table(spark, table)
    there.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    assert EPOCH not in there.currentSnapshot().summary()
    assert there.snapshot(there.currentSnapshot().parentId()) is None
    forget_last_commit(spark, table)
    assert archived(spark, topic, table).figures["rows"] == 0
    assert rows_of(spark, table) == topic.rows
    # Nor is what the job keeps taken for files that nobody needs.
    actions = spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    orphans = actions.deleteOrphanFiles(there).olderThan(2**62).execute().orphanFileLocations()
    assert not [path for path in orphans.iterator() if "_odradek" in path]
    # A first epoch that is new is none of these.
    there.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    topic.add(some_messages(random.Random(2), 50, topic.partitions))
    assert archived(spark, topic, table).figures["rows"] == 50
    assert rows_of(spark, table) == topic.rows


@pytest.mark.nightly
def test_a_reader_sees_whole_epochs_while_small_files_are_merged(
    spark: SparkSession, tables: KafkaTables
) -> None:
    topic, table = realistic_topic(tables, "merged"), new_name("merged")
    archived(spark, topic, table)
    counts, over = list[int](), threading.Event()

    def read() -> None:
        while not over.is_set():
            counts.append(sum(map(len, rows_of(spark, table).values())))

    reader = threading.Thread(target=read)
    reader.start()
    wanted = {topic.count}
    try:
        for seed in range(3):
            topic.add(some_messages(random.Random(seed), 60, topic.partitions, seed))
            wanted.add(topic.count)
            report = archived(spark, topic, table, compact=True, size_rules=SizeRules(files_min=2))
            assert report.figures["small files merged"] >= 2
    finally:
        over.set()
        reader.join()
    assert rows_of(spark, table) == topic.rows
    assert counts
    assert set(counts) <= wanted
    bootstrap = tables.client.bootstrap
    assert verify.run(spark, bootstrap_servers=bootstrap, topic=topic.name, table=table, **ICEBERG).ok


@pytest.mark.nightly
def test_decoded_values_of_a_stream_and_back(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = RealisticTopic(tables, tables.new_topic("decoded", 2), 2), new_name("decoded")
    orders = [{"id": n, "name": None, "address": None, "counts": [n], "prices": {}} for n in range(40)]
    messages = [Message(avro(one), partition=one["id"] % 2, timestamp_ms=START_MS) for one in orders]
    topic.add([*messages, Message(b"x", timestamp_ms=START_MS)])
    stop, reports = threading.Event(), list[Report]()
    options = {"value": "avro", "schema": AVRO_SCHEMA, "keep_raw": True, "checkpoint": str(tmp_path / "kept")}

    def run() -> None:
        stream = {"stream": True, "trigger_seconds": 0.1, "max_offsets_per_trigger": 10, "stop": stop}
        reports.append(archived(spark, topic, table, **options, **stream))

    def has_all() -> bool:
        catalog = spark.newSession().catalog
        return catalog.tableExists(table) and spark.newSession().table(table).count() == topic.count

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(has_all, "the table has it all", seconds=120)
    finally:
        stop.set()
        thread.join()
    assert reports[0].figures["epochs"] >= 4
    assert reports[0].figures["values that did not decode"] == 1
    assert not list(folder_of(spark, table).glob("_odradek"))
    found = spark.newSession().table(table)
    ids = found.where("value IS NOT NULL").selectExpr("value.id", "value.counts[0] AS n").orderBy("id")
    assert [tuple(row) for row in ids.collect()] == [(n, n) for n in range(40)]
    to = tables.new_topic("target", 2)
    bootstrap = tables.client.bootstrap
    replay.run(spark, bootstrap_servers=bootstrap, table=table, topic=topic.name, to_topic=to, **ICEBERG)
    assert same(spark, topic, to).ok


@pytest.mark.nightly
def test_a_table_that_was_there_keeps_its_layout_and_one_that_is_made_again_begins_anew(
    spark: SparkSession, tables: KafkaTables
) -> None:
    topic = RealisticTopic(tables, tables.new_topic("layout"), 1)
    topic.add([Message(b"%d" % n, timestamp_ms=START_MS) for n in range(10)])
    table, session = new_name("layout"), spark.newSession()
    made = (
        f"CREATE TABLE {table} (key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
        "timestamp TIMESTAMP, timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>) "
        "USING iceberg PARTITIONED BY (bucket(4, offset))"
    )
    session.sql(made)
    archived(spark, topic, table)
    assert rows_of(spark, table) == topic.rows
    assert spark.newSession().table(f"{table}.partitions").count() > 1
    for codec in ("none", "gzip", "lz4", "zstd"):
        topic.add([Message(codec.encode(), timestamp_ms=START_MS)])
        archived(spark, topic, table, compression=codec)
    assert rows_of(spark, table) == topic.rows
    session.sql(f"DROP TABLE {table}")
    assert archived(spark, topic, table).figures["rows"] == topic.count
    assert rows_of(spark, table) == topic.rows


@pytest.mark.nightly
def test_what_is_wrong_is_told_in_one_sentence(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = RealisticTopic(tables, tables.new_topic("wrong"), 1)
    topic.add([Message(b"1", timestamp_ms=START_MS)])
    session = spark.newSession()

    def refusal(table: str, **options: Any) -> str:
        with pytest.raises(JobError) as refused:
            archived(spark, topic, table, **options)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    told = refusal("pond.shop.orders")
    assert "the Iceberg table pond.shop.orders cannot be opened or made" in told
    assert "--conf spark.sql.catalog.CATALOG=org.apache.iceberg.spark.SparkCatalog" in told
    assert "cannot be opened or made" in refusal(str(tmp_path / "table"))
    mine = new_name("mine")
    session.sql(f"CREATE TABLE {mine} USING iceberg AS SELECT 1 AS one")
    assert f"{mine} has files that no archive wrote (snapshot " in refusal(mine)
    bootstrap = tables.client.bootstrap
    with pytest.raises(JobError, match="is not a table of odradek spark archive: it has no column key"):
        verify.run(spark, bootstrap_servers=bootstrap, topic=topic.name, table=mine, **ICEBERG)
    with pytest.raises(JobError, match="cannot be read: "):
        verify.run(spark, bootstrap_servers=bootstrap, topic=topic.name, table=new_name("no"), **ICEBERG)
    table = new_name("right")
    archived(spark, topic, table)
    assert "has files that no archive wrote" in refusal(table, checkpoint=str(tmp_path / "elsewhere"))
    (checkpoint,) = folder_of(spark, table).glob("_odradek/*/checkpoint")
    checkpoint.rename(tmp_path / "moved")
    assert f"the checkpoint {checkpoint} is gone" in refusal(table)
    decoded = new_name("decoded")
    archived(spark, topic, decoded, value="json", schema="id BIGINT")
    with pytest.raises(JobError, match="their bytes are not there"):
        verify.run(spark, bootstrap_servers=bootstrap, topic=topic.name, table=decoded, **ICEBERG)
