"""The checker finds each anomaly in a history that has it, and none in one that has not."""

from __future__ import annotations

import dataclasses

import pytest

from compat_tests.kit.history import (
    Consumed,
    Ends,
    History,
    Outcome,
    Partition,
    Read,
    Send,
    Transaction,
)
from compat_tests.transactions.checker import Kind, check, summary

A: Partition = ("a", 0)
B: Partition = ("b", 0)
IN: Partition = ("in", 0)
COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN


def transaction(
    began: int,
    ended: int,
    *sends: tuple[Partition, int],
    outcome: Outcome = COMMITTED,
    process: str = "p",
    consumed: tuple[Consumed, ...] = (),
) -> Transaction:
    """Its commit is asked for a tick before its end."""
    return Transaction(
        process=process,
        outcome=outcome,
        began=began,
        ended=ended,
        commit_asked=None if outcome is ABORTED else ended - 1,
        sends=tuple(Send(partition, value) for partition, value in sends),
        consumed=consumed,
    )


def consumed(start: int, end: int) -> tuple[Consumed, ...]:
    return (Consumed("g", IN, start, end),)


def kinds(history: History) -> list[Kind]:
    return [anomaly.kind for anomaly in check(history)]


def test_what_went_well_has_no_anomaly() -> None:
    first = transaction(10, 20, (A, 1), (B, 2), (A, 3), consumed=consumed(0, 5))
    second = transaction(21, 30, (A, 4), outcome=ABORTED, consumed=consumed(5, 9))
    third = transaction(31, 40, (B, 5), outcome=UNKNOWN, consumed=consumed(5, 9))
    fourth = transaction(41, 50, (A, 6), outcome=UNKNOWN, consumed=consumed(9, 12))
    history = History(
        transactions=[first, second, third, fourth],
        reads=[
            Read("reader", 19, A, [(0, 1)]),  # the marker may be there before the commit is answered
            Read("reader", 25, A, [(1, 3)]),
            Read("reader", 60, B, [(0, 2), (2, 5)]),
            Read("later", 61, A, [(1, 3)]),
        ],
        log={A: [(0, 1), (1, 3)], B: [(0, 2), (2, 5)]},
        everything={A: [(0, 1), (1, 3), (3, 4), (5, 6)], B: [(0, 2), (2, 5)]},
        ends={A: Ends(7, 7), B: Ends(4, 4)},
        committed={("g", IN): 9},
    )
    assert check(history) == []
    assert summary(history) == "4 transactions (1 committed, 1 aborted, 2 unknown), 6 values sent, 5 read"


def test_transactions_that_overlap_may_interleave_in_any_way() -> None:
    one = transaction(10, 50, (A, 1), (B, 2), process="p")
    other = transaction(20, 40, (A, 3), (B, 4), process="q")
    assert check(History([one, other], log={A: [(0, 1), (1, 3)], B: [(0, 4), (1, 2)]})) == []


def test_a_lost_write_is_found() -> None:
    history = History([transaction(10, 20, (A, 1), (A, 2))], log={A: [(0, 1)]})
    assert kinds(history) == [Kind.LOST_WRITE]
    assert "2 in a-0 of p [10, 20] committed" in str(check(history)[0])


@pytest.mark.parametrize("seen_in", ["a poll", "the log"])
def test_an_aborted_read_is_found(seen_in: str) -> None:
    aborted = transaction(10, 20, (A, 1), outcome=ABORTED)
    if seen_in == "the log":
        history = History([aborted], log={A: [(0, 1)]})
        assert kinds(history) == [Kind.ABORTED_READ]
    else:
        history = History([aborted], reads=[Read("r", 15, A, [(0, 1)])])
        assert set(kinds(history)) == {Kind.ABORTED_READ, Kind.SKIPPED}


def test_an_intermediate_read_is_found() -> None:
    history = History([transaction(10, 20, (A, 1))], reads=[Read("r", 18, A, [(0, 1)])], log={A: [(0, 1)]})
    assert kinds(history) == [Kind.INTERMEDIATE_READ]


def test_a_torn_transaction_is_found() -> None:
    torn = transaction(10, 20, (A, 1), (B, 2), outcome=UNKNOWN)
    assert kinds(History([torn], log={A: [(0, 1)], B: []})) == [Kind.TORN]
    assert kinds(History([torn], log={A: [(0, 1)], B: [(0, 2)]})) == []
    assert kinds(History([torn], log={A: [], B: []})) == []


@pytest.mark.parametrize(("visible", "goes_on_at"), [(True, 0), (False, 5)])
def test_values_without_their_offsets_are_torn_and_the_other_way_round(
    visible: bool, goes_on_at: int
) -> None:
    doubtful = transaction(10, 20, (A, 1), outcome=UNKNOWN, consumed=consumed(0, 5))
    log = {A: [(0, 1)] if visible else []}
    assert kinds(History([doubtful], log=log, committed={("g", IN): goes_on_at})) == [Kind.TORN]
    assert kinds(History([doubtful], log=log, committed={("g", IN): 5 - goes_on_at})) == []


def test_a_write_cycle_is_found() -> None:
    one = transaction(10, 20, (A, 1), (B, 2), process="p")
    other = transaction(30, 40, (A, 3), (B, 4), process="q")
    history = History([one, other], log={A: [(0, 1), (1, 3)], B: [(0, 4), (1, 2)]})
    found = check(history)
    assert [anomaly.kind for anomaly in found] == [Kind.WRITE_CYCLE, Kind.ORDER]
    assert found[0].where.count("before") == 2


