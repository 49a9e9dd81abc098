"""`df.write` and `df.writeStream` of `format("odradek")`: readers with read_committed see each row once."""

from __future__ import annotations

import datetime
import os
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import odradek.spark
from compat_tests.brokers import TestBroker
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit import readers
from compat_tests.spark import sink_program
from compat_tests.spark.cluster import Cluster
from compat_tests.spark.driver import START_SECONDS, Driver, Job, committed_batches
from compat_tests.spark.sessions import past_ended_workers
from compat_tests.spark.topics import KafkaTables, batch_sizes, finish
from compat_tests.stories import START_MS
from tests.tiers import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

DRIVER_KILLS = 5 if NIGHTLY else 1


class SinkTables(KafkaTables):
    """`KafkaTables` that reads with Spark's connector and writes with ours."""

    def __init__(self, spark: SparkSession, client: KafkaPythonClient) -> None:
        super().__init__(spark, client)
        odradek.spark.register(spark)

    def write(self, frame: DataFrame, topic: str | None = None, **options: Any) -> None:
        writer = frame.write.format("odradek").mode("append")
        writer = writer.option("kafka.bootstrap.servers", self.client.bootstrap)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**options).save()

    def to_sink(
        self, stream: DataFrame, topic: str, directory: pathlib.Path, **options: Any
    ) -> DataStreamWriter:
        return (
            stream.writeStream.format("odradek")
            .option("kafka.bootstrap.servers", self.client.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .options(**options)
        )

    def values(self, topic: str, partitions: int = 1, isolation: int = readers.READ_COMMITTED) -> list[int]:
        """The numbers that a consumer finds, sorted, doubles included."""
        places = [(topic, number) for number in range(partitions)]
        found = readers.values_of(self.client.bootstrap, places, isolation)
        return sorted(int(value) for there in found.values() for value in there)


@pytest.fixture
def sink(spark: SparkSession, client: KafkaPythonClient) -> SinkTables:
    if not spark.sparkContext.getConf().get("spark.jars", ""):
        pytest.skip("they read with Spark's own connector, whose jars are not there for this PySpark")
    return SinkTables(spark, client)


def numbers(sink: SinkTables, start: int, end: int) -> DataFrame:
    return sink.spark.range(start, end, numPartitions=2).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS value"
    )


def last_line(error: BaseException) -> str:
    """What a person reads who looks at the end of the Python part of an error of Spark's."""
    lines = str(error).split("JVM stacktrace")[0].split("\tat ")[0].splitlines()
    return [line for line in lines if line.strip() and "SQLSTATE" not in line][-1]


# -- batch


def test_rows_become_records_with_all_that_they_say(sink: SinkTables) -> None:
    topics = [sink.new_topic("rows", 3), sink.new_topic("rows", 3)]
    headers = [("a", b"1"), ("empty", b""), ("a", b"2"), ("none", None)]
    when = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
    written = [
        (b"key", b"value", headers, topics[0], 2, when),
        (None, b"no key", None, topics[1], 1, None),
        (b"", b"", [], topics[0], 0, None),
        (b"tombstone", None, None, topics[1], 2, when),
    ]
    frame = sink.spark.createDataFrame(
        written,
        "key binary, value binary, headers array<struct<key:string,value:binary>>, topic string, "
        "partition int, timestamp timestamp",
    )
    sink.write(frame)
    for topic in topics:
        wanted = [row for row in written if row[3] == topic]
        found = sink.client.read(topic, {0: 0, 1: 0, 2: 0}, len(wanted))
        assert sorted(((r.key, r.value, r.headers, r.partition) for r in found), key=repr) == sorted(
            ((key, value, tuple(headers or ()), number) for key, value, headers, _, number, _ in wanted),
            key=repr,
        )
        assert {r.timestamp_ms for r in found if r.key in (b"key", b"tombstone")} == {START_MS}
        assert all(r.timestamp_ms > START_MS for r in found if r.key not in (b"key", b"tombstone"))


def test_a_table_of_a_topic_becomes_the_same_topic(sink: SinkTables) -> None:
    source, copy = sink.new_topic("source", 3), sink.new_topic("copy", 3)
    sent = [
        Message(b"%d" % n, b"k%d" % n, (("h", b"%d" % n),), partition=n % 3, timestamp_ms=START_MS + n)
        for n in range(300)
    ]
    sink.client.produce(source, sent)
    sink.write(
        sink.read(source, includeHeaders="true").drop("topic"), copy, **{"kafka.compression.type": "zstd"}
    )
    ends = {0: 0, 1: 0, 2: 0}
    original, copied = sink.client.read(source, ends, 300), sink.client.read(copy, ends, 300)

    def content(records: list[Any]) -> list[Any]:
        return sorted((r.partition, r.offset, r.timestamp_ms, *r.content()) for r in records)

    assert content(copied) == content(original)


