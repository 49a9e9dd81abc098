"""The rate of throttled replicas, by Kafka's definition over windows, and which replicas are throttled.

The figures are of Kafka's `SimpleRate`, worked out by hand; `compat_tests/cluster/test_throttles.py` asks the
class itself.
"""

import random

import pytest

from odradek.coordinator.replication.replication_quota import (
    UNLIMITED,
    ReplicationQuota,
    WindowedRate,
    throttled_partitions,
)

START_MS = 1_000_000


def rate_of(*records, window_count=2, window_ms=1_000):
    """A meter with (time, bytes) recorded, times counted from `START_MS`."""
    rate = WindowedRate(window_count, window_ms)
    for at_ms, size_bytes in records:
        rate.record(size_bytes, START_MS + at_ms)
    return rate


def measured(rate, at_ms):
    return rate.bytes_per_second(START_MS + at_ms)


def test_the_first_window_counts_as_a_whole_one():
    rate = rate_of((0, 500))
    assert measured(rate, 0) == 500
    assert measured(rate, 999) == 500
    assert measured(rate, 2_000 - 1) == 500 * 1000 / 1999


def test_the_time_counts_from_the_begin_of_the_oldest_window_until_now():
    rate = rate_of((0, 300), (1_000, 300), (1_900, 300))
    assert measured(rate, 1_900) == 900 * 1000 / 1900


def test_a_window_is_forgotten_when_its_last_record_is_older_than_all_windows_together():
    rate = rate_of((0, 1_000), (900, 1_000), (1_000, 10))
    # It began before the windows, and overlaps them.
    assert measured(rate, 2_899) == 2_010 * 1000 / 2899
    assert measured(rate, 2_900) == 10 * 1000 / 1900
    assert measured(rate, 3_000) == 0


def test_a_forgotten_window_begins_anew_when_it_is_measured():
    rate = rate_of((0, 1_000))
    assert measured(rate, 60_000) == 0
    rate.record(700, START_MS + 60_500)
    assert measured(rate, 60_500) == 700
    assert measured(rate, 61_500) == 700 * 1000 / 1500


def test_as_many_windows_count_as_there_are_and_the_one_that_began_before_them():
    rate = rate_of((0, 1), (1_000, 10), (1_001, 10), (2_000, 100), (3_000, 1_000))
    assert measured(rate, 3_000) == 1_120 * 1000 / 2000
    assert measured(rate, 3_001) == 1_100 * 1000 / 1001


def test_a_meter_that_is_measured_before_the_first_record_begins_with_the_measurement():
    rate = WindowedRate(2, 1_000)
    assert rate.bytes_per_second(START_MS) == 0
    rate.record(600, START_MS + 500)
    assert measured(rate, 1_500) == 600 * 1000 / 1500


@pytest.mark.parametrize("seed", range(20))
def test_whoever_sends_only_below_the_limit_keeps_it_over_the_measured_time(seed):
    rng = random.Random(seed)
    limit, window_count, piece_max = 100_000, 11, 30_000
    quota = ReplicationQuota(window_count, 1_000)
    quota.bytes_per_second_max = limit
    quota.throttle("t", {0})
    now_ms, sent = START_MS, []
    for _ in range(5_000):
        now_ms += rng.choice((1, 5, 20, 200))
        if not quota.is_exceeded(now_ms):
            sent.append((now_ms, rng.randrange(1, piece_max)))
            quota.record(("t", 0), sent[-1][1], now_ms)
    total = sum(size for _, size in sent)
    seconds = (now_ms - START_MS) / 1000
    # What goes over the limit, a piece each time, is forgotten with its window.
    assert total <= (limit + piece_max / window_count) * (seconds + 1)
    assert total >= limit * seconds * 0.9


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("0:1,1:2,2:1", {0, 2}),
        ("0:2", set()),
        ("", set()),
        (",0:1,,", {0}),
        (" 0:1 , 3:1", {0, 3}),
        ("0:11", set()),
    ],
)
def test_the_replicas_of_this_node_are_throttled(text, partitions):
    found = throttled_partitions(text, 1)
    assert {index for index in range(12) if index in found} == partitions


def test_a_star_is_for_every_partition():
    assert 7 in throttled_partitions("*", 1)
    assert 0 in throttled_partitions(" * ", 5)


def test_bytes_of_throttled_replicas_alone_count():
    quota = ReplicationQuota()
    quota.bytes_per_second_max = 10
    quota.throttle("t", {0})
    quota.record(("t", 1), 1_000, START_MS)
    quota.record(("u", 0), 1_000, START_MS)
    assert not quota.is_exceeded(START_MS)
    quota.record(("t", 0), 10, START_MS)
    assert not quota.is_exceeded(START_MS)  # the limit itself is kept
    quota.record(("t", 0), 1, START_MS)
    assert quota.is_exceeded(START_MS)
    assert not quota.is_exceeded(START_MS + 1_100)


def test_without_a_limit_nothing_is_too_fast_but_it_is_known_how_fast_it_was():
    quota = ReplicationQuota()
    assert quota.bytes_per_second_max == UNLIMITED
    quota.throttle("t", throttled_partitions("*", 1))
    quota.record(("t", 3), 1 << 40, START_MS)
    assert not quota.is_exceeded(START_MS)
    quota.bytes_per_second_max = 1 << 20
    assert quota.is_exceeded(START_MS)


def test_a_throttle_that_is_taken_away_is_gone():
    quota = ReplicationQuota()
    quota.throttle("t", {0})
    assert quota.is_throttled(("t", 0))
    quota.throttle("t", {1})
    assert not quota.is_throttled(("t", 0))
    assert quota.has_throttled
    quota.forget("t")
    quota.forget("t")
    assert not quota.is_throttled(("t", 1))
    assert not quota.has_throttled
    quota.throttle("t", throttled_partitions("*", 1))
    assert quota.has_throttled
    # Those of other nodes do not count.
    quota.throttle("t", throttled_partitions("0:2", 1))
    assert not quota.has_throttled
