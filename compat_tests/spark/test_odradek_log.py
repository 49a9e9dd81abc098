"""`spark.read.format("odradek-log")`: the segment files of Odradek and of Apache Kafka, with no broker
running.
"""

from __future__ import annotations

import inspect
import json
import pathlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import odradek
import odradek.spark
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.spark.odradek_tables import OdradekTables, last_line
from compat_tests.test_import import (
    START_MS,
    Content,
    create,
    producing,
    read_all,
    write_codecs,
    write_transactions,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

TOPICS = {"codecs": 2, "transactions": 1}
RECORDS = 5 * 60 + 6 * 9


@dataclass
class Left:
    """A data directory whose broker has stopped, and what a consumer had got from it."""

    data_dir: pathlib.Path
    records: dict[str, list[Content]]


def filled(bootstrap: str, segment_option: str) -> dict[str, list[Content]]:
    write_codecs(bootstrap, segment_option)
    write_transactions(bootstrap)
    return {topic: read_all(bootstrap, topic, partitions) for topic, partitions in TOPICS.items()}


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Of Odradek and of Apache Kafka 4.3: every codec, many segments, transactions."""
    data_dir = tmp_path_factory.mktemp("left") / "data"
    options = {"log.index.interval.bytes": "300"}
    if request.param == "odradek":
        with odradek.Broker(data_dir=data_dir, options=options) as broker:
            records = filled(broker.bootstrap_servers, "internal_segment_bytes")
    else:
        with reference.Kafka(properties=options, host=shared_host()) as kafka:
            records = filled(kafka.bootstrap_servers, "internal_segment_bytes")
            kafka.stop()
            shutil.copytree(kafka.data_dir, data_dir)
    return Left(data_dir, records)


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    odradek.spark.register(spark)


@pytest.fixture
def tables(spark: SparkSession, client: KafkaPythonClient) -> OdradekTables:
    return OdradekTables(spark, client)


def read(spark: SparkSession, path: Any, **options: str) -> DataFrame:
    return spark.read.format("odradek-log").options(**options).load(str(path))


def content(row: Row) -> Content:
    """A row as `read_all` gives a record: a type of 1 is that of CreateTime in librdkafka."""
    headers = tuple((one.key, None if one.value is None else bytes(one.value)) for one in row.headers or ())
    milliseconds = round(row.timestamp.timestamp() * 1000)
    return (
        row.partition,
        row.offset,
        (row.timestampType + 1, milliseconds),
        None if row.key is None else bytes(row.key),
        None if row.value is None else bytes(row.value),
        headers,
    )


def in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy("topic", "partition", "offset").collect()


def test_rows_are_the_records_that_a_consumer_got(spark: SparkSession, left: Left) -> None:
    frame = read(spark, left.data_dir, includeHeaders="true")
    rows = in_order(frame)
    assert len(rows) == RECORDS
    for topic, records in left.records.items():
        assert [content(row) for row in rows if row.topic == topic] == records
    segments = len(list(left.data_dir.glob("codecs-*/*.log"))) + len(list(left.data_dir.glob("tr*-0/*.log")))
    assert segments > 4
    assert frame.rdd.getNumPartitions() == segments


def test_tasks_share_what_is_larger_than_one_may_read(spark: SparkSession, left: Left) -> None:
    from pyspark.sql.functions import spark_partition_id

    logs = [path.stat().st_size for path in left.data_dir.glob("codecs-*/*.log")]
    least = sum(-(-size // 2000) for size in logs)
    assert least > len(logs)
    codecs = read(
        spark, left.data_dir, subscribe="codecs", includeHeaders="true", maxBytesPerPartition="2000"
    )
    assert codecs.rdd.getNumPartitions() >= least
    rows = codecs.select("*", spark_partition_id().alias("task")).collect()
    assert len({row.task for row in rows}) == codecs.rdd.getNumPartitions()
    assert sorted(map(content, rows)) == sorted(left.records["codecs"])


def test_the_batch_tells_of_its_codec_its_producer_and_its_transaction(
    spark: SparkSession, left: Left
) -> None:
    codecs = read(spark, left.data_dir, subscribe="codecs").groupBy("codec").count().collect()
    assert {row.codec: row["count"] for row in codecs} == dict.fromkeys(
        ("none", "gzip", "snappy", "lz4", "zstd"), 60
    )
    rows = in_order(read(spark, left.data_dir, subscribe="transactions"))
    states = {bytes(row.value).decode(): row.transactionState for row in rows}
    for number in range(6):
        state = "aborted" if number % 3 == 2 else "committed"
        assert {states[f"{number}-{n}"] for n in range(8)} == {state}
    assert states["plain"] is None
    assert all((row.producerId is None) == (bytes(row.value) == b"plain") for row in rows)


@pytest.mark.parametrize("cuts", [{}, {"maxBytesPerPartition": "400"}])
def test_a_reader_of_what_is_committed_sees_nothing_aborted(
    spark: SparkSession, left: Left, cuts: dict[str, str]
) -> None:
    committed = {"kafka.isolation.level": "read_committed"}
    frame = read(spark, left.data_dir, subscribe="transactions", **committed, **cuts)
    values = [bytes(row.value).decode() for row in in_order(frame)]
    assert values == [
        value
        for number in (0, 1, 2, 3, 4, 5)
        for value in [f"{number}-{n}" for n in range(8)] + ["plain"]
        if number % 3 != 2 or value == "plain"
    ]


def test_columns_and_ranges_are_options(spark: SparkSession, left: Left) -> None:
    records = left.records["codecs"]
    per_partition = json.dumps({"codecs": {"0": 20, "1": 70}})
    frame = read(
        spark, left.data_dir, subscribe="codecs", columns="offset,partition", startingOffsets=per_partition
    )
    assert frame.columns == ["offset", "partition"]
    found = sorted((row.partition, row.offset) for row in frame.collect())
    assert found == [(p, offset) for p, offset, *_ in records if offset >= (20, 70)[p]]
    times = {"startingTimestamp": str(START_MS + 110), "endingTimestamp": str(START_MS + 305)}
    frame = read(spark, left.data_dir, assign='{"codecs":[1]}', columns="timestamp", **times)
    found = sorted(round(row.timestamp.timestamp() * 1000) for row in frame.collect())
    assert found == [at for p, _, (_, at), *_ in records if p == 1 and START_MS + 110 <= at < START_MS + 305]
    assert (
        read(spark, left.data_dir, subscribe="codecs", startingTimestamp=str(START_MS + 10**9)).count() == 0
    )


def test_a_where_gives_the_same_rows_whoever_applies_it(spark: SparkSession, left: Left) -> None:
    wanted = [(p, offset) for p, offset, *_ in left.records["codecs"] if p == 1 and 30 <= offset < 60]
    frame = read(spark, left.data_dir, columns="topic,partition,offset")
    where = "topic = 'codecs' AND partition = 1 AND offset >= 30 AND offset < 60"
    assert sorted((row.partition, row.offset) for row in frame.where(where).collect()) == wanted


def test_a_where_becomes_the_plan_of_the_read(spark: SparkSession, left: Left) -> None:
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 1):
        with pytest.raises(Exception, match="pushFilters needs PySpark"):
            read(spark, left.data_dir, pushFilters="true").count()
        return
    records = left.records["codecs"]

    def where(condition: str) -> DataFrame:
        columns = {"columns": "topic,partition,offset,timestamp", "pushFilters": "true"}
        return read(spark, left.data_dir, **columns).where(f"topic = 'codecs' AND {condition}")

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        late = where(f"timestamp >= timestamp_millis({START_MS + 400})")
        assert 0 < late.rdd.getNumPartitions() < where("offset >= 0").rdd.getNumPartitions()
        assert late.count() == sum(at >= START_MS + 400 for _, _, (_, at), *_ in records)
        few = where("partition = 0 AND offset < 3")
        assert few.rdd.getNumPartitions() == 1
        both = where("partition = 1 AND offset < 2").union(few)
        assert sorted((row.partition, row.offset) for row in both.collect()) == [
            (p, offset) for p, offset, *_ in records if offset < 3 - p
        ]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_types_are_those_of_sparks_kafka_source(tables: OdradekTables, tmp_path: pathlib.Path) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from odradek.spark.columns import SCHEMA

    ours = read(tables.spark, tmp_path, includeHeaders="true", includeMetadata="false").schema
    # Since 4.3 PySpark wants to be told.
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    assert SCHEMA.equals(to_arrow_schema(ours, **zone))
    if tables.by_connector is not None:
        topic = tables.new_topic("types", values=[1])
        assert ours == tables.by_connector.read(topic, includeHeaders="true").schema


def test_a_log_is_read_while_its_broker_writes(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    with odradek.Broker(data_dir=tmp_path / "data") as broker:
        create(broker.bootstrap_servers, "live", 1)
        producer = producing(broker.bootstrap_servers)
        for number in range(3):
            producer.produce("live", b"%d" % number)
            assert producer.flush(30) == 0
            rows = in_order(read(spark, tmp_path / "data", subscribe="live"))
            assert [bytes(row.value) for row in rows] == [b"%d" % before for before in range(number + 1)]


@pytest.mark.parametrize(
    ("inside", "options", "sentence"),
    [
        (
            "",
            {"subscribe": "codec"},
            "subscribe names topic codec, of which path has no partition: it has cod",
        ),
        ("/no", {}, "/no cannot be read: No such file or directory"),
        ("", {"minPartitions": "8"}, "tasks are made by their bytes; remove it, or use maxBytesPerPartition"),
    ],
)
def test_a_mistake_is_the_last_line_of_the_error(
    spark: SparkSession, left: Left, inside: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE") as caught:
        read(spark, f"{left.data_dir}{inside}", **options).count()
    assert sentence in last_line(caught.value)


def test_a_stream_of_files_is_refused_in_a_sentence(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    files = spark.readStream.format("odradek-log").option("subscribe", "t").load(str(tmp_path))
    query = files.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="has no streams: files are read as they are"):
        query.start().processAllAvailable()
