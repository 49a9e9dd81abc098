"""`spark.read` and `spark.write` of `format("kafka")`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compat_tests.clients import Message
from compat_tests.spark.topics import KafkaTables, values
from compat_tests.stories import START_MS, topic_name

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def per_partition(topic: str, offsets: dict[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


@pytest.mark.smoke
def test_keys_values_and_nulls_are_read_as_they_were_written(tables: KafkaTables) -> None:
    topic = tables.new_topic("nulls", 2)
    written = [
        (b"key", b"value", 0),
        (None, b"no key", 0),
        (b"", b"", 0),
        (b"tombstone", None, 0),
        (bytes(range(256)), bytes(range(255, -1, -1)), 1),
    ]
    tables.write(tables.rows(written, "key binary, value binary, partition int").coalesce(1), topic)
    read = tables.read(topic).orderBy("partition", "offset").collect()
    assert [(r.key and bytes(r.key), r.value and bytes(r.value), r.partition) for r in read] == [
        (key if key != b"" else r.key, value if value != b"" else r.value, partition)
        for (key, value, partition), r in zip(written, read, strict=True)
    ]
    assert [(row.topic, row.offset, row.timestampType) for row in read] == [
        (topic, offset, 0) for offset in (0, 1, 2, 3, 0)
    ]
    assert (bytes(read[2].key), bytes(read[2].value)) == (b"", b"")
    assert (read[1].key, read[3].value) == (None, None)
    by_another_client = tables.client.read(topic, {0: 0, 1: 0}, len(written))
    found = [(r.key, r.value, r.partition) for r in sorted(by_another_client, key=lambda r: r.partition)]
    assert found == written


def test_headers_come_back_in_order_and_only_when_asked_for(tables: KafkaTables) -> None:
    topic = tables.new_topic("headers")
    headers = [("a", b"1"), ("empty", b""), ("a", b"2"), ("none", None)]
    tables.write(tables.rows([(b"k", b"with", 0, headers), (b"k", b"without", 0, None)]).coalesce(1), topic)
    with_headers = tables.read(topic, includeHeaders="true").orderBy("offset").collect()
    found = [(h.key, None if h.value is None else bytes(h.value)) for h in with_headers[0].headers]
    assert found == headers
    assert with_headers[1].headers is None
    assert "headers" not in tables.read(topic).columns
    assert tables.client.read(topic, {0: 0}, 1)[0].headers == tuple(headers)


def test_each_row_goes_to_the_topic_it_names(tables: KafkaTables) -> None:
    prefix = topic_name("named")
    topics = [f"{prefix}-{name}" for name in ("one", "two")]
    for topic in topics:
        tables.client.create_topic(topic, 1)
    rows = [(topics[n % 2], b"%d" % n) for n in range(40)]
    tables.write(tables.rows(rows, "topic string, value binary"))
    assert values(tables.read(topics[0])) == list(range(0, 40, 2))
    assert values(tables.read(",".join(topics))) == list(range(40))
    assert values(tables.read("", subscribePattern=f"{prefix}-.*")) == list(range(40))
    assert values(tables.read("", assign=json.dumps({topics[1]: [0]}))) == list(range(1, 40, 2))


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_written_and_read(tables: KafkaTables, codec: str) -> None:
    topic = tables.new_topic("codec")
    rows = tables.spark.range(500).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")
    tables.write(rows, topic, **{"kafka.compression.type": codec})
    tables.client.produce(topic, [Message(b"%d" % n) for n in range(500, 600)], codec)
    assert values(tables.read(topic)) == list(range(600))


# Twenty values, dealt out: partition 0 has the even ones, partition 1 the odd ones, at offsets 0 to 9.
OFFSETS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, list(range(20))),
    ({"startingOffsets": "earliest", "endingOffsets": "latest"}, list(range(20))),
    ({"startingOffsets": {0: 4, 1: 9}}, [*range(8, 20, 2), 19]),
    ({"startingOffsets": {0: -2, 1: 10}}, list(range(0, 20, 2))),
    ({"endingOffsets": {0: 1, 1: 3}}, [0, 1, 3, 5]),
    ({"startingOffsets": {0: 2, 1: 2}, "endingOffsets": {0: -1, 1: 4}}, [*range(4, 20, 2), 5, 7]),
    ({"startingOffsets": {0: 3, 1: 3}, "endingOffsets": {0: 3, 1: 3}}, []),
]


@pytest.mark.parametrize(("options", "expected"), OFFSETS)
def test_starting_and_ending_offsets_bound_what_is_read(
    tables: KafkaTables, options: dict[str, Any], expected: list[int]
) -> None:
    topic = tables.new_topic("offsets", 2, range(20))
    texts = {
        name: per_partition(topic, value) if isinstance(value, dict) else value
        for name, value in options.items()
    }
    assert values(tables.read(topic, **texts)) == sorted(expected)


@pytest.fixture
def timed_topic(tables: KafkaTables) -> str:
    """Partition 0 has 0 to 9, one a second from START_MS on; partition 1 has 10 to 19, a minute later."""
    topic = tables.new_topic("times", 2)
    messages = [Message(b"%d" % n, timestamp_ms=START_MS + 1000 * n) for n in range(10)]
    messages += [
        Message(b"%d" % n, partition=1, timestamp_ms=START_MS + 60_000 + 1000 * n) for n in range(10, 20)
    ]
    tables.client.produce(topic, messages)
    return topic


def test_timestamps_bound_what_is_read(tables: KafkaTables, timed_topic: str) -> None:
    topic = timed_topic
    assert values(tables.read(topic, startingTimestamp=START_MS + 7000)) == list(range(7, 20))
    assert values(tables.read(topic, startingTimestamp=START_MS + 6001)) == list(range(7, 20))
    # A partition without a record as late as that is read to its end.
    assert values(tables.read(topic, endingTimestamp=START_MS + 60_000 + 13_000)) == list(range(13))
    starts = per_partition(topic, {0: START_MS + 8000, 1: START_MS + 60_000 + 18_000})
    assert values(tables.read(topic, startingOffsetsByTimestamp=starts)) == [8, 9, 18, 19]
    ends = per_partition(topic, {0: START_MS + 2000, 1: START_MS + 60_000 + 11_000})
    assert values(tables.read(topic, endingOffsetsByTimestamp=ends)) == [0, 1, 10]
    both = tables.read(topic, startingOffsetsByTimestamp=starts, endingOffsets="latest")
    rows = both.selectExpr("unix_millis(timestamp) AS at", "CAST(value AS STRING) AS value").collect()
    assert sorted((int(row.value), row.at - START_MS) for row in rows) == [
        (8, 8000),
        (9, 9000),
        (18, 78_000),
        (19, 79_000),
    ]


def test_a_start_after_the_last_record_is_an_error_or_the_end_as_the_reader_chooses(
    tables: KafkaTables, timed_topic: str
) -> None:
    late = START_MS + 30_000
    with pytest.raises(Exception, match="No offset matched"):
        values(tables.read(timed_topic, startingTimestamp=late))
    read = tables.read(timed_topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert values(read) == list(range(10, 20))


def test_min_partitions_split_the_work_and_change_no_row(tables: KafkaTables) -> None:
    topic = tables.new_topic("split", 2, range(1000))
    whole = tables.read(topic)
    assert whole.rdd.getNumPartitions() == 2
    split = tables.read(topic, minPartitions=9)
    assert split.rdd.getNumPartitions() >= 9
    assert values(split) == list(range(1000))


def test_many_rows_through_many_partitions_add_up(tables: KafkaTables) -> None:
    topic = tables.new_topic("many", 6)
    count = 60_000
    rows = tables.spark.range(count).selectExpr(
        "CAST(CAST(id % 97 AS STRING) AS BINARY) AS key",
        "CAST(concat(CAST(id AS STRING), repeat('.', 100)) AS BINARY) AS value",
    )
    tables.write(rows, topic)
    read = (
        tables.read(topic)
        .selectExpr(
            "CAST(CAST(key AS STRING) AS LONG) AS key",
            "CAST(rtrim('.', CAST(value AS STRING)) AS LONG) AS id",
            "partition",
            "offset",
        )
        .cache()
    )
    sums = read.selectExpr(
        "count(*) AS count", "sum(id) AS sum", "count(DISTINCT id) AS ids", "sum(id % 97 - key) AS off"
    ).first()
    assert sums is not None
    assert (sums["count"], sums["sum"], sums["ids"], sums["off"]) == (
        count,
        count * (count - 1) // 2,
        count,
        0,
    )
    places = read.groupBy("partition").agg({"offset": "max", "*": "count"}).collect()
    assert all(row["max(offset)"] + 1 == row["count(1)"] for row in places)
    assert read.select("key").distinct().count() == 97
    assert read.select("key", "partition").distinct().count() == 97  # a key stays in its partition
    read.unpersist()
