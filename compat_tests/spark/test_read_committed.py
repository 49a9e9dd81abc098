"""Spark reads with `kafka.isolation.level=read_committed`: what is committed and before all that is open."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.clients import wait_until
from compat_tests.kit import readers
from compat_tests.spark.topics import KafkaTables, batch_sizes, finish, values
from compat_tests.stories import topic_name
from compat_tests.transactions.libraries.confluent import ConfluentProducer

COMMITTED = {"kafka.isolation.level": "read_committed"}
TIMEOUT_MS = 600_000
"""What a test leaves open stays open."""


class Writer:
    """A transactional producer that writes numbers to a topic, to its partitions in turn."""

    def __init__(self, tables: KafkaTables, topic: str, partitions: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._producer = ConfluentProducer(tables.client.bootstrap, topic_name("spark"), TIMEOUT_MS)
        self._producer.open()

    def write(self, numbers: range, end: str | None) -> None:
        """One transaction of its own; `end` is commit, abort, or None: left open."""
        self._producer.begin()
        self.write_more(numbers)
        if end is not None:
            self.end(end)

    def write_more(self, numbers: range) -> None:
        for number in numbers:
            self._producer.send((self._topic, number % self._partitions), b"%d" % number)
        self._producer.flush()

    def end(self, how: str) -> None:
        getattr(self._producer, how)()

    def close(self) -> None:
        self._producer.abandon()


@pytest.fixture
def topic(tables: KafkaTables) -> str:
    return tables.new_topic("committed", 2)


@pytest.fixture
def writers(tables: KafkaTables, topic: str) -> Iterator[list[Writer]]:
    writers = [Writer(tables, topic, 2) for _ in range(2)]
    yield writers
    for writer in writers:
        writer.close()


def wait_for_markers(tables: KafkaTables, topic: str) -> None:
    partitions = [(topic, number) for number in range(2)]
    assert readers.wait_until_stable(tables.client.bootstrap, partitions, 30)


def test_a_table_has_what_is_committed_before_the_first_open_transaction(
    tables: KafkaTables, topic: str, writers: list[Writer]
) -> None:
    one, other = writers
    one.write(range(20), "commit")
    one.write(range(20, 40), "abort")
    other.write(range(40, 60), "commit")
    wait_for_markers(tables, topic)
    other.write(range(60, 80), None)
    one.write(range(80, 100), "commit")  # behind the open one, so nobody sees it yet
    seen = [*range(20), *range(40, 60)]
    assert values(tables.read(topic, **COMMITTED)) == seen
    assert values(tables.read(topic)) == list(range(100))
    other.end("abort")
    wait_for_markers(tables, topic)
    assert values(tables.read(topic, **COMMITTED)) == [*seen, *range(80, 100)]
    assert values(tables.read(topic, **COMMITTED, minPartitions=7)) == [*seen, *range(80, 100)]


def test_a_topic_of_nothing_but_aborted_transactions_is_an_empty_table(
    tables: KafkaTables, topic: str, writers: list[Writer]
) -> None:
    for start in range(0, 60, 20):
        writers[0].write(range(start, start + 20), "abort")
    wait_for_markers(tables, topic)
    assert values(tables.read(topic, **COMMITTED)) == []
    assert values(tables.read(topic)) == list(range(60))


def test_a_checkpointed_stream_takes_each_committed_value_once(
    tables: KafkaTables, topic: str, writers: list[Writer], tmp_path: pathlib.Path
) -> None:
    one, other = writers

    def run() -> None:
        stream = tables.stream(topic, startingOffsets="earliest", **COMMITTED)
        finish(tables.to_files(stream, tmp_path))

    one.write(range(30), "commit")
    wait_for_markers(tables, topic)
    other.write(range(30, 40), None)
    one.write(range(40, 70), "commit")
    run()
    assert tables.values_in_files(tmp_path) == list(range(30))
    other.write_more(range(70, 80))
    other.end("commit")
    one.write(range(80, 90), "abort")
    wait_for_markers(tables, topic)
    run()
    assert tables.values_in_files(tmp_path) == list(range(80))
    run()
    assert tables.values_in_files(tmp_path) == list(range(80))


def test_a_running_stream_sees_a_transaction_when_it_is_committed(
    tables: KafkaTables, topic: str, writers: list[Writer], tmp_path: pathlib.Path
) -> None:
    one, other = writers
    stream = tables.stream(topic, startingOffsets="earliest", **COMMITTED)
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        one.write(range(20), "commit")
        wait_until(lambda: sum(batch_sizes(query)) == 20, "the committed values are read")
        other.write(range(20, 40), None)
        one.write(range(40, 60), "abort")
        query.processAllAvailable()
        assert tables.values_in_files(tmp_path) == list(range(20))
        other.end("commit")
        wait_until(lambda: tables.values_in_files(tmp_path) == list(range(40)), "the other ones are, too")
    finally:
        query.stop()
