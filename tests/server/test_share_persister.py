"""The persister's part alone: whom it asks, what it asks again and when, and what it refuses."""

import pytest

from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.cluster.view import Broker, ClusterView, PartitionView, TopicView
from odradek.coordinator.shares.state.persister import (
    DeliveryState,
    InitialState,
    Refusal,
    SharePartitionKey,
)
from odradek.server.coordination import share_persister
from odradek.server.coordination.share_persister import ATTEMPTS_MAX, SharePersister
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
)
from tests.coordinator.fakes import FakeClock
from tests.coordinator.shares.share_state_requests import batches_in, change, state_batch

HERE, THERE = 1, 2
DONE = Refusal(ErrorCode.NONE)


class Timers:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.pauses_ms: list[float] = []

    def after(self, delay_ms, callback):
        self.pauses_ms.append(delay_ms)
        return self.clock.call_later(delay_ms / 1000, callback)


class Shares:
    """The coordinator of this node, with the codes of its next answers."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        self.commands: list = []

    def partition_of(self, key: str) -> int:
        return 0

    def submit_state(self, command) -> None:
        self.commands.append(command)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        command.ticket.take(command.ticket.refused(code))


class Peers:
    """The other node; a test answers."""

    def __init__(self) -> None:
        self.asked: list = []

    def ask(self, broker_id, request, answered) -> None:
        assert broker_id == THERE
        self.asked.append((request, answered))

    def answer(self, code=ErrorCode.NONE) -> list[int]:
        """Answers the oldest request; the partitions that it named."""
        request, answered = self.asked.pop(0)
        module = {
            write_share_group_state.WriteShareGroupStateRequest: (
                write_share_group_state,
                write_share_group_state.WriteShareGroupStateResponse,
                write_share_group_state.WriteStateResult,
            ),
            delete_share_group_state.DeleteShareGroupStateRequest: (
                delete_share_group_state,
                delete_share_group_state.DeleteShareGroupStateResponse,
                delete_share_group_state.DeleteStateResult,
            ),
            initialize_share_group_state.InitializeShareGroupStateRequest: (
                initialize_share_group_state,
                initialize_share_group_state.InitializeShareGroupStateResponse,
                initialize_share_group_state.InitializeStateResult,
            ),
        }[type(request)]
        messages, response, result = module
        named = [(topic.topic_id, one.partition) for topic in request.topics for one in topic.partitions]
        answered(
            response(
                results=[
                    result(
                        topic_id=topic_id,
                        partitions=[messages.PartitionResult(partition=index, error_code=code)],
                    )
                    for topic_id, index in named
                ]
            )
        )
        return [index for _, index in named]

    def lose(self) -> None:
        self.asked.pop(0)[1](None)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timers = Timers(self.clock)
        self.shares, self.peers = Shares(), Peers()
        self.creations: list = []
        self.view = view_of(HERE)
        self.persister = SharePersister(
            node_id=HERE,
            shares=lambda: self.shares,
            current_view=lambda: self.view,
            timers=self.timers,
            create_topic=self.creations.append,
            peers=lambda: self.peers,
        )
        self.results: list = []

    def write(self, index=0, group="g", start_offset=0) -> None:
        partition = key(index, group)
        self.persister.write(partition, change(partition, 0, 0, start_offset), self.results.append)


@pytest.fixture
def world():
    return World()


def key(index=0, group="g"):
    return SharePartitionKey(group, bytes(15) + b"\x01", index)


def view_of(*leaders, alive=(HERE, THERE)):
    """With one partition of `__share_group_state` for each leader; none: without the topic."""
    partitions = tuple(
        PartitionView(index, leader, 0, (leader,), (leader,)) for index, leader in enumerate(leaders)
    )
    topic = TopicView(SHARE_STATE_TOPIC, bytes(16), partitions, is_internal=True)
    return ClusterView(
        brokers={number: Broker(number, {}) for number in alive},
        topics={SHARE_STATE_TOPIC: topic} if leaders else {},
    )


# Attempts


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_what_is_passing_is_tried_again(world, code):
    world.shares.codes = [code, code]
    world.write()
    assert world.results == []
    world.clock.run(1_000)
    assert len(world.shares.commands) == 1
    world.clock.run(20_000)
    assert world.results == [DONE]
    assert len(world.shares.commands) == 3


def test_pauses_grow_and_in_the_end_the_code_is_told(world):
    world.shares.codes = [ErrorCode.NOT_COORDINATOR] * 9
    world.write()
    world.clock.run(100_000)
    ((code, message),) = world.results
    assert (code, bool(message)) == (ErrorCode.NOT_COORDINATOR, True)
    assert len(world.shares.commands) == ATTEMPTS_MAX
    for pause_ms, least_ms in zip(world.timers.pauses_ms, (2_000, 4_000, 8_000, 16_000), strict=True):
        assert 0.8 * least_ms <= pause_ms <= 1.2 * least_ms
    assert world.persister.pending_count == 0


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST])
def test_what_is_decided_is_told_at_once(world, code):
    world.shares.codes = [code]
    world.write()
    assert [result.error_code for result in world.results] == [code]


def test_the_newest_view_counts_at_each_attempt(world):
    world.shares.codes = [ErrorCode.NOT_COORDINATOR]
    world.write()
    world.view = view_of(THERE)
    world.clock.run(3_000)
    assert world.peers.answer() == [0]
    assert world.results == [DONE]


def test_a_partition_without_a_leader_or_with_one_that_is_fenced_is_waited_for(world):
    for view in (view_of(-1), view_of(THERE, alive=(HERE,))):
        world.view = view
        world.write()
    assert not world.peers.asked
    world.view = view_of(HERE)
    world.clock.run(3_000)
    assert world.results == [DONE, DONE]


def test_after_the_end_nothing_is_tried_again(world):
    world.shares.codes = [ErrorCode.NOT_COORDINATOR] * 9
    world.write()
    world.persister.close()
    world.clock.run(3_000)
    world.write(1)
    assert [result.error_code for result in world.results] == [ErrorCode.NOT_COORDINATOR] * 2
    assert world.clock.pending == 0


def test_who_trips_over_an_answer_disturbs_nobody(world):
    def trip(result):
        raise RuntimeError("a bug")

    world.persister.write(key(), change(key(), 0, 0, 0), trip)
    world.write()
    assert world.results == [DONE]
    assert world.persister.pending_count == 0


# Other nodes


def test_share_partitions_of_one_group_go_in_one_request(world):
    world.view = view_of(THERE)
    states = [InitialState(key(index), 0, -1) for index in range(4)]
    world.persister.initialize(states, world.results.append)
    assert world.peers.answer() == [0, 1, 2, 3]
    assert world.results == [dict.fromkeys(map(key, range(4)), DONE)]


def test_what_comes_while_a_request_is_under_way_gathers_for_the_next(world):
    world.view = view_of(THERE)
    for index in (0, 1, 2, 1):
        world.write(index)
    world.write(5, group="h")
    assert len(world.peers.asked) == 2
    assert world.peers.answer() == [0]
    assert world.peers.answer() == [5]
    assert world.peers.answer() == [1, 2]
    # One that waits twice is in two requests.
    assert world.peers.answer() == [1]
    assert world.results == [DONE] * 5
    assert not world.peers.asked


def test_a_request_is_bounded(world, monkeypatch):
    monkeypatch.setattr(share_persister, "PARTITIONS_PER_REQUEST", 3)
    world.view = view_of(THERE)
    world.persister.delete([key(index) for index in range(7)], world.results.append)
    assert [world.peers.answer() for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert len(world.results) == 1


def test_a_request_without_a_response_is_sent_again(world):
    world.view = view_of(THERE)
    world.write()
    for _ in range(ATTEMPTS_MAX):
        world.peers.lose()
        world.clock.run(30_000)
    assert [result.error_code for result in world.results] == [ErrorCode.NETWORK_EXCEPTION]
    world.write()
    world.peers.lose()
    world.clock.run(3_000)
    assert world.peers.answer() == [0]
    assert world.results[1:] == [DONE]


def test_a_response_that_leaves_something_out_is_no_answer_to_it(world):
    world.view = view_of(THERE)
    world.write()
    world.peers.asked.pop()[1](write_share_group_state.WriteShareGroupStateResponse(results=[]))
    assert [result.error_code for result in world.results] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_codes_and_states_of_a_later_broker_are_told_as_errors(world):
    world.view = view_of(THERE)
    world.write()
    world.peers.answer(30_000)
    assert [result.error_code for result in world.results] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    world.persister.read(key(), 3, world.results.append)
    module = read_share_group_state
    (request, answered) = world.peers.asked.pop()
    assert request.topics[0].partitions[0].leader_epoch == 3
    batches = [
        module.StateBatch(first_offset=0, last_offset=1, delivery_state=state, delivery_count=1)
        for state in (2, 5)
    ]

    def respond(answered, batches):
        partition = module.PartitionResult(partition=0, state_epoch=1, start_offset=0, state_batches=batches)
        topic = module.ReadStateResult(topic_id=key().topic_id, partitions=[partition])
        answered(module.ReadShareGroupStateResponse(results=[topic]))

    respond(answered, batches)
    assert world.results[-1].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    world.persister.read(key(), 3, world.results.append)
    respond(world.peers.asked.pop()[1], batches[:1])
    assert batches_in(world.results[-1]) == [(0, 1, 1, DeliveryState.ACKNOWLEDGED)]


# The topic


def test_the_topic_is_created_once_for_all_who_wait(world):
    world.view = view_of()
    for index in range(3):
        world.write(index)
    assert len(world.creations) == 1
    assert not world.shares.commands
    world.view = view_of(HERE)
    world.creations.pop()()
    assert world.results == [DONE] * 3


def test_a_topic_that_cannot_be_created_is_tried_again(world):
    world.view = view_of()
    world.write()
    for _ in range(ATTEMPTS_MAX):
        world.creations.pop()()
        world.clock.run(30_000)
    assert [result.error_code for result in world.results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not world.creations


# Bounds


def test_more_than_so_many_are_refused(world, monkeypatch):
    monkeypatch.setattr(share_persister, "PENDING_MAX", 3)
    world.view = view_of(THERE)
    for index in range(3):
        world.write(index)
    world.write(3)
    assert [result.error_code for result in world.results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.peers.answer()
    world.peers.answer()
    assert world.persister.pending_count == 0
    world.write(3)
    world.peers.answer()
    assert world.results[1:] == [DONE] * 4


def test_what_is_asked_here_is_the_same_request(world):
    written = change(key(), 2, 3, 1, 4, [state_batch(1, 4, DeliveryState.ARCHIVED, 3)])
    world.persister.write(key(), written, world.results.append)
    world.view = view_of(THERE)
    world.persister.write(key(), written, world.results.append)
    ((there, _),) = world.peers.asked
    (command,) = world.shares.commands
    assert command.request == there
    assert there.topics[0].partitions == [written]
    assert world.results == [DONE]
