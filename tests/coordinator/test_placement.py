"""Placement of new replicas: spread over brokers and racks, and never on what cannot have them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.coordinator.cluster.placement import UsableBroker, place_replicas
from odradek.wire.errors import ErrorCode, KafkaError

TOPIC_ID = b"t" * 16
RACKS = st.sampled_from([None, "a", "b", "c"])


@st.composite
def clusters(draw):
    """Brokers of which one at least is not fenced."""
    node_ids = sorted(draw(st.sets(st.integers(0, 50), min_size=1, max_size=9)))
    brokers = [UsableBroker(one, draw(RACKS), draw(st.booleans())) for one in node_ids]
    return [*brokers, UsableBroker(99, draw(RACKS))]


def racked(*racks):
    return [UsableBroker(number, rack) for number, rack in enumerate(racks)]


def placed(brokers, count, factor, topic_id=TOPIC_ID, first=0):
    return place_replicas(brokers, topic_id, first, count, factor)


def test_leaders_and_followers_are_spread_evenly():
    replicas = placed(racked(None, None, None, None), 24, 3)
    for position in range(3):
        assert set(Counter(one[position] for one in replicas).values()) == {6}


@given(
    brokers=clusters(), count=st.integers(1, 30), factor=st.integers(1, 10), topic_id=st.binary(max_size=16)
)
def test_no_broker_has_two_replicas_and_no_fenced_one_leads(brokers, count, factor, topic_id):
    factor = min(factor, len(brokers))
    fenced = {one.node_id for one in brokers if one.is_fenced}
    replicas = placed(brokers, count, factor, topic_id)
    assert len(replicas) == count
    for one in replicas:
        assert len(set(one)) == len(one) == factor
        assert one[0] not in fenced
        assert set(one) <= {broker.node_id for broker in brokers}


@given(brokers=clusters(), count=st.integers(1, 30), factor=st.integers(1, 10))
def test_no_rack_has_two_replicas_while_another_has_none(brokers, count, factor):
    racks = {one.node_id: one.rack for one in brokers}
    for one in placed(brokers, count, min(factor, len(brokers))):
        by_rack = Counter(racks[node_id] for node_id in one)
        if max(by_rack.values()) > 1:
            assert by_rack.keys() == set(racks.values())


def test_three_replicas_of_three_machines_with_four_workers_each_are_on_three_machines():
    brokers = racked(*[machine for machine in "abc" for _ in range(4)])
    replicas = placed(brokers, 120, 3)
    assert all(len({node_id // 4 for node_id in one}) == 3 for one in replicas)
    leaders = Counter(one[0] for one in replicas)
    assert set(leaders) == set(range(12))
    assert max(leaders.values()) - min(leaders.values()) <= 2


def test_within_a_rack_brokers_take_turns_and_none_is_left_out():
    brokers = racked(*[rack for rack in "abc" for _ in range(4)])
    for topic_id in (number.to_bytes(16, "big") for number in range(20)):
        round_of_leaders = placed(brokers, 12, 2, topic_id)
        assert set(Counter(node_id for one in round_of_leaders for node_id in one).values()) == {2}


def test_a_rack_moves_on_only_when_it_gets_a_replica():
    brokers = racked("a", "b", "b", "b", "c")
    for topic_id in (number.to_bytes(16, "big") for number in range(20)):
        # Until all brokers have led, when lots are drawn anew.
        of_b = [node_id for one in placed(brokers, 5, 2, topic_id) for node_id in one if node_id in (1, 2, 3)]
        assert of_b == [(of_b[0] - 1 + turn) % 3 + 1 for turn in range(len(of_b))]


def test_a_fenced_broker_gets_replicas_only_when_its_rack_has_no_other():
    brokers = [UsableBroker(1, "a"), UsableBroker(2, "a", is_fenced=True), UsableBroker(3, "b")]
    assert all(2 not in one for one in placed(brokers, 20, 2))
    assert all(one[-1] == 2 for one in placed(brokers, 20, 3))


def test_single_partitions_do_not_all_begin_at_the_same_broker():
    topics = [number.to_bytes(16, "big") for number in range(200)]
    leaders = Counter(placed(racked(None, None, None), 1, 1, topic_id)[0][0] for topic_id in topics)
    assert min(leaders.values()) > 40


def test_the_same_topic_is_placed_the_same_again():
    brokers = racked("a", "b", None, "b")
    assert placed(brokers, 50, 3) == placed(brokers, 50, 3)
    assert placed(brokers, 50, 3) != placed(brokers, 50, 3, first=50)


def test_one_broker_has_all():
    assert placed(racked(None), 3, 1) == [(0,), (0,), (0,)]


@pytest.mark.parametrize(
    "brokers", [[], [UsableBroker(1, is_fenced=True)], [UsableBroker(1), UsableBroker(2)]]
)
def test_too_few_brokers_are_refused(brokers):
    with pytest.raises(KafkaError) as refusal:
        placed(brokers, 1, 3)
    assert refusal.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
