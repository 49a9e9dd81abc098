"""`spark.read.format("odradek")`: rows, columns and tasks as of Spark's own connector, without a jar."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import odradek.spark
from compat_tests.clients import Message
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit import readers
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.odradek_tables import OdradekTables, last_line, numbers
from compat_tests.spark.topics import KafkaTables, values
from compat_tests.stories import START_MS, topic_name
from compat_tests.transactions.libraries.confluent import ConfluentProducer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def tables(spark: SparkSession, client: KafkaPythonClient) -> OdradekTables:
    return OdradekTables(spark, client)


def per_partition(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})


@pytest.fixture(scope="module")
def mixed(client: KafkaPythonClient) -> str:
    """Two partitions with all that records may have: nulls, headers, 1 MB, every codec, odd times."""
    topic = topic_name("mixed")
    client.create_topic(topic, 2)
    kinds = [
        Message(b"value", b"key"),
        Message(None, b"tombstone"),
        Message(b"no key"),
        Message(b"", b""),
        Message(bytes(range(256)), bytes(range(255, -1, -1)), timestamp_ms=0),
        Message(b"headers", headers=(("a", b"1"), ("", b""), ("a", b"2"), ("ü€", bytes([255])))),
        Message(b"x" * 900_000, timestamp_ms=START_MS),
    ]
    for number, codec in enumerate(CODECS):
        messages = [
            Message(m.value, m.key, m.headers, (index + number) % 2, m.timestamp_ms)
            for index, m in enumerate(kinds)
        ]
        client.produce(topic, messages, codec)
    return topic


def test_rows_columns_and_types_are_those_of_the_connector(tables: OdradekTables, mixed: str) -> None:
    rows = tables.rows_as_by_connector(mixed, includeHeaders="true")
    assert len(rows) == 7 * len(CODECS)
    assert sum(row.value is None for row in rows) == len(CODECS)
    found = [[(h.key, bytes(h.value)) for h in row.headers] for row in rows if row.headers]
    assert found == [[("a", b"1"), ("", b""), ("a", b"2"), ("ü€", b"\xff")]] * len(CODECS)
    without = tables.rows_as_by_connector(mixed)
    assert [tuple(row) for row in without] == [tuple(row)[:-1] for row in rows]


def test_columns_are_pruned_at_the_source_and_come_in_their_order(tables: OdradekTables, mixed: str) -> None:
    whole = tables.read(mixed, includeHeaders="true").select("headers", "offset", "key")
    pruned = tables.read(mixed, columns="headers,offset,KEY")
    assert pruned.schema == whole.schema
    order = ["offset", "key"]
    assert pruned.orderBy(*order).collect() == whole.orderBy(*order).collect()
    assert tables.read(mixed, columns="timestampType").distinct().collect() == [(0,)]


def test_an_empty_topic_is_an_empty_table(tables: OdradekTables) -> None:
    assert tables.rows_as_by_connector(tables.new_topic("empty", 2)) == []


# Twenty values, dealt out: partition 0 has the even ones, partition 1 the odd ones, at offsets 0 to 9.
OFFSETS: list[tuple[dict[str, tuple[int, int]], list[int]]] = [
    ({"startingOffsets": (4, 9)}, [*range(8, 20, 2), 19]),
    ({"startingOffsets": (-2, 10)}, list(range(0, 20, 2))),
    ({"startingOffsets": (2, 2), "endingOffsets": (-1, 4)}, [*range(4, 20, 2), 5, 7]),
    ({"startingOffsets": (3, 3), "endingOffsets": (3, 3)}, []),
]


@pytest.mark.parametrize(("bounds", "expected"), OFFSETS)
def test_offsets_bound_what_is_read(
    tables: OdradekTables, bounds: dict[str, tuple[int, int]], expected: list[int]
) -> None:
    topic = tables.new_topic("offsets", 2, range(20))
    options = {name: per_partition(topic, *offsets) for name, offsets in bounds.items()}
    assert numbers(tables.rows_as_by_connector(topic, **options)) == sorted(expected)


@pytest.fixture(scope="module")
def timed(client: KafkaPythonClient) -> str:
    """Partition 0 has 0 to 9, one a second from START_MS on; partition 1 has 10 to 19, a minute later."""
    topic = topic_name("times")
    client.create_topic(topic, 2)
    messages = [Message(b"%d" % n, timestamp_ms=START_MS + 1000 * n) for n in range(10)]
    messages += [
        Message(b"%d" % n, partition=1, timestamp_ms=START_MS + 60_000 + 1000 * n) for n in range(10, 20)
    ]
    client.produce(topic, messages)
    return topic


def test_times_bound_what_is_read(tables: OdradekTables, timed: str) -> None:
    minute = START_MS + 60_000
    starts = per_partition(timed, START_MS + 8000, minute + 18_000)
    ends = per_partition(timed, START_MS + 2000, minute + 11_000)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"startingTimestamp": START_MS + 6001}, list(range(7, 20))),
        # A partition without a record as late as that is read to its end.
        ({"endingTimestamp": minute + 13_000}, list(range(13))),
        ({"startingOffsetsByTimestamp": starts, "endingOffsets": "latest"}, [8, 9, 18, 19]),
        ({"endingOffsetsByTimestamp": ends}, [0, 1, 10]),
        (
            {"startingTimestamp": START_MS + 30_000, "startingOffsetsByTimestampStrategy": "latest"},
            list(range(10, 20)),
        ),
    ]
    for options, expected in cases:
        assert numbers(tables.rows_as_by_connector(timed, **options)) == expected, options


def test_topics_are_named_by_a_list_a_pattern_or_their_partitions(tables: OdradekTables) -> None:
    prefix = topic_name("named")
    names = [f"{prefix}-{name}" for name in ("one", "two")]
    for number, topic in enumerate(names):
        tables.client.create_topic(topic, 2)
        tables.produce(topic, range(number * 10, number * 10 + 10), 2)
    assert numbers(tables.rows_as_by_connector(",".join(names))) == list(range(20))
    assert numbers(tables.rows_as_by_connector("", subscribePattern=f"{prefix}-t.*")) == list(range(10, 20))
    assigned = json.dumps({names[0]: [1], names[1]: [0]})
    rows = tables.rows_as_by_connector("", assign=assigned)
    assert numbers(rows) == [*range(1, 10, 2), *range(10, 20, 2)]


def cuts(tables: KafkaTables, topic: str, **options: int) -> list[tuple[int, int, int]]:
    """(partition, first offset, last offset) of each task."""
    from pyspark.sql import functions

    tasks = (
        tables.read(topic, **options)
        .withColumn("task", functions.spark_partition_id())
        .groupBy("task", "partition")
        .agg(functions.min("offset").alias("first"), functions.max("offset").alias("last"))
    )
    return sorted((row.partition, row.first, row.last) for row in tasks.collect())


def test_tasks_are_cut_where_the_connector_cuts_them(tables: OdradekTables) -> None:
    topic = tables.new_topic("split", 3)
    sizes = (100, 5, 495)
    messages = [Message(b"v", partition=number) for number, size in enumerate(sizes) for _ in range(size)]
    tables.client.produce(topic, messages)
    cases: list[tuple[dict[str, int], int]] = [({}, 3), ({"minPartitions": 9}, 9)]
    if tables.by_connector is None:
        # Spark's own connector takes that in later versions only.
        cases += [({"maxRecordsPerPartition": 70}, 11)]
    for options, count in cases:
        ours = cuts(tables, topic, **options)
        assert [sum(last - first + 1 for p, first, last in ours if p == n) for n in range(3)] == [*sizes]
        assert len(ours) == count, options
        if tables.by_connector is not None:
            assert ours == cuts(tables.by_connector, topic, **options), options


def test_what_is_decided_is_read_up_to_the_first_open_transaction(tables: OdradekTables) -> None:
    topic = tables.new_topic("decided")
    one, other = (ConfluentProducer(tables.client.bootstrap, topic_name("writer"), 600_000) for _ in range(2))

    def write(producer: ConfluentProducer, these: range) -> None:
        producer.begin()
        for number in these:
            producer.send((topic, 0), b"%d" % number)
        producer.flush()

    try:
        one.open()
        other.open()
        write(one, range(10))
        one.commit()
        write(one, range(10, 20))
        one.abort()
        assert readers.wait_until_stable(tables.client.bootstrap, [(topic, 0)], 30)
        write(other, range(20, 30))
        write(one, range(30, 40))
        one.commit()
        committed = {"kafka.isolation.level": "read_committed"}
        assert numbers(tables.rows_as_by_connector(topic, **committed)) == list(range(10))
        assert numbers(tables.rows_as_by_connector(topic)) == list(range(40))
        other.commit()
        assert readers.wait_until_stable(tables.client.bootstrap, [(topic, 0)], 30)
        expected = [*range(10), *range(20, 40)]
        assert numbers(tables.rows_as_by_connector(topic, **committed)) == expected
        assert values(tables.read(topic, **committed, minPartitions=7)) == expected
    finally:
        one.abandon()
        other.abandon()


def test_an_end_behind_that_of_the_topic_is_a_loss_or_its_end(tables: OdradekTables) -> None:
    topic = tables.new_topic("short", 1, range(10))
    ends = {"endingOffsets": per_partition(topic, 30)}
    with pytest.raises(Exception, match=f"endingOffsets wants {topic}-0 up to 30, and it ends at 10"):
        values(tables.read(topic, **ends))
    assert values(tables.read(topic, **ends, failOnDataLoss="false")) == list(range(10))


def test_what_is_gone_fails_the_query_or_is_passed_over(tables: OdradekTables) -> None:
    topic = tables.new_topic("gone", 2, range(100))
    TopicAdmin(tables.client.bootstrap).delete_records(topic, {0: 30})
    starts = {"startingOffsets": per_partition(topic, 10, 40)}
    with pytest.raises(Exception, match=f"topic {topic}, partition 0") as failed:
        values(tables.read(topic, **starts))
    assert "failOnDataLoss" in str(failed.value)
    found = tables.rows_as_by_connector(topic, **starts, failOnDataLoss="false")
    assert numbers(found) == sorted([*range(60, 100, 2), *range(81, 100, 2)])
    assert numbers(tables.rows_as_by_connector(topic)) == sorted([*range(60, 100, 2), *range(1, 100, 2)])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"startingOffset": "earliest"},
            "does not take the option startingoffset; did you mean startingOffsets?",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: it belongs to streams"),
        ({"startingOffsets": "latest"}, "startingOffsets of a batch read cannot be latest"),
        ({"startingTimestamp": "9000000000000"}, "No offset matched startingTimestamp"),
    ],
)
def test_the_last_line_of_an_error_says_what_to_change(
    tables: OdradekTables, timed: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence) as refused:
        tables.read(timed, **options).collect()
    assert sentence in last_line(refused.value)


def test_a_topic_that_does_not_exist_is_named_in_the_last_line(tables: OdradekTables) -> None:
    with pytest.raises(Exception, match="topic nowhere-to-be-found does not exist") as refused:
        tables.read("nowhere-to-be-found").collect()
    assert "topic nowhere-to-be-found does not exist" in last_line(refused.value)


def test_a_schema_of_ones_own_is_refused(tables: OdradekTables, timed: str) -> None:
    reader = tables.spark.read.schema("value string").format("odradek")
    with pytest.raises(Exception, match=r"leave schema\(...\) out"):
        tables.reading(reader, timed, {}).load().collect()


BY_ITSELF = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "512m").getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
print("rows:", spark.read.format("odradek").options(**options).load().count())
"""


@pytest.mark.nightly
def test_spark_finds_the_format_by_itself(tables: OdradekTables, timed: str, tmp_path: pathlib.Path) -> None:
    """As an installed wheel has it: `pyspark_odradek` and `odradek` in a folder of the path."""
    package = pathlib.Path(odradek.spark.__file__).parent
    (tmp_path / "pyspark_odradek").symlink_to(package / "_formats" / "odradek")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    finished = subprocess.run(
        [sys.executable, "-c", BY_ITSELF, tables.client.bootstrap, timed],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert "rows: 20" in finished.stdout, finished.stderr[-3000:]
