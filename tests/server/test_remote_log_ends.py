"""Where logs end that other brokers lead: whom it asks, what it asks again, and what it refuses."""

import pytest

from odradek.coordinator.cluster.view import Broker, ClusterView, PartitionView, TopicView
from odradek.server.coordination import remote_log_ends
from odradek.server.coordination.remote_log_ends import ATTEMPTS_MAX, RemoteLogEnds
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.coordinator.fakes import FakeClock

SECOND, THIRD = 2, 3


class Timers:
    def __init__(self, clock):
        self.clock = clock

    def after(self, delay_ms, callback):
        return self.clock.call_later(delay_ms / 1000, callback)


class Peers:
    """The other nodes; a test answers."""

    def __init__(self):
        self.asked = []

    def ask(self, broker_id, request, answered):
        self.asked.append((broker_id, request, answered))

    def answer(self, code=ErrorCode.NONE, leaves_out=()):
        """Answers the oldest request with ends of 100 + index; whom it asked, and the partitions."""
        broker_id, request, answered = self.asked.pop(0)
        assert request.isolation_level == 0
        assert {one.timestamp for topic in request.topics for one in topic.partitions} == {-1}
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=code,
                        offset=-1 if code else 100 + one.partition_index,
                    )
                    for one in topic.partitions
                    if one.partition_index not in leaves_out
                ],
            )
            for topic in request.topics
        ]
        answered(ListOffsetsResponse(topics=topics))
        return broker_id, [
            (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
        ]

    def lose(self):
        broker_id, _, answered = self.asked.pop(0)
        answered(None)
        return broker_id


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.peers = Peers()
        self.view = view_of(SECOND, THIRD, SECOND)
        self.ends = RemoteLogEnds(self.peers, lambda: self.view, Timers(self.clock))
        self.told = []

    def ask(self, *indexes):
        self.ends.ask([("t", index) for index in indexes], self.told.append)


@pytest.fixture
def world():
    return World()


def view_of(*leaders, alive=(1, SECOND, THIRD)):
    partitions = tuple(
        PartitionView(index, leader, 0, (leader,), (leader,)) for index, leader in enumerate(leaders)
    )
    return ClusterView(
        brokers={number: Broker(number, {}) for number in alive},
        topics={"t": TopicView("t", bytes(16), partitions)},
    )


def test_each_leader_is_asked_once_and_all_are_told_together(world):
    world.ask(0, 1, 2)
    assert world.peers.answer() == (SECOND, [("t", 0), ("t", 2)])
    assert (world.told, world.ends.pending_count) == ([], 1)
    assert world.peers.answer() == (THIRD, [("t", 1)])
    assert world.told == [{("t", 0): 100, ("t", 1): 101, ("t", 2): 102}]
    assert (world.ends.pending_count, world.clock.pending) == (0, 0)


def test_a_refusal_is_told_and_not_asked_again(world):
    world.ask(1)
    world.peers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.ask(1)
    world.peers.answer(30_000)
    world.ask(0, 2)
    world.peers.answer(leaves_out=[2])
    assert world.told == [
        {("t", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {("t", 1): ErrorCode.UNKNOWN_SERVER_ERROR},
        {("t", 0): 100, ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ]
    assert world.peers.asked == []


def test_a_request_without_a_response_goes_to_whoever_leads_then(world):
    world.ask(1)
    assert world.peers.lose() == THIRD
    world.view = view_of(SECOND, SECOND, SECOND)
    world.clock.run(3_000)
    assert world.peers.answer() == (SECOND, [("t", 1)])
    assert world.told == [{("t", 1): 101}]


def test_pauses_grow_and_in_the_end_that_is_told(world):
    world.ask(1)
    for pause_ms in (2_000, 4_000, 8_000, 16_000):
        world.peers.lose()
        world.clock.run(int(0.8 * pause_ms) - 1)
        assert world.peers.asked == []
        world.clock.run(int(0.4 * pause_ms) + 2)
    world.peers.lose()
    assert world.told == [{("t", 1): ErrorCode.NETWORK_EXCEPTION}]
    assert (ATTEMPTS_MAX, world.clock.pending) == (5, 0)


@pytest.mark.parametrize(
    "view", [view_of(SECOND, -1, SECOND), view_of(SECOND, THIRD, SECOND, alive=(1, SECOND))]
)
def test_one_without_a_leader_that_lives_is_not_waited_for(world, view):
    world.view = view
    world.ask(0, 1)
    world.peers.answer()
    assert world.told == [{("t", 0): 100, ("t", 1): ErrorCode.LEADER_NOT_AVAILABLE}]


def test_requests_and_those_that_wait_are_bounded(world, monkeypatch):
    monkeypatch.setattr(remote_log_ends, "PARTITIONS_PER_REQUEST", 2)
    monkeypatch.setattr(remote_log_ends, "PENDING_MAX", 5)
    world.view = view_of(*[SECOND] * 5)
    world.ask(*range(5))
    world.ask(0)
    assert world.told == [{("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}]
    assert [len(world.peers.answer()[1]) for _ in range(3)] == [2, 2, 1]
    assert len(world.told[1]) == 5
    world.ask(0)
    assert len(world.peers.asked) == 1
