"""How long a core was away: seen in the clock, not in the machine of the test."""

import os

import pytest

from benchmarks import core_gaps


def test_only_gaps_of_more_than_a_millisecond_count():
    times = iter([5.0, 5.0005, 5.01, 5.0105, 5.5, 6.0, 6.001])
    assert core_gaps.gaps(1.0, times.__next__) == pytest.approx([0.0095, 0.4895, 0.5])


def test_what_was_seen_is_said():
    seen = core_gaps.Gaps(10.0, 2, (0.004, 0.006))
    assert seen.share == pytest.approx(0.0005)
    assert str(seen) == "2 times for over a millisecond, 6.0 ms at most, 0.05% of the time"
    assert str(core_gaps.Gaps(10.0, 2, ())) == "never for a millisecond"
    assert seen + core_gaps.Gaps(5.0, 2, (0.1,)) == core_gaps.Gaps(15.0, 2, (0.004, 0.006, 0.1))


def test_a_process_looks_on_each_core():
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    seen = core_gaps.measure([core, core], 0.05)
    assert (seen.seconds, seen.core_count) == (0.05, 2)
    # Two that share a core have to take turns, at the latest when the time of one is over.
    assert seen.gaps_s
    assert os.sched_getaffinity(0) == allowed
