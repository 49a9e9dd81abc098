"""`spark.readStream.format("odradek")`: each row once, whatever stops, grows or goes in the meantime."""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.brokers import TestBroker
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit import readers
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.odradek_tables import OdradekTables
from compat_tests.spark.test_data_loss import HOUR_MS, SETTINGS
from compat_tests.spark.topics import batch_sizes, finish
from compat_tests.stories import START_MS, topic_name
from compat_tests.transactions.libraries.confluent import ConfluentProducer
from odradek.embedding.embedded import Broker
from odradek.spark.stream_readers import has_admission_control
from tests.tiers import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

LIMITED = {"maxOffsetsPerTrigger": 30, "trigger": "processingTime"}


@pytest.fixture
def tables(spark: SparkSession, client: KafkaPythonClient) -> OdradekTables:
    return OdradekTables(spark, client)


@pytest.fixture
def admin(bootstrap: str) -> TopicAdmin:
    return TopicAdmin(bootstrap)


@contextlib.contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """With a trigger of its own for good, until the end of the block."""
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        yield query
    finally:
        query.stop()


def collected(tables: OdradekTables, directory: pathlib.Path, topic: str, **options: Any) -> list[int]:
    """What a stream with these options has written when all that there is has gone through."""
    finish(tables.to_files(tables.stream(topic, **options), directory))
    return tables.values_in_files(directory)


def test_a_stream_starts_where_it_is_told_to(tables: OdradekTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("starts", 2)
    messages = [Message(b"%d" % n, partition=n % 2, timestamp_ms=START_MS + 1000 * n) for n in range(20)]
    tables.client.produce(topic, messages)
    times = {"0": START_MS + 17_000, "1": START_MS + 13_000}
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"startingOffsets": "earliest"}, list(range(20))),
        ({}, []),
        ({"startingOffsets": json.dumps({topic: {"0": 8, "1": -2}})}, [16, 18, *range(1, 20, 2)]),
        ({"startingOffsets": json.dumps({topic: {"0": -1, "1": 9}})}, [19]),
        ({"startingTimestamp": START_MS + 15_000}, list(range(15, 20))),
        ({"startingOffsetsByTimestamp": json.dumps({topic: times})}, [18, 13, 15, 17, 19]),
    ]
    for number, (options, expected) in enumerate(cases):
        assert collected(tables, tmp_path / str(number), topic, **options) == sorted(expected), options
        # By day test_streaming shows the same of the connector.
        if NIGHTLY and tables.by_connector is not None:
            theirs = tmp_path / f"connector-{number}"
            finish(tables.by_connector.to_files(tables.by_connector.stream(topic, **options), theirs))
            assert tables.values_in_files(theirs) == sorted(expected), options


