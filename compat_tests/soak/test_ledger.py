"""The soak's judge itself: each kind of damage is found."""

from __future__ import annotations

import pytest

from compat_tests.soak.ledger import Commits, Identity, Records, check_order

ONE, TWO, THREE = (Identity("a", 0, number) for number in range(3))


def test_a_record_that_is_where_it_was_acknowledged_passes() -> None:
    records = Records()
    records.acknowledge(ONE, (0, 0))
    records.see("reader", (0, 0), ONE.value())
    records.check({0: [ONE.value(), TWO.value()]})
    assert records.has_seen_all("reader")
    assert not records.has_seen_all("other")


@pytest.mark.parametrize("log", [[], [TWO.value()], [TWO.value(), ONE.value()]])
def test_a_lost_replaced_or_moved_record_is_found(log: list[bytes | None]) -> None:
    records = Records()
    records.acknowledge(ONE, (0, 0))
    with pytest.raises(AssertionError, match="not where they were"):
        records.check({0: log})


def test_a_record_that_was_read_and_is_gone_is_found() -> None:
    records = Records()
    records.see("reader", (0, 0), ONE.value())
    with pytest.raises(AssertionError, match="no longer there"):
        records.check({0: [TWO.value()]})


def test_two_records_at_one_place_are_found() -> None:
    records = Records()
    records.see("reader", (0, 0), ONE.value())
    with pytest.raises(AssertionError, match="is Identity"):
        records.see("other", (0, 0), TWO.value())
    records.acknowledge(ONE, (0, 0))
    with pytest.raises(AssertionError, match="was acknowledged for"):
        records.acknowledge(TWO, (0, 0))


def test_a_damaged_value_is_found() -> None:
    value = next(i.value() for i in (Identity("a", 0, n) for n in range(99)) if len(i.value()) > 100)
    with pytest.raises(AssertionError, match="damaged"):
        Identity.of(value[:-1] + bytes([value[-1] ^ 1]))


@pytest.mark.parametrize("order", [[ONE, TWO, TWO], [TWO, ONE], [ONE, THREE]])
def test_a_double_a_swap_and_a_gap_are_found(order: list[Identity]) -> None:
    check_order({0: [ONE.value(), TWO.value(), THREE.value()]}, ["a"])
    with pytest.raises(AssertionError, match="a in partition 0"):
        check_order({0: [identity.value() for identity in order]}, ["a"])


def test_a_floor_is_the_last_acknowledged_commit_unless_a_lower_one_is_under_way() -> None:
    commits = Commits()
    slow = commits.begin("g", {0: 90})
    fast = commits.begin("g", {0: 100})
    assert commits.floors("g") == {}
    commits.end("g", fast, acknowledged=True)
    assert commits.floors("g") == {0: 90}
    commits.end("g", slow, acknowledged=False)
    assert commits.floors("g") == {0: 100}
    assert commits.begin("g", {0: 100, 1: 5}) == {1: 5}