def test_keys_and_text_go_where_the_connector_puts_them(sink: SinkTables) -> None:
    ours, theirs = sink.new_topic("ours", 5), sink.new_topic("theirs", 5)
    rows = sink.spark.range(200).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    sink.write(rows, ours)
    KafkaTables.write(sink, rows, theirs)
    places = [
        sorted((row.partition, bytes(row.key)) for row in sink.read(topic).collect())
        for topic in (ours, theirs)
    ]
    assert places[0] == places[1]
    assert len(places[0]) == 200


def test_a_batch_with_an_id_is_written_once(sink: SinkTables) -> None:
    topic = sink.new_topic("id", 2)
    for _ in range(2):
        sink.write(numbers(sink, 0, 100), topic, writeId=f"{topic}-monday")
    sink.write(numbers(sink, 100, 150), topic, writeId=f"{topic}-tuesday")
    assert sink.values(topic, 2) == list(range(150))
    with pytest.raises(Exception, match="has been written in 2 tasks") as refused:
        sink.write(numbers(sink, 0, 120), topic, writeId=f"{topic}-monday")
    assert "another writeId" in last_line(refused.value)
    assert sink.values(topic, 2) == list(range(150))
    for _ in range(2):
        sink.write(numbers(sink, 0, 10), topic)
    assert sink.values(topic, 2) == sorted([*range(150), *range(10), *range(10)])


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (
            "CAST(id AS STRING) AS value",
            {"topic": "missing.of.all", "kafka.acks": "1"},
            "kafka.acks must be all or -1",
        ),
        ("CAST(id AS STRING) AS value", {}, "no topic is named: give the option topic"),
        ("id AS value", {"topic": "t"}, 'the column "value" is bigint: cast it to binary or string'),
        ("CAST(id AS STRING) AS key", {"topic": "t"}, 'the rows have no column "value": they have key'),
        (
            "CAST(id AS STRING) AS value",
            {"topic": "t", "kafka.linger.ms": "5"},
            "batches are sent when they are full",
        ),
        (
            "CAST(id AS STRING) AS value, 7 AS partition",
            {"topic": "TOPIC"},
            "a row names partition 7 of topic TOPIC, which has 2",
        ),
    ],
)
def test_what_cannot_be_written_is_the_last_line_of_the_error(
    sink: SinkTables, change: str, options: dict[str, str], sentence: str
) -> None:
    topic = sink.new_topic("refused", 2)
    named = {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(PySparkException) as refused:
        sink.write(sink.spark.range(3).selectExpr(*change.split(", ")), **named)
    assert sentence.replace("TOPIC", topic) in last_line(refused.value)


def test_a_topic_is_not_overwritten(sink: SinkTables) -> None:
    frame = numbers(sink, 0, 3)
    writer = frame.write.format("odradek").option("kafka.bootstrap.servers", sink.client.bootstrap)
    with pytest.raises(Exception, match="only appends"):
        writer.option("topic", "t").mode("overwrite").save()


# -- streams


def test_a_stream_writes_each_row_once_over_restarts(sink: SinkTables, tmp_path: pathlib.Path) -> None:
    source, topic = sink.new_topic("source", 3, range(100)), sink.new_topic("sink", 2)

    def run() -> list[int]:
        stream = sink.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=40).select(
            "key", "value"
        )
        return batch_sizes(finish(sink.to_sink(stream, topic, tmp_path)))

    assert len(run()) > 1
    assert run() == []
    sink.produce(source, range(100, 150), 3)
    run()
    assert sink.values(topic, 2) == list(range(150))