def test_a_write_cycle_over_three_partitions_is_found() -> None:
    first, second, third = (("c", n) for n in range(3))
    one = transaction(10, 20, (first, 1), (third, 2), process="p")
    two = transaction(30, 40, (first, 3), (second, 4), process="q")
    three = transaction(50, 60, (second, 5), (third, 6), process="r")
    log = {first: [(0, 1), (1, 3)], second: [(0, 4), (1, 5)], third: [(0, 6), (1, 2)]}
    assert kinds(History([one, two, three], log=log)) == [Kind.WRITE_CYCLE, Kind.ORDER]
    assert kinds(History([one, two, three], log={**log, third: [(0, 2), (1, 6)]})) == []


def test_an_order_violation_is_found() -> None:
    swapped = transaction(10, 20, (A, 1), (A, 2))
    assert kinds(History([swapped], log={A: [(0, 2), (1, 1)]})) == [Kind.ORDER]
    one, other = transaction(10, 20, (A, 1)), transaction(30, 40, (A, 2), process="q")
    assert kinds(History([one, other], log={A: [(0, 2), (1, 1)]})) == [Kind.ORDER]


def test_a_duplicate_is_found() -> None:
    once = transaction(10, 20, (A, 1))
    assert kinds(History([once], log={A: [(0, 1), (1, 1)]})) == [Kind.DUPLICATE]
    never = transaction(10, 20, (A, 1), outcome=ABORTED)
    assert kinds(History([never], everything={A: [(0, 1), (1, 1)]})) == [Kind.DUPLICATE]


def test_an_offset_with_two_values_is_found() -> None:
    both = transaction(10, 20, (A, 1), (A, 2))
    history = History([both], reads=[Read("r", 30, A, [(1, 1)])], log={A: [(0, 1), (1, 2)]})
    assert Kind.INCONSISTENT in kinds(history)
    moved = dataclasses.replace(transaction(10, 20), sends=(Send(A, 1, offset=7),))
    assert kinds(History([moved], log={A: [(8, 1)]})) == [Kind.INCONSISTENT]
    assert kinds(History([moved], log={A: [(7, 1)]})) == []


def test_a_value_that_nobody_sent_is_found() -> None:
    assert kinds(History([], log={A: [(0, 1)]})) == [Kind.UNSENT]
    astray = transaction(10, 20, (A, 1))
    assert kinds(History([astray], log={B: [(0, 1)]})) == [Kind.UNSENT]


@pytest.mark.parametrize(
    "seen", [[(0, 1), (2, 3)], [(0, 1), (1, 2), (1, 2), (2, 3)], [(0, 1), (2, 3), (1, 2)]]
)
def test_a_reader_that_skips_repeats_or_goes_back_is_found(seen: list[tuple[int, int]]) -> None:
    three = transaction(10, 20, (A, 1), (A, 2), (A, 3))
    log = {A: [(0, 1), (1, 2), (2, 3)]}
    polls = [Read("r", 30 + at, A, [record]) for at, record in enumerate(seen)]
    assert kinds(History([three], reads=polls, log=log)) == [Kind.SKIPPED]
    # Another session may begin anywhere.
    sessions = [dataclasses.replace(poll, session=f"r{at}") for at, poll in enumerate(polls)]
    assert kinds(History([three], reads=sessions, log=log)) == []


def test_a_reader_of_uncommitted_records_sees_all_of_the_log_and_nothing_else() -> None:
    aborted, kept = transaction(10, 20, (A, 1), outcome=ABORTED), transaction(30, 40, (A, 2))
    log, everything = {A: [(2, 2)]}, {A: [(0, 1), (2, 2)]}

    def found(*records: tuple[int, int]) -> list[Kind]:
        read = Read("r", 15, A, list(records), is_committed=False)
        return kinds(History([aborted, kept], reads=[read], log=log, everything=everything))

    assert found((0, 1), (2, 2)) == []
    assert found((0, 1), (1, 1), (2, 2)) == [Kind.SKIPPED]
    assert found((0, 2), (2, 2)) == [Kind.INCONSISTENT, Kind.SKIPPED]


def test_offsets_of_an_aborted_transaction_that_took_effect_are_found() -> None:
    aborted = transaction(10, 20, outcome=ABORTED, consumed=consumed(0, 5))
    after = transaction(30, 40, consumed=consumed(5, 9))
    assert kinds(History([aborted, after])) == [Kind.OFFSETS_ESCAPED]
    assert kinds(History([aborted], committed={("g", IN): 5})) == [Kind.OFFSETS_ESCAPED]


def test_offsets_of_a_committed_transaction_that_are_gone_are_found() -> None:
    first, again = transaction(10, 20, consumed=consumed(0, 5)), transaction(30, 40, consumed=consumed(0, 5))
    assert kinds(History([first, again])) == [Kind.OFFSETS_LOST]
    assert kinds(History([first], committed={("g", IN): 0})) == [Kind.OFFSETS_LOST]


def test_a_stuck_last_stable_offset_is_found() -> None:
    assert kinds(History(ends={A: Ends(3, 4), B: Ends(4, 4)})) == [Kind.STUCK]


def test_every_kind_has_its_test() -> None:
    """So that nobody adds one without."""
    with open(__file__) as source:
        text = source.read()
    assert [kind.name for kind in Kind if f"Kind.{kind.name}" not in text] == []
