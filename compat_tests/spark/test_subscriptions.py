"""Which topics and partitions a stream reads: named, by pattern, assigned, and those that come later."""

from __future__ import annotations

import json
import pathlib

import pytest

from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.topics import KafkaTables, finish, values
from compat_tests.stories import topic_name


@pytest.fixture
def admin(tables: KafkaTables) -> TopicAdmin:
    return TopicAdmin(tables.client.bootstrap)


def test_topics_that_appear_later_are_read_from_their_beginning(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    prefix = topic_name("pattern")

    def add(name: str, numbers: range, partitions: int) -> None:
        admin.create(f"{prefix}-{name}", partitions)
        tables.produce(f"{prefix}-{name}", numbers, partitions)

    add("one", range(20), 2)
    add("two.not", range(1000, 1010), 1)
    stream = tables.stream("", subscribePattern=f"{prefix}-[a-z]+$", startingOffsets="earliest")
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        tables.wait_for_files(query, tmp_path, list(range(20)))
        add("later", range(20, 50), 3)
        tables.wait_for_files(query, tmp_path, list(range(50)))
        tables.produce(f"{prefix}-one", range(50, 60), 2)
        add("last", range(60, 70), 1)
        tables.wait_for_files(query, tmp_path, list(range(70)))
    finally:
        query.stop()


def test_a_pattern_finds_later_topics_after_a_restart_from_latest(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    prefix = topic_name("latest")
    admin.create(f"{prefix}-a")
    tables.produce(f"{prefix}-a", range(10))

    def run() -> list[int]:
        finish(tables.to_files(tables.stream("", subscribePattern=f"{prefix}-.*"), tmp_path))
        return tables.values_in_files(tmp_path)

    assert run() == []
    tables.produce(f"{prefix}-a", range(10, 20))
    admin.create(f"{prefix}-b")
    tables.produce(f"{prefix}-b", range(20, 30))
    # What was there is behind the checkpoint; of a new topic nothing may be missed.
    assert run() == list(range(10, 30))


def test_partitions_that_are_added_to_a_running_query_are_read_from_their_beginning(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    topic = tables.new_topic("grows", 1, range(10))
    stream = tables.stream(topic, startingOffsets="earliest")
    query = tables.to_files(stream, tmp_path).trigger(processingTime="0 seconds").start()
    try:
        tables.wait_for_files(query, tmp_path, list(range(10)))
        for partitions, start in ((2, 10), (5, 40)):
            admin.grow(topic, partitions)
            tables.produce(topic, range(start, start + 30), partitions)
            expected = list(range(start + 30))
            tables.wait_for_files(query, tmp_path, expected)
    finally:
        query.stop()


def test_a_stream_reads_the_partitions_that_it_is_assigned_and_no_others(
    tables: KafkaTables, admin: TopicAdmin, tmp_path: pathlib.Path
) -> None:
    one, other = tables.new_topic("one", 3, range(30)), tables.new_topic("other", 2, range(100, 110))

    def run() -> list[int]:
        assigned = json.dumps({one: [0, 2], other: [1]})
        finish(tables.to_files(tables.stream("", assign=assigned, startingOffsets="earliest"), tmp_path))
        return tables.values_in_files(tmp_path)

    expected = [n for n in range(30) if n % 3 != 1] + list(range(101, 110, 2))
    assert run() == expected
    admin.grow(one, 4)
    tables.produce(one, range(32, 40), 4)
    assert run() == sorted([*expected, *(n for n in range(32, 40) if n % 4 in (0, 2))])


def test_several_topics_are_one_stream(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    topics = [tables.new_topic("several", n + 1, range(100 * n, 100 * n + 10)) for n in range(3)]
    per_topic = ({"0": 5}, {"0": -2, "1": -1}, dict.fromkeys("012", 2))
    starts = json.dumps(dict(zip(topics, per_topic, strict=True)))
    finish(tables.to_files(tables.stream(", ".join(topics), startingOffsets=starts), tmp_path))
    # Of the second topic the even half; of the third what lies behind the first two of each partition.
    expected = [*range(5, 10), *range(100, 110, 2), *(n for n in range(200, 210) if n >= 206)]
    assert tables.values_in_files(tmp_path) == expected


def test_a_topic_that_there_is_not_is_an_error_and_is_not_made(
    tables: KafkaTables, admin: TopicAdmin
) -> None:
    missing = topic_name("missing")
    with pytest.raises(Exception, match=r"UnknownTopicOrPartition|does not host this topic-partition"):
        values(tables.read(missing))
    assert not admin.exists(missing)
