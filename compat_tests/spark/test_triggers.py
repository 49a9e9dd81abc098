"""When a stream takes a batch, and how much: every trigger and every rate limit of Spark's connector."""

from __future__ import annotations

import json
import pathlib
import threading
from collections import Counter

import pytest

from compat_tests.brokers import TestBroker
from compat_tests.clients import wait_until
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.topics import KafkaTables, batch_sizes, finish, values


def test_once_takes_all_that_there_is_in_one_batch_whatever_the_limit(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("once", 2, range(100))

    def run() -> list[int]:
        stream = tables.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
        query = tables.to_files(stream, tmp_path).trigger(once=True).start()
        query.awaitTermination()
        return batch_sizes(query)

    assert run() == [100]
    assert run() == []
    tables.produce(topic, range(100, 150), 2)
    assert run() == [50]
    assert tables.values_in_files(tmp_path) == list(range(150))


def test_available_now_stops_at_what_there_was_when_it_began(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("now", 2, range(60))
    more = iter([range(60, 100), range(100, 140)])

    def write(frame: object, number: int) -> None:
        batches.append(values(frame))  # type: ignore[arg-type]
        tables.produce(topic, next(more, range(0)), 2)

    batches: list[list[int]] = []
    stream = tables.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    writer = stream.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(tmp_path))
    finish(writer)
    assert batches == [list(range(30)), list(range(30, 60))]
    finish(writer)
    assert [len(batch) for batch in batches[2:]] == [30, 30, 20]
    assert sorted(value for batch in batches for value in batch) == list(range(140))


@pytest.mark.nightly
def test_a_processing_time_takes_what_came_in_between(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("interval", 2, range(10))
    stream = tables.stream(topic, startingOffsets="earliest")
    query = tables.to_files(stream, tmp_path).trigger(processingTime="1 second").start()
    try:
        for start in range(10, 50, 10):
            tables.produce(topic, range(start, start + 10), 2)
            wait_until(lambda: sum(batch_sizes(query)) == start + 10, "it is read")  # noqa: B023
    finally:
        query.stop()
    assert tables.values_in_files(tmp_path) == list(range(50))


def test_a_batch_waits_until_it_is_worth_it(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topic = tables.new_topic("least", 2, range(100))
    limits = {"minOffsetsPerTrigger": 50, "maxOffsetsPerTrigger": 80, "maxTriggerDelay": "1h"}
    stream = tables.stream(topic, startingOffsets="earliest", **limits)
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()  # the first batch of a query never waits
        assert batch_sizes(query) == [80]
        tables.produce(topic, range(100, 120), 2)
        query.processAllAvailable()
        assert batch_sizes(query) == [80]
        tables.produce(topic, range(120, 130), 2)
        wait_until(lambda: sum(batch_sizes(query)) == 130, "fifty have come together")
    finally:
        query.stop()
    assert batch_sizes(query) == [80, 50]
    assert tables.values_in_files(tmp_path) == list(range(130))


@pytest.mark.nightly
def test_a_batch_that_is_not_worth_it_comes_when_the_delay_is_over(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("delay", 2, range(10))
    limits = {"minOffsetsPerTrigger": 1000, "maxTriggerDelay": "2s"}
    stream = tables.stream(topic, startingOffsets="earliest", **limits)
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        tables.produce(topic, range(10, 50), 2)
        tables.wait_for_files(query, tmp_path, list(range(50)))
    finally:
        query.stop()


# -- continuous processing: a task for each partition that reads without end


class Continuous:
    """A continuous query from topic to topic."""

    def __init__(self, tables: KafkaTables, source: str, sink: str, directory: pathlib.Path) -> None:
        self._tables, self._source, self._sink, self._directory = tables, source, sink, directory

    def start(self) -> None:
        stream = self._tables.stream(self._source, startingOffsets="earliest", failOnDataLoss="false")
        writer = self._tables.to_topic(stream, self._sink, self._directory)
        self.query = writer.trigger(continuous="200 milliseconds").start()

    def stop_when_committed(self, count: int) -> None:
        """Once the last epoch that is committed ends behind so many records of the source. On a busy machine
        commits come some epochs late: their number says nothing."""
        wait_until(lambda: self.committed() == count, f"{count} records are committed")
        self.query.stop()

    def committed(self) -> int:
        checkpoint = self._directory / "checkpoint"
        epoch = max((int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")), default=None)
        if epoch is None:
            return 0
        ends = (checkpoint / "offsets" / str(epoch)).read_text().splitlines()[-1]
        return sum(json.loads(ends)[self._source].values())

    def wait_for(self, numbers: range) -> None:
        def are_there() -> bool:
            assert self.query.exception() is None, self.query.exception()
            return self.counts().keys() == set(numbers)

        wait_until(are_there, f"{numbers} are in the sink")

    def counts(self) -> Counter[int]:
        """Read by another client: the query keeps every slot of the session."""
        ends = TopicAdmin(self._tables.client.bootstrap).end_offsets(self._sink)
        records = self._tables.client.read(self._sink, dict.fromkeys(ends, 0), sum(ends.values()))
        return Counter(int(record.value or b"-1") for record in records)


def test_a_continuous_query_goes_on_from_its_checkpoint(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    source, sink = tables.new_topic("source", 2, range(50)), tables.new_topic("sink", 2)
    continuous = Continuous(tables, source, sink, tmp_path)
    continuous.start()
    try:
        continuous.wait_for(range(50))
        tables.produce(source, range(50, 100), 2)
        continuous.wait_for(range(100))
        continuous.stop_when_committed(100)
        tables.produce(source, range(100, 150), 2)
        continuous.start()
        continuous.wait_for(range(150))
    finally:
        continuous.query.stop()
    # At least once by its nature, but what was committed is not done again.
    assert all(count == 1 for number, count in continuous.counts().items() if number < 100)


@pytest.mark.nightly
def test_a_continuous_query_loses_nothing_over_a_crash(
    tables: KafkaTables, broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    source, sink = tables.new_topic("source", 2, range(100)), tables.new_topic("sink", 2)
    continuous = Continuous(tables, source, sink, tmp_path)
    continuous.start()
    try:
        continuous.wait_for(range(100))
        down = threading.Thread(target=broker.crash_and_restart)
        down.start()
        tables.produce(source, range(100, 300), 2)
        down.join()
        continuous.wait_for(range(300))
    finally:
        continuous.query.stop()


@pytest.mark.nightly
def test_a_continuous_query_takes_in_partitions_that_are_added(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    source, sink = tables.new_topic("source", 1, range(50)), tables.new_topic("sink", 1)
    continuous = Continuous(tables, source, sink, tmp_path)
    continuous.start()
    try:
        continuous.wait_for(range(50))
        TopicAdmin(tables.client.bootstrap).grow(source, 2)
        tables.produce(source, range(50, 100), 2)
        continuous.wait_for(range(100))
    finally:
        continuous.query.stop()
