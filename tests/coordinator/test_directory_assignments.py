"""The controllers are told where replicas are, until they have taken it."""

from odradek.coordinator.kraft.directory_assignments import (
    ASSIGNMENTS_MAX,
    TOLD_AFTER_MS,
    Assignment,
    DirectoryAssignments,
)
from odradek.wire.errors import ErrorCode

ONE = Assignment(b"topic", 0, b"first")
TWO = Assignment(b"topic", 1, b"first")
NONE, REFUSED = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def wanting(*assignments):
    machine = DirectoryAssignments()
    for one in assignments:
        machine.want(one, 0)
    return machine


def test_what_is_wanted_at_once_goes_in_one_request():
    machine = wanting(ONE, TWO)
    assert machine.due_ms == 0
    assert machine.next_request(0) == [ONE, TWO]
    assert machine.answered({ONE[:2]: NONE, TWO[:2]: NONE}, 5) == []
    assert (len(machine), machine.due_ms) == (0, None)


def test_one_request_is_under_way_at_a_time_and_what_comes_meanwhile_follows_at_once():
    machine = wanting(ONE)
    assert machine.next_request(0) == [ONE]
    machine.want(TWO, 1)
    assert machine.due_ms is None
    assert machine.next_request(1) == []
    machine.answered({ONE[:2]: NONE}, 5)
    assert machine.due_ms == 5
    assert machine.next_request(5) == [TWO]


def test_a_later_wish_for_a_partition_takes_the_place_of_one_under_way():
    machine = wanting(ONE)
    machine.next_request(0)
    moved = ONE._replace(directory=b"second")
    machine.want(moved, 1)
    machine.answered({ONE[:2]: NONE}, 5)
    assert machine.next_request(5) == [moved]


def test_the_same_wish_again_is_none():
    machine = wanting(ONE)
    machine.next_request(0)
    machine.want(ONE, 1)
    machine.answered({ONE[:2]: NONE}, 5)
    assert (len(machine), machine.due_ms) == (0, None)


def test_a_failed_request_waits_twice_as_long_each_time_up_to_ten_seconds():
    machine = wanting(ONE)
    delays, now_ms = [], 0
    for _ in range(9):
        assert machine.next_request(now_ms) == [ONE]
        machine.failed(now_ms)
        delays.append(machine.due_ms - now_ms)
        now_ms = machine.due_ms
    assert delays == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]


def test_a_refused_partition_is_sent_again_behind_the_others_and_told_after_two_minutes():
    machine = wanting(ONE, TWO)
    machine.next_request(0)
    assert machine.answered({ONE[:2]: REFUSED}, 0) == []
    machine.want(THREE := Assignment(b"topic", 2, b"first"), 1)
    assert machine.due_ms == 100
    assert machine.next_request(100) == [ONE, TWO, THREE]
    errors = {ONE[:2]: REFUSED, TWO[:2]: NONE, THREE[:2]: NONE}
    assert machine.answered(errors, TOLD_AFTER_MS) == [ONE[:2]]
    assert len(machine) == 1


def test_what_has_been_forgotten_is_not_sent():
    machine = wanting(ONE, TWO)
    machine.forget(*ONE[:2])
    assert machine.next_request(0) == [TWO]
    machine.forget(*TWO[:2])
    machine.failed(0)
    assert machine.due_ms is None


def test_a_request_has_a_bound():
    machine = wanting(*(Assignment(b"topic", index, b"first") for index in range(ASSIGNMENTS_MAX + 1)))
    first = machine.next_request(0)
    assert len(first) == ASSIGNMENTS_MAX
    machine.answered({one[:2]: NONE for one in first}, 0)
    assert machine.next_request(0) == [Assignment(b"topic", ASSIGNMENTS_MAX, b"first")]
