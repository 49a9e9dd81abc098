"""The stream's reader, called in the orders in which Spark calls it: no session, only PySpark's classes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import odradek
from compat_tests.clients import wait_until
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.spark.options import OptionError, read_options
from odradek.spark.range_reader import DataLoss
from tests.client.topics import Transactions, create_topic, delete_records, delete_topic, produce

stream_source = pytest.importorskip("odradek.spark.stream_source", exc_type=ImportError)
stream_readers = pytest.importorskip("odradek.spark.stream_readers", exc_type=ImportError)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with odradek.Broker() as broker, Cluster(ClientSettings(broker.bootstrap_servers)) as connected:
        yield connected


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Two partitions of ten records each."""
    topic = create_topic(cluster, 2)
    for partition in range(2):
        write(cluster, topic, partition, 10)
    return topic


def write(cluster: Cluster, topic: str, partition: int, count: int) -> None:
    produce(cluster, topic, partition, [b"v"] * count, timestamp=1000)


class Query:
    """A reader as PySpark 4.0 and 4.1 use it."""

    def __init__(self, cluster: Cluster, topic: str, **options: Any) -> None:
        least = {"kafka.bootstrap.servers": cluster.settings.bootstrap_servers}
        if "subscribePattern" not in options:
            least["subscribe"] = topic
        self.topic = topic
        read = read_options(least | options, is_stream=True)
        self.options = replace(read, settings=replace(read.settings, unknown_topic_ms=50))
        self.reader = stream_source.StreamReader(self.options)

    def latest(self) -> tuple[int, ...]:
        return self.of_topic(self.reader.latestOffset())

    def initial(self) -> tuple[int, ...]:
        return self.of_topic(self.reader.initialOffset())

    def of_topic(self, offsets: dict[str, dict[str, int]]) -> tuple[int, ...]:
        return tuple(offsets.get(self.topic, {}).values())

    def ranges(self, start: tuple[int, ...], end: tuple[int, ...]) -> list[tuple[int, int, int]]:
        partitions = self.reader.partitions(self.kept(start), self.kept(end))
        return [(one.value.partition, one.value.start, one.value.end) for one in partitions]

    def kept(self, offsets: tuple[int, ...]) -> dict[str, dict[str, int]]:
        return {self.topic: {str(number): offset for number, offset in enumerate(offsets)}}


def test_a_new_query_from_the_earliest(cluster: Cluster, topic: str) -> None:
    query = Query(cluster, topic, startingOffsets="earliest")
    assert query.latest() == (10, 10)
    assert query.initial() == (0, 0)
    assert query.ranges((0, 0), (10, 10)) == [(0, 0, 10), (1, 0, 10)]
    write(cluster, topic, 1, 5)
    assert query.latest() == (10, 15)
    assert query.ranges((10, 10), (10, 15)) == [(1, 10, 15)]
    assert query.latest() == (10, 15)


def test_a_new_query_from_the_latest_begins_where_its_first_batch_ends(cluster: Cluster, topic: str) -> None:
    query = Query(cluster, topic)
    assert query.latest() == (10, 10)
    write(cluster, topic, 0, 5)
    assert query.initial() == (10, 10)
    assert query.ranges((10, 10), (10, 10)) == []
    assert query.latest() == (15, 10)


def test_a_query_that_was_killed_in_its_first_batch_skips_nothing(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, 0, 7)
    restarted = Query(cluster, topic)
    # Its first batch was planned up to here, when these were the latest.
    assert restarted.ranges((10, 10), (10, 10)) == []
    assert restarted.initial() == (10, 10)
    assert restarted.latest() == (17, 10)
    assert restarted.ranges((10, 10), (17, 10)) == [(0, 10, 17)]


def test_a_first_batch_is_made_again_as_it_was_though_partitions_have_come(cluster: Cluster) -> None:
    topic = create_topic(cluster, 3)
    write(cluster, topic, 0, 10)
    starts = f'{{"{topic}":{{"0":4,"1":0}}}}'
    restarted = Query(cluster, topic, startingOffsets=starts)
    assert restarted.ranges((8, 0), (8, 0)) == []
    assert restarted.initial() == (4, 0)
    assert restarted.ranges((4, 0), (8, 0)) == [(0, 4, 8)]


def test_an_available_now_query_that_goes_on_does_not_ask_where_new_ones_start(cluster: Cluster) -> None:
    topic = create_topic(cluster, 2)
    write(cluster, topic, 1, 3)
    # The options name one partition of what are two by now; a checkpoint says where this one goes on.
    query = Query(cluster, topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}')
    assert query.latest() == (0, 3)
    assert query.ranges((0,), (0,)) == []
    assert query.ranges((0,), (0, 3)) == [(1, 0, 3)]


