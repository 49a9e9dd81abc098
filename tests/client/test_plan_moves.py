"""The plan of a move: who gets which replica, and who leads."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.admin.replicas import plan_moves
from odradek.client.client_error import ClientError


def plain(*brokers):
    return dict.fromkeys(brokers)


def test_partitions_go_to_new_brokers_in_equal_parts():
    replicas = {("t", number): [1, 2] for number in range(4)}
    planned = plan_moves(replicas, plain(3, 4, 5, 6))
    assert Counter(one for those in planned.values() for one in those) == {3: 2, 4: 2, 5: 2, 6: 2}
    assert Counter(those[0] for those in planned.values()) == {3: 1, 4: 1, 5: 1, 6: 1}


def test_what_may_stay_stays():
    replicas = {("t", 0): [1, 2], ("t", 1): [2, 1]}
    assert plan_moves(replicas, plain(1, 2)) == replicas
    moved = plan_moves(replicas, plain(2, 3))
    assert [sorted(those) for those in moved.values()] == [[2, 3], [2, 3]]


def test_a_new_broker_gets_its_part():
    replicas = {("t", number): [1, 2] for number in range(6)}
    planned = plan_moves(replicas, plain(1, 2, 3))
    assert Counter(one for those in planned.values() for one in those) == {1: 4, 2: 4, 3: 4}


def test_replicas_of_a_partition_are_on_different_racks():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    planned = plan_moves({("t", number): [9, 8] for number in range(8)}, racks)
    assert all({racks[one] for one in those} == {"a", "b"} for those in planned.values())


def test_the_number_of_replicas_can_change():
    assert len(plan_moves({("t", 0): [1]}, plain(1, 2, 3), 3)["t", 0]) == 3
    assert plan_moves({("t", 0): [1, 2, 3]}, plain(1, 2, 3), 1) == {("t", 0): [1]}
    with pytest.raises(ClientError, match="3 replicas need as many brokers, and --to names 2"):
        plan_moves({("t", 0): [1]}, plain(1, 2), 3)


@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), min_size=1, max_size=12),
    st.sets(st.integers(1, 9), min_size=3, max_size=6),
)
def test_every_partition_has_its_replicas_once_on_the_brokers_that_are_named(replicas, brokers):
    before = {("t", number): those for number, those in enumerate(replicas)}
    for key, those in plan_moves(before, dict.fromkeys(brokers)).items():
        assert len(set(those)) == len(those) == len(before[key])
        assert set(those) <= brokers