def test_a_checkpoint_goes_on_where_it_was_over_a_broker_restart(
    tables: OdradekTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("checkpoint", 3, range(100))

    def run() -> list[int]:
        stream = tables.stream(topic, startingOffsets="earliest")
        return batch_sizes(finish(tables.to_files(stream, tmp_path)))

    assert run() == [100]
    assert run() == []
    broker.crash_and_restart()
    tables.produce(topic, range(100, 150), 3)
    assert run() == [50]
    assert tables.values_in_files(tmp_path) == list(range(150))


def test_a_checkpoint_of_the_connector_goes_on_with_one_word_changed(
    tables: OdradekTables, tmp_path: pathlib.Path
) -> None:
    if tables.by_connector is None:
        pytest.skip("Spark's connector is not there in this environment")
    topic = tables.new_topic("changed", 3, range(50))
    finish(tables.to_files(tables.by_connector.stream(topic, startingOffsets="earliest"), tmp_path))
    tables.produce(topic, range(50, 80), 3)
    assert collected(tables, tmp_path, topic, startingOffsets="earliest") == list(range(80))
    tables.produce(topic, range(80, 90), 3)
    finish(tables.to_files(tables.by_connector.stream(topic, startingOffsets="earliest"), tmp_path))
    assert tables.values_in_files(tmp_path) == list(range(90))


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_query_that_fails_in_its_first_batch_begins_there_again(
    tables: OdradekTables, tmp_path: pathlib.Path, starting: str
) -> None:
    topic = tables.new_topic("first", 2, range(10))
    seen: list[int] = []
    fails = [True]

    def batch(frame: Any, number: int) -> None:
        if fails[0]:
            raise RuntimeError("the sink is down")
        seen.extend(int(row.value) for row in frame.select("value").collect())

    def start() -> StreamingQuery:
        writer = tables.stream(topic, startingOffsets=starting).writeStream.foreachBatch(batch)
        return writer.option("checkpointLocation", str(tmp_path)).start()

    query = start()
    with pytest.raises(Exception, match="the sink is down"):
        query.awaitTermination()
    tables.produce(topic, range(10, 20), 2)
    fails[0] = False
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(seen) == list(range(20) if starting == "earliest" else range(10, 20))


def test_a_running_stream_loses_and_doubles_nothing_over_a_crash(
    tables: OdradekTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("running", 3, range(300))
    stream = tables.stream(
        topic, startingOffsets="earliest", maxOffsetsPerTrigger=150, trigger="processingTime"
    )
    with running(tables.to_files(stream, tmp_path)) as query:
        wait_until(lambda: sum(batch_sizes(query)) >= 150, "the stream runs")
        down = threading.Thread(target=broker.crash_and_restart)
        down.start()
        tables.produce(topic, range(300, 900), 3)
        down.join()
        tables.produce(topic, range(900, 1200), 3)
        query.processAllAvailable()
    assert tables.values_in_files(tmp_path) == list(range(1200))
    assert max(batch_sizes(query)) <= 150


def test_a_limit_bounds_every_batch_also_after_a_restart(
    tables: OdradekTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("bounded", 2, range(100))
    stream = tables.stream(topic, startingOffsets="earliest", **LIMITED)
    with running(tables.to_files(stream, tmp_path)) as query:
        query.processAllAvailable()
        assert batch_sizes(query) == [30, 30, 30, 10]
    tables.produce(topic, range(100, 150), 2)
    with running(tables.to_files(stream, tmp_path)) as query:
        query.processAllAvailable()
        assert batch_sizes(query) == [30, 20]
    assert tables.values_in_files(tmp_path) == list(range(150))


def test_a_limit_with_available_now_is_kept_or_refused_in_a_sentence(
    tables: OdradekTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("bounded", 2, range(100))
    stream = tables.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    if has_admission_control():
        query = finish(tables.to_files(stream, tmp_path))
        assert batch_sizes(query) == [30, 30, 30, 10]
        assert tables.values_in_files(tmp_path) == list(range(100))
        return
    with pytest.raises(Exception, match=r"maxOffsetsPerTrigger needs PySpark .* the rest would stay unread"):
        finish(tables.to_files(stream, tmp_path))


def test_few_records_wait_until_there_are_enough(tables: OdradekTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("few", 2, range(10))
    stream = tables.stream(topic, startingOffsets="earliest", minOffsetsPerTrigger=20)
    with running(tables.to_files(stream, tmp_path)) as query:
        query.processAllAvailable()
        tables.produce(topic, range(10, 20), 2)
        query.processAllAvailable()
        assert batch_sizes(query) == [10]
        tables.produce(topic, range(20, 30), 2)
        query.processAllAvailable()
        assert batch_sizes(query) == [10, 20]
    assert tables.values_in_files(tmp_path) == list(range(30))


def test_partitions_and_topics_that_come_later_are_read_whole(
    tables: OdradekTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    prefix = topic_name("later")
    admin.create(f"{prefix}-one")
    tables.produce(f"{prefix}-one", range(10))
    stream = tables.stream("", subscribePattern=f"{prefix}-.*", startingOffsets="latest")
    with running(tables.to_files(stream, tmp_path)) as query:
        query.processAllAvailable()
        admin.grow(f"{prefix}-one", 3)
        tables.produce(f"{prefix}-one", range(10, 40), 3)
        query.processAllAvailable()
        assert tables.values_in_files(tmp_path) == list(range(10, 40))
        admin.create(f"{prefix}-two", 2)
        tables.produce(f"{prefix}-two", range(40, 50), 2)
        query.processAllAvailable()
    assert tables.values_in_files(tmp_path) == list(range(10, 50))


@pytest.mark.parametrize("fails", [True, False])
def test_records_deleted_under_a_running_stream(
    tables: OdradekTables, admin: TopicAdmin, tmp_path: pathlib.Path, fails: bool
) -> None:
    topic = tables.new_topic("deleted", 1, range(200))
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    stream = tables.stream(topic, **options, **LIMITED | {"maxOffsetsPerTrigger": 10})
    with running(tables.to_files(stream, tmp_path)) as query:
        wait_until(lambda: sum(batch_sizes(query)) >= 20, "the stream runs")
        admin.delete_records(topic, {0: 180})
        if fails:
            with pytest.raises(Exception, match=f"topic {topic}, partition 0 .* failOnDataLoss"):
                query.processAllAvailable()
        else:
            query.processAllAvailable()
    written = tables.values_in_files(tmp_path)
    before = [value for value in written if value < 180]
    assert 20 <= len(before) < 180
    assert before == list(range(len(before)))
    assert written[len(before) :] == ([] if fails else list(range(180, 200)))


def test_what_retention_has_taken_fails_the_query_or_is_passed_over(
    spark: SparkSession, tmp_path: pathlib.Path
) -> None:
    with Broker(process=True, options=SETTINGS) as broker:
        client, admin = KafkaPythonClient(broker.bootstrap_servers), TopicAdmin(broker.bootstrap_servers)
        tables, topic = OdradekTables(spark, client), topic_name("retention")
        admin.create(topic, 1, {"segment.ms": str(HOUR_MS), "retention.ms": str(100 * HOUR_MS)})

        def produce(numbers: range, hours_ago: int) -> None:
            at_ms = START_MS - hours_ago * HOUR_MS
            client.produce(topic, [Message(b"%d" % n, timestamp_ms=at_ms) for n in numbers])

        def run(fails: bool) -> list[int]:
            options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
            return collected(tables, tmp_path, topic, **options)

        produce(range(20), 3)
        assert run(True) == list(range(20))
        produce(range(20, 50), 3)
        produce(range(50, 100), 0)  # in a segment of their own, so much younger are they
        admin.set(topic, "retention.ms", str(3 * HOUR_MS))
        wait_until(lambda: admin.first_offsets(topic) == {0: 50}, "retention has taken the first segment")
        with pytest.raises(Exception, match=f"topic {topic}, partition 0 has no offset 20 .* failOnDataLoss"):
            run(True)
        assert tables.values_in_files(tmp_path) == list(range(20))
        assert run(False) == [*range(20), *range(50, 100)]
        produce(range(100, 120), 0)
        # Nothing is lost any more.
        assert run(True) == [*range(20), *range(50, 120)]
        client.close()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_goes_away_under_a_running_stream(
    tables: OdradekTables, admin: TopicAdmin, tmp_path: pathlib.Path, fails: bool
) -> None:
    prefix = topic_name("going")
    for name in ("one", "two"):
        admin.create(f"{prefix}-{name}")
    tables.produce(f"{prefix}-one", range(10))
    tables.produce(f"{prefix}-two", range(10, 20))
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    stream = tables.stream("", subscribePattern=f"{prefix}-.*", **options)
    with running(tables.to_files(stream, tmp_path)) as query:
        query.processAllAvailable()
        admin.delete(f"{prefix}-one")
        tables.produce(f"{prefix}-two", range(20, 30))
        if fails:
            with pytest.raises(Exception, match=f"{prefix}-one-0 were read before and are gone"):
                query.processAllAvailable()
        else:
            query.processAllAvailable()
    assert tables.values_in_files(tmp_path) == list(range(20 if fails else 30))


def test_transactions_are_seen_once_when_they_are_committed(
    tables: OdradekTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("decided")
    bootstrap, partitions = tables.client.bootstrap, [(topic, 0)]
    one, other = (ConfluentProducer(bootstrap, topic_name("writer"), 600_000) for _ in range(2))

    def write(producer: ConfluentProducer, these: range) -> None:
        producer.begin()
        for number in these:
            producer.send((topic, 0), b"%d" % number)
        producer.flush()

    committed = {"kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
    try:
        one.open()
        other.open()
        with running(tables.to_files(tables.stream(topic, **committed), tmp_path)) as query:
            write(one, range(10))
            one.commit()
            write(one, range(10, 20))
            one.abort()
            assert readers.wait_until_stable(bootstrap, partitions, 30)
            write(other, range(20, 30))
            write(one, range(30, 40))
            one.commit()
            query.processAllAvailable()
            assert tables.values_in_files(tmp_path) == list(range(10))
        other.commit()
        assert readers.wait_until_stable(bootstrap, partitions, 30)
        assert collected(tables, tmp_path, topic, **committed) == [*range(10), *range(20, 40)]
        write(other, range(40, 50))
        other.abort()
        assert readers.wait_until_stable(bootstrap, partitions, 30)
        assert collected(tables, tmp_path, topic, **committed) == [*range(10), *range(20, 40)]
    finally:
        one.abandon()
        other.abandon()


def test_columns_and_headers_of_a_stream(tables: OdradekTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("columns")
    tables.client.produce(topic, [Message(b"v", b"k", (("h", b"1"), ("h", b""))), Message(b"w", b"l")])
    seen: list[tuple[Any, ...]] = []

    def batch(frame: Any, number: int) -> None:
        seen.extend(
            (row.headers and [tuple(h) for h in row.headers], bytes(row.key)) for row in frame.collect()
        )

    stream = tables.stream(topic, startingOffsets="earliest", columns="headers,key")
    assert stream.columns == ["headers", "key"]
    query = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path))
    finish(query)
    assert seen == [([("h", bytearray(b"1")), ("h", bytearray())], b"k"), (None, b"l")]


def test_min_partitions_split_a_stream_and_change_no_row(
    tables: OdradekTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("split", 1, range(200))
    assert collected(tables, tmp_path, topic, startingOffsets="earliest", minPartitions=4) == list(range(200))
    parts = [path for path in (tmp_path / "files").iterdir() if path.suffix == ".json"]
    assert len(parts) == 4