def forget_last_epoch(checkpoint: pathlib.Path) -> int:
    """As if the driver had died before it wrote down that the epoch is done: it comes again."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_an_epoch_that_comes_again_is_not_written_again(sink: SinkTables, tmp_path: pathlib.Path) -> None:
    source, topic = sink.new_topic("source", 3, range(100)), sink.new_topic("sink", 2)

    def run() -> None:
        stream = sink.stream(source, startingOffsets="earliest").select("key", "value")
        finish(sink.to_sink(stream, topic, tmp_path))

    run()
    assert forget_last_epoch(tmp_path / "checkpoint") == 0
    run()
    sink.produce(source, range(100, 150), 3)
    run()
    assert forget_last_epoch(tmp_path / "checkpoint") == 1
    run()
    assert sink.values(topic, 2) == list(range(150))


def failing_while(flag: pathlib.Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """For mapInArrow: while the flag is there the rows of the plan's partition 1 fail at their end."""
    path = str(flag)

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1 and os.path.exists(path):
            raise RuntimeError("the flag is up")

    return rows


def test_a_stream_that_failed_in_the_middle_of_an_epoch_goes_on(
    sink: SinkTables, tmp_path: pathlib.Path
) -> None:
    source, topic = sink.new_topic("source", 2, range(1000)), sink.new_topic("sink", 2)
    flag = tmp_path / "flag"

    def run() -> None:
        stream = sink.stream(source, startingOffsets="earliest").select("key", "value")
        stream = stream.mapInArrow(failing_while(flag), "key binary, value binary")
        finish(sink.to_sink(stream, topic, tmp_path, **{"kafka.batch.size": "1000"}))

    everything = [*range(1000)]
    # Each run may write one half, not always the same: Spark may deal them out to the tasks in another order.
    may_be_seen = [[], everything[::2], everything[1::2]]

    def is_each_half_whole() -> bool:
        seen = sink.values(topic, 2)
        assert sorted(set(seen)) == seen, "a row is there twice"
        return seen in may_be_seen

    flag.touch()
    for _ in range(2):
        with pytest.raises(Exception, match="the flag is up"):
            past_ended_workers(run)
        # Of a task whose process Spark has killed the transaction is open until the query goes on. One whose
        # process is still there may commit a moment after the query has failed, and so while it is read: the
        # one partition is seen before that and the other behind it. A part of a half that stays is an error.
        wait_until(is_each_half_whole, "each half is there as a whole or not at all")
        may_be_seen.append(everything)
    flag.unlink()
    past_ended_workers(run)
    assert sink.values(topic, 2) == everything


def test_rows_that_are_cut_off_are_not_taken_for_all_of_them(
    sink: SinkTables, tmp_path: pathlib.Path
) -> None:
    """Large enough that many batches come to the sink before those behind them fail."""
    topic, flag = sink.new_topic("cut", 2), tmp_path / "flag"
    rows = sink.spark.range(0, 400, numPartitions=2).selectExpr(
        "rpad(CAST(id AS STRING), 20000, ' ') AS value"
    )
    rows = rows.mapInArrow(failing_while(flag), "value string")

    def write() -> None:
        sink.write(rows, topic, writeId=topic)

    sink.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        flag.touch()
        for _ in range(5 if NIGHTLY else 2):
            with pytest.raises(Exception, match="the flag is up"):
                past_ended_workers(write)
        flag.unlink()
        past_ended_workers(write)
    finally:
        sink.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sink.values(topic, 2) == list(range(400))


def test_another_plan_for_an_epoch_that_is_in_fails_the_query(
    sink: SinkTables, tmp_path: pathlib.Path
) -> None:
    source, topic = sink.new_topic("source", 3, range(90)), sink.new_topic("sink", 2)

    def run(plan: Callable[[DataFrame], DataFrame]) -> None:
        stream = sink.stream(source, startingOffsets="earliest").select("key", "value")
        finish(sink.to_sink(plan(stream), topic, tmp_path))

    def as_before(stream: DataFrame) -> DataFrame:
        return stream

    run(as_before)
    forget_last_epoch(tmp_path / "checkpoint")
    for plan in (
        lambda stream: stream.coalesce(1),
        lambda stream: stream.repartition(5),
        lambda stream: stream.where("CAST(value AS STRING) != '7'"),
    ):
        with pytest.raises(Exception, match=r"lose or double rows|rows are lost or doubled"):
            run(plan)
    assert sink.values(topic, 2) == list(range(90))
    run(as_before)
    sink.produce(source, range(90, 120), 3)
    run(lambda stream: stream.repartition(5))  # between epochs everybody may change his mind
    assert sink.values(topic, 2) == list(range(120))


