"""The sink: where its rows go, and what is in the topic when a batch fails in the middle and runs again."""

from __future__ import annotations

import pathlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from compat_tests.brokers import TestBroker
from compat_tests.clients import Message, wait_until
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.topics import KafkaTables, batch_sizes, finish, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUICK_TO_GIVE_UP = {"kafka.max.block.ms": "5000"}


def numbers(tables: KafkaTables, count: int, failing_at: int | None = None) -> DataFrame:
    """The numbers below `count` as values, by one task and in order; at one of them the task fails."""
    fails = "raise_error('the row that fails')"
    value = "id" if failing_at is None else f"IF(id = {failing_at}, {fails}, id)"
    return tables.spark.range(0, count, 1, 1).selectExpr(f"CAST(CAST({value} AS STRING) AS BINARY) AS value")


def check_second_run(
    tables: KafkaTables, topic: str, written: list[int], sent: range, expected: range
) -> None:
    """After a write that failed and one that did not. `written` was seen in between, `sent` may be there
    twice: what a task that failed has handed to its producer arrives all the same, sooner or later.
    """
    counts = Counter(values(tables.read(topic)))
    assert sorted(counts) == list(expected)
    twice = {number for number, count in counts.items() if count == 2}
    assert set(written) <= twice <= set(sent)
    assert max(counts.values()) <= 2


def test_a_row_without_a_partition_goes_where_its_key_belongs(tables: KafkaTables) -> None:
    from kafka.partitioner.default import murmur2

    topic = tables.new_topic("partitions", 5)
    chosen = [(b"key-%d" % n, b"%d" % n, n % 5) for n in range(20)]
    by_key = [(b"key-%d" % n, b"%d" % n, None) for n in range(20, 120)]
    tables.write(tables.rows([*chosen, *by_key], "key binary, value binary, partition int"), topic)
    places = {int(row.value): row.partition for row in tables.read(topic).collect()}
    expected = {n: n % 5 for n in range(20)}
    expected |= {n: (murmur2(b"key-%d" % n) & 0x7FFFFFFF) % 5 for n in range(20, 120)}
    assert places == expected
    assert sorted(Counter(places.values())) == list(range(5))


def test_keys_headers_and_partitions_of_a_stream_arrive_as_they_were(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    source, sink = tables.new_topic("source", 3), tables.new_topic("sink", 3)
    headers = (("h", b"1"), ("empty", b""), ("h", b"2"))
    sent = [Message(b"%d" % n, b"key-%d" % n, headers[: n % 4], n % 3) for n in range(30)]
    sent += [Message(None, b"tombstone", (), 1), Message(b"", b"", (), 2), Message(b"30", None, (), 0)]
    tables.client.produce(source, sent)
    stream = tables.stream(source, startingOffsets="earliest", includeHeaders="true")
    finish(tables.to_topic(stream, sink, tmp_path, "key", "value", "headers", "partition"))
    found = tables.client.read(sink, dict.fromkeys(range(3), 0), len(sent))
    for number in range(3):
        assert [one.content() for one in found if one.partition == number] == [
            (one.key, one.value, one.headers) for one in sent if one.partition == number
        ]


def test_a_partition_that_there_is_not_fails_the_write(tables: KafkaTables) -> None:
    topic = tables.new_topic("few", 2)
    rows = tables.rows([(b"1", 1), (b"2", 2)], "value binary, partition int").coalesce(1)
    with pytest.raises(Exception, match="not present in metadata"):
        tables.write(rows, topic, **QUICK_TO_GIVE_UP)
    assert set(values(tables.read(topic))) <= {1}


def test_a_row_without_a_topic_fails_the_write(tables: KafkaTables) -> None:
    topic = tables.new_topic("named")
    rows = tables.rows([(topic, b"1"), (None, b"2")], "topic string, value binary").coalesce(1)
    with pytest.raises(Exception, match=r"null topic present in the data|contains a null topic"):
        tables.write(rows)
    assert set(values(tables.read(topic))) <= {1}


def test_a_batch_write_that_fails_in_the_middle_and_runs_again_loses_nothing(tables: KafkaTables) -> None:
    topic = tables.new_topic("middle", 3)
    with pytest.raises(Exception, match="the row that fails"):
        tables.write(numbers(tables, 1000, failing_at=700), topic)
    written = values(tables.read(topic))
    assert set(written) <= set(range(700))
    assert written == sorted(set(written))
    tables.write(numbers(tables, 1000), topic)
    check_second_run(tables, topic, written, range(700), range(1000))


def test_a_stream_that_fails_in_the_middle_of_a_batch_does_only_that_one_again(
    tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    source, sink = tables.new_topic("source", 1, range(500)), tables.new_topic("sink", 2)

    def run(value: str) -> list[int]:
        stream = tables.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        query = finish(tables.to_topic(stream, sink, tmp_path, "key", f"{value} AS value"))
        return batch_sizes(query)

    fails = "raise_error('the row that fails')"
    with pytest.raises(Exception, match="the row that fails"):
        run(f"IF(offset = 250, {fails}, value)")
    written = values(tables.read(sink))
    assert written[:200] == list(range(200))
    assert set(written) <= set(range(250))
    assert run("value") == [100, 100, 100]
    check_second_run(tables, sink, written[200:], range(200, 250), range(500))


def test_a_batch_write_over_a_crash_of_the_broker_has_every_row_once(
    tables: KafkaTables, broker: TestBroker
) -> None:
    topic = tables.new_topic("crash", 4)
    count = 300_000
    rows = tables.spark.range(0, count, 1, 4).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        "CAST(rpad(CAST(id AS STRING), 200, ' ') AS BINARY) AS value",
    )
    admin = TopicAdmin(tables.client.bootstrap)

    def written() -> int:
        return sum(admin.end_offsets(topic).values())

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(tables.write, rows, topic)
        wait_until(lambda: writing.done() or written() > 0, "it has begun")
        assert written() < count
        broker.crash_and_restart()
        writing.result()
    sums = tables.read(topic).selectExpr(
        "count(*) AS count",
        "count(DISTINCT key) AS keys",
        "sum(CAST(trim(CAST(value AS STRING)) AS LONG)) AS sum",
    )
    assert tuple(sums.first() or ()) == (count, count, count * (count - 1) // 2)
