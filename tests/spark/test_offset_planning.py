"""Ranges, tasks and limits, as arithmetic; the figures are what Spark's own source does with the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.offsets import (
    OffsetRange,
    ends_within,
    from_checkpoint,
    from_json,
    limited,
    nested,
    plan,
    size_between,
    to_checkpoint,
    to_json,
)
from odradek.spark.options import read_options

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def options(**more):
    return read_options(LEAST | more, is_stream="maxOffsetsPerTrigger" in more)


def sizes(ranges):
    return [(one.partition, one.size) for one in ranges]


def whole(*of_partitions):
    return [OffsetRange("t", number, 0, size) for number, size in enumerate(of_partitions)]


def test_offsets_are_written_as_spark_writes_them_and_always_in_the_same_order():
    offsets = {"b": {10: 5, 9: 4}, "a": {0: 1}}
    assert to_json(offsets) == '{"a":{"0":1},"b":{"9":4,"10":5}}'
    assert from_json(to_json(offsets)) == offsets
    assert json.dumps(to_checkpoint(offsets)) == json.dumps(
        to_checkpoint(from_checkpoint(to_checkpoint(offsets)))
    )


def test_without_options_a_partition_is_a_task_and_an_empty_one_is_none():
    ranges = [OffsetRange("t", 1, 5, 9), OffsetRange("t", 0, 3, 3), OffsetRange("s", 2, 0, 1)]
    assert plan(ranges, options()) == [OffsetRange("s", 2, 0, 1), OffsetRange("t", 1, 5, 9)]


def test_what_ends_before_it_starts_is_empty():
    assert plan([OffsetRange("t", 0, 9, 3)], options(minPartitions=4)) == []


def test_a_task_has_no_more_than_the_records_that_are_allowed():
    assert sizes(plan(whole(10, 3), options(maxRecordsPerPartition=4))) == [(0, 3), (0, 3), (0, 4), (1, 3)]


@pytest.mark.parametrize(
    ("of_partitions", "at_least", "expected"),
    [
        ((100,), 3, [(0, 33), (0, 33), (0, 34)]),
        ((50, 50), 4, [(0, 25), (0, 25), (1, 25), (1, 25)]),
        ((50, 50), 2, [(0, 50), (1, 50)]),
        ((1, 100), 5, [(0, 1), (1, 25), (1, 25), (1, 25), (1, 25)]),
        ((2,), 5, [(0, 1), (0, 1)]),
    ],
)
def test_large_partitions_are_split_until_there_are_enough_tasks(of_partitions, at_least, expected):
    assert sizes(plan(whole(*of_partitions), options(minPartitions=at_least))) == expected


@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(50, 3000),
)
def test_tasks_cover_each_offset_once(of_partitions, at_least, most):
    chosen = {"minPartitions": at_least, "maxRecordsPerPartition": most}
    tasks = plan(whole(*of_partitions), options(**{name: n for name, n in chosen.items() if n is not None}))
    for number, size in enumerate(of_partitions):
        mine = [task for task in tasks if task.partition == number]
        assert [task.start for task in mine] == [0, *(task.end for task in mine[:-1])][: len(mine)]
        assert sum(task.size for task in mine) == size
        assert all(0 < task.size <= (most or size) for task in mine)


def test_a_limit_is_shared_by_what_is_waiting():
    start, latest = {"t": {0: 0, 1: 50, 2: 7}}, {"t": {0: 100, 1: 350, 2: 7}}
    end = limited(start, latest, options(maxOffsetsPerTrigger=40))
    assert end == {"t": {0: 10, 1: 80, 2: 7}}
    assert size_between(start, end) == 40


def test_a_limit_of_bytes_is_shared_by_the_bytes_that_are_waiting():
    start, latest = {"t": {0: 0, 1: 50, 2: 7}}, {"t": {0: 100, 1: 350, 2: 7}}
    sizes = {("t", 0): 30.0, ("t", 1): 10.0}
    end = ends_within(start, latest, 600, sizes)
    assert end == {"t": {0: 10, 1: 80, 2: 7}}
    assert ends_within(start, latest, 6_000, sizes) == latest
    assert ends_within(start, latest, 1, sizes) == {"t": {0: 1, 1: 51, 2: 7}}


def test_a_limit_starves_nobody():
    start, latest = {"t": {0: 0, 1: 0}}, {"t": {0: 1_000_000, 1: 1}}
    assert limited(start, latest, options(maxOffsetsPerTrigger=10)) == {"t": {0: 9, 1: 1}}


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5),
    st.integers(1, 500),
)
def test_limited_batches_come_to_the_end_and_keep_their_limit(places, most):
    place = nested((("t", number), start) for number, (start, _) in enumerate(places))
    latest = nested((("t", number), start + more) for number, (start, more) in enumerate(places))
    for _ in range(len(places) * 1000 + 1):
        if place == latest:
            break
        end = limited(place, latest, options(maxOffsetsPerTrigger=most))
        # One offset for each partition that would get less is on top, as in Spark's source.
        assert 0 < size_between(place, end) <= most + len(places)
        place = end
    assert place == latest


def test_a_partition_that_was_not_there_before_counts_whole():
    assert size_between({"t": {0: 5}}, {"t": {0: 7, 1: 3}}) == 5