def test_a_limit_goes_on_from_what_was_given_out(cluster: Cluster, topic: str) -> None:
    limit = {"maxOffsetsPerTrigger": "8", "trigger": "processingTime"}
    query = Query(cluster, topic, startingOffsets="earliest", **limit)
    assert query.latest() == (4, 4)
    assert query.initial() == (0, 0)
    assert query.ranges((0, 0), (4, 4)) == [(0, 0, 4), (1, 0, 4)]
    # What Spark planned counts, even where it had no use for the rows and asked for no ranges.
    assert [query.latest(), query.latest(), query.latest()] == [(8, 8), (10, 10), (10, 10)]
    restarted = Query(cluster, topic, startingOffsets="earliest", **limit)
    assert restarted.ranges((4, 4), (4, 4)) == []
    assert restarted.latest() == (8, 8)


def test_a_limit_holds_for_partitions_that_are_new(cluster: Cluster, topic: str) -> None:
    limit = {"maxOffsetsPerTrigger": "6", "trigger": "processingTime"}
    query = Query(cluster, topic, **limit)
    assert query.ranges((10,), (10,)) == []
    assert query.latest() == (10, 6)
    assert query.ranges((10,), (10, 6)) == [(1, 0, 6)]


def test_few_records_wait_for_more_or_for_their_time(cluster: Cluster, topic: str) -> None:
    query = Query(cluster, topic, minOffsetsPerTrigger="5", startingOffsets="earliest")
    assert query.latest() == (10, 10)
    write(cluster, topic, 0, 4)
    assert query.latest() == (10, 10)
    write(cluster, topic, 1, 1)
    assert query.latest() == (14, 11)
    impatient = Query(cluster, topic, minOffsetsPerTrigger="5", maxTriggerDelay="0ms")
    assert impatient.latest() == (14, 11)
    write(cluster, topic, 0, 1)
    assert impatient.latest() == (15, 11)


needs_admission_control = pytest.mark.skipif(
    not stream_readers.has_admission_control(), reason="PySpark 4.2 or later hands in a start and a limit"
)


class AdmittedQuery(Query):
    """A reader as PySpark uses it from 4.2 on: a start and a limit come in, and no `partitions(x, x)`."""

    def __init__(self, cluster: Cluster, topic: str, **options: Any) -> None:
        super().__init__(cluster, topic, **options)
        from odradek.spark.admission import AdmittingStreamReader

        self.reader = AdmittingStreamReader(self.options)

    def next(self, *start: int, is_limited: bool = True) -> tuple[int, ...]:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        limit = self.reader.getDefaultReadLimit() if is_limited else ReadAllAvailable()
        return self.of_topic(self.reader.latestOffset(self.kept(start), limit))


