import logging

import pytest

from odradek.server.network.failure_log import ADDRESSES_MAX, OTHERS, FailureLog
from odradek.server.network.unauthenticated import Unauthenticated


class Clock:
    """A clock and its timers, in the hands of the test."""

    def __init__(self):
        self.now = 1_000_000
        self.timers = []

    def after(self, delay_ms, callback):
        self.timers.append((self.now + delay_ms, callback))

    def run_to(self, now):
        while due := sorted((one for one in self.timers if one[0] <= now), key=lambda one: one[0]):
            self.timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = now


class Stranger:
    def __init__(self, name, address="127.0.0.1"):
        self.name, self.address, self.closings = name, address, 0

    def give_up(self):
        self.closings += 1


@pytest.fixture
def clock():
    return Clock()


def test_whoever_does_not_authenticate_in_time_is_closed(clock):
    shared = Unauthenticated(clock, lambda: clock.now, deadline_ms=30_000)
    one, other, known = Stranger("one"), Stranger("other"), Stranger("known")
    start = clock.now
    shared.add(one)
    shared.add(known)
    clock.run_to(start + 10_000)
    shared.add(other)
    shared.remove(known)
    clock.run_to(start + 29_999)
    assert one.closings == 0
    clock.run_to(start + 30_000)
    assert one.closings == 1
    assert other.closings == 0
    clock.run_to(start + 40_000)
    assert (other.closings, known.closings, len(shared)) == (1, 0, 0)
    late = Stranger("late")
    shared.add(late)
    clock.run_to(start + 70_000)
    assert late.closings == 1


def test_who_holds_most_is_closed_when_all_together_hold_too_much(clock):
    shared = Unauthenticated(clock, lambda: clock.now, bytes_max=1000)
    small, large, new = Stranger("small"), Stranger("large"), Stranger("new")
    for stranger in (small, large, new):
        shared.add(stranger)
    shared.note_held(small, 100)
    shared.note_held(large, 800)
    shared.note_held(small, 150)
    assert shared.held_bytes == 950
    shared.note_held(new, 60)
    assert (large.closings, small.closings, new.closings) == (1, 0, 0)
    assert shared.held_bytes == 210
    shared.note_held(small, 0)
    shared.remove(new)
    shared.remove(new)
    assert shared.held_bytes == 0
    shared.note_held(large, 900)
    assert shared.held_bytes == 0, "it is gone"


def test_an_address_has_one_line_a_minute():
    log = FailureLog()
    assert log.note("a", "wrong", 0) == "a: wrong"
    assert [log.note("a", f"wrong {number}", 10) for number in range(3)] == [None] * 3
    assert log.note("b", "other", 20) == "b: other"
    assert log.due(59_999) == []
    assert log.due(60_000) == ["a: 3 more in the last minute, the last one: wrong 2"]
    assert log.due(60_020) == []
    assert len(log) == 1
    log.note("a", "wrong", 70_000)
    assert log.due(120_000) == ["a: 1 more in the last minute, the last one: wrong"]
    assert log.due(180_000) == []
    assert len(log) == 0


def test_the_log_remembers_a_bounded_number_of_addresses():
    log = FailureLog()
    lines = [log.note(f"address {number}", "wrong", 0) for number in range(ADDRESSES_MAX + 500)]
    assert len([line for line in lines if line]) == ADDRESSES_MAX + 1
    assert len(log) == ADDRESSES_MAX + 1
    assert log.due(60_000) == [f"{OTHERS}: 499 more in the last minute, the last one: wrong"]


def test_failures_are_counted_and_told_with_the_time(clock, caplog):
    shared = Unauthenticated(clock, lambda: clock.now)
    with caplog.at_level(logging.WARNING, "odradek.authentication"):
        for number in range(5):
            shared.note_failure("127.0.0.1", f"reason {number}")
        clock.run_to(clock.now + 60_000)
        clock.run_to(clock.now + 60_000)
    assert shared.failures == 5
    assert [record.getMessage() for record in caplog.records] == [
        "authentication failed: 127.0.0.1: reason 0",
        "authentication failed: 127.0.0.1: 4 more in the last minute, the last one: reason 4",
    ]
    assert clock.timers == []


def test_a_fault_of_ours_has_one_traceback_a_minute_and_then_a_number(clock, caplog):
    shared = Unauthenticated(clock, lambda: clock.now)
    with caplog.at_level(logging.ERROR, "odradek.authentication"):
        for _ in range(3):
            shared.note_fault("OUTSIDE", RuntimeError("broken"))
        clock.run_to(clock.now + 120_000)
    first, later = caplog.records
    assert first.getMessage() == "a SASL mechanism failed: listener OUTSIDE: RuntimeError"
    assert first.exc_info is not None
    assert "OUTSIDE: 2 more in the last minute" in later.getMessage()
    assert clock.timers == []
