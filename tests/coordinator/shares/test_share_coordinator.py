"""Share groups in the coordinator of groups: it asks the share coordinator when the log has what it says, and
whoever waits gets one answer, whatever becomes of the log, the machine and the share coordinator."""

import pytest

from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.errors import ErrorCode
from tests.coordinator import group_requests
from tests.coordinator.fakes import FakeClock, FakeLog, view_of
from tests.coordinator.shares.share_persister import FakePersister
from tests.coordinator.shares.share_requests import (
    alter,
    assigned_in,
    beat,
    describe_offsets,
    forget,
    partitions_in,
)

NONE = ErrorCode.NONE
TOPIC_ID = bytes(16)


class Node:
    def __init__(self, persister) -> None:
        self.clock = FakeClock()
        self.log = FakeLog()
        self.log.clock = self.clock
        self.persister = persister
        self.coordinator = GroupCoordinator(
            node_id=1,
            settings=GroupSettings(group_share_assignment_interval_ms=0, offsets_topic_num_partitions=1),
            open_log=lambda index: self.log,
            clock_ms=self.clock.clock_ms,
            call_later=self.clock.call_later,
            new_member_suffix=lambda: "unused",
            persister=lambda: persister,
        )
        self.lead(1)

    def lead(self, leader: int, epoch: int = 0) -> None:
        view = view_of("__consumer_offsets", [leader], epoch, {"t": 2})
        object.__setattr__(view, "topic_names", {topic.topic_id: name for name, topic in view.topics.items()})
        self.coordinator.view_changed(view)

    def submit(self, request) -> list:
        answers: list = []
        self.coordinator.submit("g", group_requests.asked(request, answers.append))
        return answers

    def ask(self, request):
        answers = self.submit(request)
        self.clock.run(1)
        (answer,) = answers
        return answer

    def beat(self, epoch: int = 0):
        return self.ask(beat("g", "m", epoch, ["t"]))

    def leave(self) -> None:
        self.ask(beat("g", "m", -1))

    def alter(self) -> list:
        return self.submit(alter("g", [("t", 0, 5)]))

    @property
    def partitions(self):
        return partitions_in(self.ask(describe_offsets("g")))


@pytest.fixture
def node():
    return Node(FakePersister())


def test_the_share_coordinator_is_asked_when_the_log_has_what_it_says(node):
    node.log.is_prompt = False
    answers = node.submit(beat("g", "m", 0, ["t"]))
    node.clock.run(1)
    assert (answers, node.persister.states) == ([], {})
    node.log.complete()
    node.clock.run(1)
    (answer,) = answers
    assert answer.error_code == NONE
    assert node.persister.states == {SharePartitionKey("g", TOPIC_ID, index): (2, -1) for index in (0, 1)}
    node.log.is_prompt = True
    node.log.complete()
    assert node.partitions == {TOPIC_ID: [0, 1]}
    assert assigned_in(node.beat(2)) == {TOPIC_ID: [0, 1]}


def test_a_heartbeat_does_not_wait_for_the_share_coordinator(node):
    node.persister.is_prompt = False
    assert node.beat().error_code == NONE
    assert assigned_in(node.beat(2)) == {}
    node.persister.answer()
    node.clock.run(1)
    assert assigned_in(node.beat(2)) == {TOPIC_ID: [0, 1]}


@pytest.mark.parametrize(
    "request_of_a_client", [alter("g", [("t", 0, 5)]), forget("g", ["t"]), group_requests.delete("g")]
)
def test_who_waits_is_told_when_the_log_fails_before_the_question(node, request_of_a_client):
    node.beat()
    node.beat(2)
    node.leave()
    states = dict(node.persister.states)
    node.log.is_prompt = False
    answers = node.submit(request_of_a_client)
    assert answers == []
    node.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    (answer,) = answers
    assert answer == group_requests.asked(request_of_a_client).ticket.refused(
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert node.persister.states == states
    node.log.is_prompt = True
    node.clock.run(10_000)
    assert node.partitions == {TOPIC_ID: [0, 1]}


@pytest.mark.parametrize("comes_back", [False, True])
def test_who_waits_is_told_when_the_group_moves_before_the_answer(node, comes_back):
    node.persister.is_prompt = False
    answers = node.alter()
    node.clock.run(1)
    node.lead(2, 1)
    if comes_back:
        node.lead(1, 2)
        node.clock.run(1)
    assert answers == []
    node.persister.answer()
    node.clock.run(1)
    (answer,) = answers
    assert answer.error_code == (NONE if comes_back else ErrorCode.NOT_COORDINATOR)


def test_an_alteration_is_answered_when_it_counts(node):
    node.persister.is_prompt = False
    answers = node.alter()
    node.clock.run(1)
    node.log.is_prompt = False
    node.persister.answer()
    node.clock.run(1)
    assert answers == []
    node.log.is_prompt = True
    node.log.complete()
    (answer,) = answers
    assert answer.error_code == NONE
    assert node.partitions == {TOPIC_ID: [0]}


def test_without_a_share_coordinator_nothing_gets_a_state():
    persister = FakePersister()
    persister.refusals = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 10
    node = Node(persister)
    assert node.beat().error_code == NONE
    assert assigned_in(node.beat(2)) == {}
    assert node.partitions == {}
    node.leave()
    answers = node.alter()
    node.clock.run(1)
    assert answers[0].responses[0].partitions[0].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
