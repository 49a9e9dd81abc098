"""The judge of `test_kills.py` finds what cannot be, and nothing else."""

from __future__ import annotations

import pytest

from compat_tests.share_groups.ledger import Ledger
from compat_tests.share_groups.members import ACCEPT, REJECT, RELEASE, Delivery, Where

LIMIT = 3
WHERE = Where("topic", 0, 7)


def kept() -> Ledger:
    ledger = Ledger(LIMIT)
    ledger.send("one")
    ledger.keep(WHERE, "one")
    return ledger


def delivery(count: int, value: str = "one") -> Delivery:
    return Delivery(WHERE, count, "-", value)


def answer(ledger: Ledger, count: int, kind: str) -> None:
    ledger.confirm(ledger.acknowledge(delivery(count), kind))


def test_a_record_that_comes_until_it_is_accepted_is_no_fault() -> None:
    ledger = kept()
    began = ledger.begin()
    ledger.deliver([delivery(1)], began)
    assert ledger.open_records() == [WHERE]
    answer(ledger, 1, RELEASE)
    ledger.deliver([delivery(2)], ledger.begin())
    answer(ledger, 2, ACCEPT)
    # Fetched long ago, by a consumer that nobody takes an acknowledgement from.
    ledger.deliver([delivery(1)], began)
    ledger.acknowledge(delivery(1), ACCEPT)
    assert ledger.faults() == []


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_a_record_that_comes_again_after_the_last_word_is_a_fault(kind: str) -> None:
    ledger = kept()
    ledger.deliver([delivery(1)], ledger.begin())
    answer(ledger, 1, kind)
    ledger.end()
    ledger.deliver([delivery(2)], ledger.begin())
    (fault,) = ledger.faults()
    assert "came again" in fault


def test_a_second_word_that_is_taken_after_the_last_one_is_a_fault() -> None:
    ledger = kept()
    began = ledger.begin()
    ledger.deliver([delivery(1)], began)
    answer(ledger, 1, ACCEPT)
    ledger.deliver([delivery(2)], began)
    answer(ledger, 2, RELEASE)
    (fault,) = ledger.faults()
    assert "was taken after" in fault


def test_a_record_that_never_comes_is_lost() -> None:
    ledger = kept()
    (fault,) = ledger.faults()
    assert "is lost" in fault
    assert ledger.faults(is_drained=False) == []
    ledger.deliver([delivery(1)], ledger.begin())
    answer(ledger, 1, RELEASE)
    (fault,) = ledger.faults()
    assert "is lost" in fault


def test_a_record_that_came_as_often_as_it_may_is_not_lost() -> None:
    ledger = kept()
    for count in range(1, LIMIT + 1):
        ledger.deliver([delivery(count)], ledger.begin())
        answer(ledger, count, RELEASE)
    assert ledger.faults() == []


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([0], "is not possible"),
        ([1, 2, 3, 4], "is not possible"),
        ([2], "more than there can have been"),
        ([1, 1], "did not grow"),
    ],
)
def test_counts_that_cannot_be(counts: list[int], said: str) -> None:
    ledger = kept()
    for count in counts:
        ledger.deliver([delivery(count)], ledger.begin())
        answer(ledger, count, RELEASE)
    assert any(said in fault for fault in ledger.faults(is_drained=False))


def test_who_goes_may_have_had_deliveries_that_nobody_saw() -> None:
    ledger = kept()
    ledger.end()
    ledger.deliver([delivery(2)], ledger.begin())
    answer(ledger, 2, ACCEPT)
    assert ledger.faults() == []


def test_what_was_never_sent_or_has_two_values_is_a_fault() -> None:
    ledger = kept()
    began = ledger.begin()
    ledger.deliver([delivery(1, "other")], began)
    assert any("never sent" in fault for fault in ledger.faults(is_drained=False))
    ledger.deliver([delivery(2)], began)
    assert any("had the value" in fault for fault in ledger.faults(is_drained=False))
