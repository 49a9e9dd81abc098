"""Meters of quotas, with figures worked out by hand. `compat_tests/differential/test_quota_meters.py` asks
Kafka's own classes."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.security.quota_meters import WAIT_MS_MAX, RateMeter, TokenBucket

START_MS = 1_000_000


def test_a_meter_without_events_counts_ten_windows():
    meter = RateMeter(100)
    assert meter.charge(1_000, START_MS) == 0
    assert meter.per_second(START_MS) == 100


def test_the_wait_is_as_long_as_the_rate_needs_to_sink():
    meter = RateMeter(100)
    # 150 a second over 10 s are 100 a second over 15 s.
    assert meter.charge(1_500, START_MS) == 5_000
    # Two whole windows are there, and eight are added: still 10 s.
    assert meter.throttle_ms(START_MS + 2_000) == 5_000
    assert meter.throttle_ms(START_MS + 10_900) == 4_100
    assert meter.throttle_ms(START_MS + 11_000) == 0


def test_the_wait_is_rounded_half_up():
    meter = RateMeter(1_000)
    assert meter.charge(10_000.4, START_MS) == 0
    assert meter.charge(0.2, START_MS) == 1


def test_a_window_counts_until_its_last_event_is_eleven_seconds_old():
    meter = RateMeter(100)
    meter.record(600, START_MS)
    meter.record(400, START_MS + 900)
    meter.record(1, START_MS + 2_000)
    assert meter.per_second(START_MS + 11_899) == 1_001 * 1_000 / 11_899
    # Of the other window there are nine whole ones and 900 ms; one is added.
    assert meter.per_second(START_MS + 11_900) == 1 * 1_000 / 10_900


def test_what_is_within_the_credit_makes_nobody_wait():
    meter = RateMeter(100)
    assert meter.credit == 1_000
    meter.record(400, START_MS)
    meter.record(500, START_MS + 5_000)
    assert meter.credit == 100
    assert meter.charge(meter.credit, START_MS + 5_001) == 0
    assert meter.credit == 0
    assert meter.charge(1, START_MS + 5_001) > 0
    assert meter.credit < 0


def test_what_is_taken_back_leaves_nothing():
    meter = RateMeter(1_000)
    meter.record(5_000, START_MS)
    assert meter.charge(20_000, START_MS + 10) == 14_990
    meter.record(-20_000, START_MS + 10)
    assert meter.throttle_ms(START_MS + 10) == 0
    assert meter.per_second(START_MS) == 500


def test_a_new_bound_is_for_what_was_recorded_before_it_too():
    meter = RateMeter(1_000)
    assert meter.charge(10_000, START_MS) == 0
    meter.bound = 500
    assert meter.charge(0, START_MS) == 10_000
    meter.bound = 2_000
    assert meter.charge(0, START_MS) == 0


def test_a_wait_has_a_limit():
    assert RateMeter(1, wait_ms_max=1_000).charge(1e9, START_MS) == 1_000
    assert RateMeter(1e-9).charge(1e9, START_MS) == WAIT_MS_MAX
    assert RateMeter(0, wait_ms_max=1_000).charge(1, START_MS) == 1_000


def test_windows_may_be_other_than_eleven_of_a_second():
    meter = RateMeter(100, samples=3, window_ms=2_000)
    assert meter.value_max == 400
    assert meter.charge(400, START_MS) == 0
    # 500 in 4.001 s instead of 5 s.
    assert meter.charge(100, START_MS + 1) == 999


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_running_sum_is_the_sum_of_the_windows(seed):
    rng, now_ms = random.Random(seed), START_MS
    meter = RateMeter(1_000)
    events: list[tuple[int, int]] = []
    windows: list[list[int]] = []
    for _ in range(300):
        now_ms += rng.choice((0, 1, 300, 999, 1_000, 2_500, 11_000))
        value = rng.choice((1, 100, 5_000, -50))
        if not windows or now_ms - windows[-1][0] >= 1_000:
            windows.append([now_ms, now_ms, 0])
        windows[-1][1:] = now_ms, windows[-1][2] + value
        events.append((now_ms, value))
        waited_ms = meter.charge(value, now_ms)
        alive = [one for one in windows if now_ms - one[1] < 11_000]
        total = sum(one[2] for one in alive)
        age_ms = now_ms - alive[0][0]
        age_ms += max(10 - age_ms // 1_000, 0) * 1_000
        assert meter.per_second(now_ms) == total * 1_000 / age_ms
        over = total * 1_000 / age_ms - 1_000
        assert waited_ms == max(int(over / 1_000 * age_ms + 0.5), 0)


def test_a_bucket_is_full_at_first_and_may_be_overdrawn():
    bucket = TokenBucket(2)
    assert bucket.tokens(START_MS) == 22
    bucket.record(30, START_MS)
    assert bucket.tokens(START_MS) == -8
    assert bucket.throttle_ms(START_MS) == 4_000
    assert bucket.throttle_ms(START_MS + 3_000) == 1_000
    assert bucket.throttle_ms(START_MS + 4_000) == 0
    assert bucket.tokens(START_MS + 60_000) == 22


def test_a_bucket_is_filled_at_its_new_bound():
    bucket = TokenBucket(2)
    bucket.record(32, START_MS)
    bucket.bound = 10
    assert bucket.throttle_ms(START_MS) == 1_000
    bucket.bound = 1
    assert bucket.tokens(START_MS + 60_000) == 11
