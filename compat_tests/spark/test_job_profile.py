"""`profile`: figures that were counted another way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.spark.realistic_topic import CODECS, LARGE_BYTES, realistic_topic
from compat_tests.spark.topics import KafkaTables
from odradek.spark.jobs import JobError, profile
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table(report: Report, title: str) -> list[dict[str, Any]]:
    (found,) = (one for one in report.tables if one.title.startswith(title))
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_the_figures_are_those_of_what_was_written(spark: SparkSession, tables: KafkaTables) -> None:
    topic = realistic_topic(tables, "profiled")
    report = profile.run(spark, bootstrap_servers=tables.client.bootstrap, topic=topic.name)
    rows = [row for of_partition in topic.rows.values() for row in of_partition]
    keys = Counter(key for _, key, _, _ in rows if key is not None)
    sizes = [len(key or b"") + len(value or b"") for _, key, value, _ in rows]
    assert {name: report.figures[name] for name in list(report.figures)[:2]} == {
        "rows": topic.count,
        "bytes of keys and values": sum(sizes),
    }
    assert report.figures["keys"] == len(keys)
    assert report.figures["keys with more than one row"] == sum(number > 1 for number in keys.values())
    assert report.figures["rows without a key"] == topic.count - keys.total()
    assert report.figures["rows without a value"] == sum(value is None for _, _, value, _ in rows)
    assert report.figures["rows with headers"] == sum(bool(headers) for *_, headers in rows)
    for row in table(report, "partitions"):
        mine = topic.rows[row["partition"]]
        # Five aborted transactions of three records, and the marker of each.
        assert (row["rows"], row["offsets without a row"], row["end"]) == (len(mine), 20, len(mine) + 20)
    top = table(report, "keys with most rows")
    assert top[0]["rows"] == max(keys.values())
    assert [row["rows"] for row in top] == sorted(keys.values(), reverse=True)[: len(top)]
    assert table(report, "sizes")[1]["100% have at most"] == LARGE_BYTES
    codecs = {row["codec"]: row for row in table(report, "codecs")}
    assert set(codecs) == set(CODECS)
    for codec in CODECS[1:]:
        assert codecs[codec]["rows"] == 120
        assert codecs[codec]["bytes unpacked"] > codecs[codec]["bytes in the log"]
    # The plain ones, the large ones, and what was aborted.
    assert codecs["none"]["rows"] == 120 + topic.partitions + 5 * 3 * topic.partitions
    assert codecs["none"]["ratio"] == 1
    sample = {row["codec"]: row for row in table(report, "a sample")}
    assert sample["zstd"]["packed"] < sample["none"]["packed"] == sample["none"]["bytes unpacked"]
    producers = table(report, "producers")
    assert sum(row["ends of transactions"] for row in producers) == 5 * topic.partitions
    assert sum(row["of them in transactions"] for row in producers) == 5 * 3 * topic.partitions
    rates = report.plots[0].series["rows"]
    slot_seconds = (rates[1][0] - rates[0][0]) / 1000
    assert sum(rate for _, rate in rates) * slot_seconds == pytest.approx(topic.count)
    assert report.html().count("<svg") == 3


def test_a_topic_without_rows_is_no_error_and_one_that_is_not_there_is(
    spark: SparkSession, tables: KafkaTables
) -> None:
    servers, topic = tables.client.bootstrap, tables.new_topic("empty", 2)
    report = profile.run(spark, bootstrap_servers=servers, topic=topic)
    assert (report.figures["rows"], report.figures["first timestamp"]) == (0, None)
    assert "Nothing to plot" in report.html()
    with pytest.raises(JobError, match="topic nowhere does not exist"):
        profile.run(spark, bootstrap_servers=servers, topic="nowhere")