def test_an_epoch_whose_offsets_spark_deals_out_anew_is_written_once(
    sink: SinkTables, tmp_path: pathlib.Path
) -> None:
    source, topic = sink.new_topic("source", 4, range(80)), sink.new_topic("sink", 2)

    def run(order: Column) -> None:
        stream = sink.stream(source, startingOffsets="earliest").select("key", "value", "partition")
        # As its own Kafka source does where it has not more than four partitions: the same parts of the input
        # come to other tasks after a restart.
        dealt = stream.repartitionByRange(4, order).select("key", "value")
        finish(sink.to_sink(dealt, topic, tmp_path))

    from pyspark.sql import functions

    run(functions.col("partition").asc())
    forget_last_epoch(tmp_path / "checkpoint")
    run(functions.col("partition").desc())
    assert sink.values(topic, 2) == list(range(80))


def test_a_running_stream_writes_each_row_once_over_a_killed_broker(
    sink: SinkTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    source, topic = sink.new_topic("source", 2, range(200)), sink.new_topic("sink", 2)
    stream = sink.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=100).select("key", "value")
    query = sink.to_sink(stream, topic, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        wait_until(lambda: sum(batch_sizes(query)) >= 100, "the stream runs")
        down = threading.Thread(target=broker.crash_and_restart)
        down.start()
        sink.produce(source, range(200, 500), 2)
        down.join()
        query.processAllAvailable()
    finally:
        query.stop()
    assert sink.values(topic, 2) == list(range(500))


def test_complete_mode_appends_what_it_puts_out(sink: SinkTables, tmp_path: pathlib.Path) -> None:
    source, topic = sink.new_topic("source", 2, range(50)), sink.new_topic("complete")

    def run() -> None:
        stream = sink.stream(source, startingOffsets="earliest").selectExpr("1 AS one").groupBy("one").count()
        counted = stream.selectExpr("CAST(count AS STRING) AS value")
        finish(sink.to_sink(counted, topic, tmp_path).outputMode("complete"))

    run()
    sink.produce(source, range(10), 2)
    run()
    assert sink.values(topic) == [50, 60]


def test_a_query_without_epochs_is_refused(sink: SinkTables, tmp_path: pathlib.Path) -> None:
    source = sink.new_topic("source", 1, range(3))
    stream = sink.stream(source, startingOffsets="earliest").select("value")
    with pytest.raises(Exception, match="writeId"):
        finish(sink.to_sink(stream, "t", tmp_path, writeId="w"))


# -- drivers and clusters that are killed


def test_retried_tasks_and_killed_drivers_write_each_row_once(
    sink: SinkTables, tmp_path: pathlib.Path
) -> None:
    count = 3000
    source, topic = sink.new_topic("source", 3, range(count)), sink.new_topic("sink", 2)

    def job(**more: Any) -> Job:
        # Only with a number of attempts are tasks retried in local mode.
        return Job(sink.client.bootstrap, source, topic, str(tmp_path), "local[2,4]", **more)

    for _ in range(DRIVER_KILLS):
        enough = committed_batches(job().topic) + 1
        with Driver(job(options={"maxOffsetsPerTrigger": "300"}), sink_program.PROGRAM) as driver:
            wait_until(
                lambda: committed_batches(job().topic) >= enough,  # noqa: B023
                "epochs are written",
                [driver],
                START_SECONDS,
            )
            driver.kill()
    assert len(sink.values(topic, 2)) < count
    sink_program.run(sink.spark, job(ends=True))
    assert sink.values(topic, 2) == list(range(count))
    # The attempts that failed had written, too.
    assert len(sink.values(topic, 2, readers.READ_UNCOMMITTED)) > count


@pytest.mark.nightly
def test_speculative_tasks_and_a_lost_worker_write_each_row_once(
    sink: SinkTables, tmp_path: pathlib.Path
) -> None:
    count = 900
    source, topic = sink.new_topic("source", 4, range(count)), sink.new_topic("sink", 2)
    with Cluster(tmp_path / "cluster", workers=3) as cluster:

        def job(**more: Any) -> Job:
            return Job(sink.client.bootstrap, source, topic, str(tmp_path / "job"), cluster.master, **more)

        with Driver(job(options={"maxOffsetsPerTrigger": "200"}), sink_program.PROGRAM) as driver:
            wait_until(
                lambda: committed_batches(job().topic) >= 2, "epochs are written", [driver], START_SECONDS
            )
            cluster.kill_worker(0)
            wait_until(lambda: committed_batches(job().topic) >= 3, "it goes on", [driver], START_SECONDS)
        with Driver(job(ends=True), sink_program.PROGRAM) as driver:
            driver.wait()
    assert sink.values(topic, 2) == list(range(count))