@needs_admission_control
def test_a_limit_is_kept_from_where_spark_says(cluster: Cluster, topic: str) -> None:
    query = AdmittedQuery(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert query.initial() == (0, 0)
    assert [query.next(0, 0), query.next(4, 4), query.next(8, 8)] == [(4, 4), (8, 8), (10, 10)]
    assert query.next(0, 0, is_limited=False) == (10, 10)
    assert query.of_topic(query.reader.reportLatestOffset()) == (10, 10)


@needs_admission_control
def test_a_limit_of_bytes_is_kept_about(cluster: Cluster, topic: str) -> None:
    query = AdmittedQuery(cluster, topic, startingOffsets="earliest", maxBytesPerTrigger="100000")
    assert query.next(0, 0) == (10, 10), "all fits"
    few = AdmittedQuery(cluster, topic, startingOffsets="earliest", maxBytesPerTrigger="1")
    assert [few.next(0, 0), few.next(9, 9), few.next(10, 10)] == [(1, 1), (10, 10), (10, 10)]
    view = stream_source.ClusterView(few.options)
    whole = sum(view.bytes_of_offsets({topic: {0: 0}}, {topic: {0: 10}}).values()) * 10
    view.close()
    half = AdmittedQuery(cluster, topic, startingOffsets="earliest", maxBytesPerTrigger=str(int(whole)))
    assert sum(half.next(0, 0)) in range(8, 13)


@needs_admission_control
def test_the_limit_of_a_batch_is_what_spark_hands_in(cluster: Cluster, topic: str) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows, ReadMinRows

    query = AdmittedQuery(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="8")

    def next_with(limit: Any, *start: int) -> tuple[int, ...]:
        return query.of_topic(query.reader.latestOffset(query.kept(start), limit))

    assert next_with(ReadMaxRows(4), 0, 0) == (2, 2)
    assert next_with(ReadMaxBytes(1), 0, 0) == (1, 1)
    assert next_with(ReadMinRows(5), 0, 0) == (4, 4), "the first batch does not wait"
    assert next_with(ReadMinRows(50), 4, 4) == (4, 4)


@needs_admission_control
def test_available_now_comes_to_the_ends_of_the_moment_it_began(cluster: Cluster, topic: str) -> None:
    query = AdmittedQuery(
        cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="16", minOffsetsPerTrigger="12"
    )
    query.reader.prepareForTriggerAvailableNow()
    write(cluster, topic, 0, 5)
    assert query.initial() == (0, 0)
    assert [query.next(0, 0), query.next(8, 8), query.next(10, 10)] == [(8, 8), (10, 10), (10, 10)]


@needs_admission_control
def test_the_first_batch_from_the_latest_ends_where_it_starts(cluster: Cluster, topic: str) -> None:
    query = AdmittedQuery(cluster, topic)
    assert query.initial() == (10, 10)
    write(cluster, topic, 0, 5)
    assert query.next(10, 10) == (10, 10)
    assert query.next(10, 10) == (15, 10)
    # Killed before that was finished: the first batch is made again with what is the latest by now.
    restarted = AdmittedQuery(cluster, topic)
    assert restarted.initial() == (15, 10)
    assert restarted.ranges((15, 10), (10, 10)) == []
    assert restarted.next(10, 10) == (15, 10)


@needs_admission_control
def test_few_records_wait_unless_all_is_asked_for(cluster: Cluster, topic: str) -> None:
    query = AdmittedQuery(cluster, topic, startingOffsets="earliest", minOffsetsPerTrigger="5")
    assert query.next(0, 0) == (10, 10)
    write(cluster, topic, 0, 4)
    assert query.next(10, 10) == (10, 10)
    assert query.next(10, 10, is_limited=False) == (14, 10)


def test_a_limit_needs_the_word_that_the_query_runs_for_good(cluster: Cluster, topic: str) -> None:
    least = {"kafka.bootstrap.servers": "h:1", "subscribe": topic, "maxOffsetsPerTrigger": "5"}
    if stream_readers.has_admission_control():
        stream_readers.stream_reader(read_options(least, is_stream=True))
        return
    with pytest.raises(OptionError, match=r"trigger=processingTime .* AvailableNow or Once"):
        stream_readers.stream_reader(read_options(least, is_stream=True))
    stream_readers.stream_reader(read_options(least | {"trigger": "processingTime"}, is_stream=True))


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew(cluster: Cluster, topic: str, fails: bool) -> None:
    query = Query(cluster, topic, startingOffsets="earliest", failOnDataLoss=str(fails))
    assert query.latest() == (10, 10)
    delete_topic(cluster, topic)
    create_topic(cluster, 2, name=topic)
    write(cluster, topic, 0, 3)
    assert query.latest() == (3, 0)
    if fails:
        with pytest.raises(DataLoss, match=f"{topic}-0 ends at 3"):
            query.ranges((10, 10), (3, 0))
    else:
        assert query.ranges((10, 10), (3, 0)) == []
        write(cluster, topic, 0, 2)
        assert query.ranges((3, 0), query.latest()) == [(0, 3, 5)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_partition_that_is_new_and_has_lost_its_first_records(
    cluster: Cluster, topic: str, fails: bool
) -> None:
    query = Query(cluster, topic, failOnDataLoss=str(fails))
    delete_records(cluster, topic, 1, 4)
    if fails:
        with pytest.raises(DataLoss, match=f"new partition {topic}-1 begins at 4"):
            query.ranges((10,), (10, 10))
    else:
        assert query.ranges((10,), (10, 10)) == [(1, 4, 10)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_gone(cluster: Cluster, topic: str, fails: bool) -> None:
    query = Query(
        cluster,
        topic,
        subscribePattern=f"{topic}|other",
        startingOffsets="earliest",
        failOnDataLoss=str(fails),
    )
    assert query.latest() == (10, 10)
    delete_topic(cluster, topic)
    assert query.latest() == ()
    if fails:
        with pytest.raises(DataLoss, match=f"{topic}-0, {topic}-1 were read before and are gone"):
            query.reader.partitions(query.kept((10, 10)), {})
    else:
        assert query.reader.partitions(query.kept((10, 10)), {}) == []


def test_what_is_open_is_no_loss(cluster: Cluster) -> None:
    """A place behind the last stable offset, as a query has it that read uncommitted before."""
    topic = create_topic(cluster)
    writer = Transactions(cluster, topic)
    writer.write(topic, 0, [b"open"] * 3)
    query = Query(cluster, topic, **{"kafka.isolation.level": "read_committed"})
    assert query.ranges((3,), (3,)) == []
    assert query.latest() == (3,)
    writer.end(True)
    wait_until(lambda: query.latest() == (4,), "the transaction has its marker")


@pytest.mark.parametrize("fails", [True, False])
def test_a_batch_that_is_made_again_and_has_lost_its_end(cluster: Cluster, topic: str, fails: bool) -> None:
    restarted = Query(cluster, topic, failOnDataLoss=str(fails))
    assert restarted.ranges((10, 15), (10, 15)) == []
    if fails:
        with pytest.raises(DataLoss, match=f"{topic}-1 ends at 10, where records up to 15"):
            restarted.ranges((10, 5), (10, 15))
    else:
        assert restarted.ranges((10, 5), (10, 15)) == [(1, 5, 10)]


def test_tasks_get_the_options_and_no_connection(cluster: Cluster, topic: str) -> None:
    query = Query(cluster, topic, startingOffsets="earliest")
    query.latest()
    copy = pickle.loads(pickle.dumps(query.reader))
    (first, _) = query.reader.partitions(query.kept((0, 0)), query.kept((10, 10)))
    assert sum(batch.num_rows for batch in copy.read(pickle.loads(pickle.dumps(first)))) == 10
