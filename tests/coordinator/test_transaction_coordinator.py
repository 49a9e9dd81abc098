"""The coordinator of transactions around its machines: answers and markers wait for the log, topics go,
leaderships move, logs are long."""

import itertools

import pytest

from odradek.coordinator.cluster.topics import TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Append, WriteMarkers
from odradek.coordinator.runtime import RECORDS_PER_TURN
from odradek.coordinator.transactions.coordinator import TransactionCoordinator
from odradek.coordinator.transactions.machine import ABORTS_PER_TURN, IDS_PER_TURN
from odradek.coordinator.transactions.record_codec import decode_value, encode_key, encode_value
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.coordinator.transactions.state import Transaction, TransactionState
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from tests.coordinator.fakes import FakeClock, FakeLog, view_of
from tests.coordinator.transaction_requests import (
    add_partitions,
    describe,
    end_transaction,
    init_producer,
)

NONE = ErrorCode.NONE
T0 = ("t", 0)


class Node:
    def __init__(self, partition_count: int = 1) -> None:
        self.clock = FakeClock()
        self.logs = {index: FakeLog() for index in range(partition_count)}
        for log in self.logs.values():
            log.clock = self.clock
        self.log = self.logs[0]
        self.settings = TransactionSettings(transaction_topic_num_partitions=partition_count)
        self.producer_ids = itertools.count(1_000)
        self.writes: list = []
        self.topics = {"t": 3, "u": 2}
        self.leaders = [1] * partition_count
        self.coordinator = TransactionCoordinator(
            node_id=1,
            settings=self.settings,
            open_log=self.logs.get,
            new_producer_id=lambda: next(self.producer_ids),
            write_markers=lambda effect, then: self.write_markers(effect, then),
            clock_ms=self.clock.clock_ms,
            call_later=self.clock.call_later,
        )

    def write_markers(self, effect, then) -> None:
        self.writes.append((effect, then))

    def lead(self, *leaders: int, leader_epoch: int = 0) -> None:
        self.coordinator.view_changed(
            view_of(TRANSACTIONS_TOPIC, list(leaders or self.leaders), leader_epoch, self.topics)
        )

    def submit(self, request, *arguments, transactional_id: str = "x") -> list:
        """Submit a request; a list that will hold its responses."""
        answers: list = []
        asked = request(answers.append, transactional_id, *arguments)
        self.coordinator.submit(transactional_id, asked)
        return answers

    def describe(self, transactional_id: str = "x"):
        (answer,) = self.submit(describe, transactional_id=transactional_id)
        (state,) = answer.transaction_states
        return state

    def listed(self, **filters):
        return self.coordinator.list_transactions(ListTransactionsRequest(**filters))

    def init(self, transactional_id: str = "x") -> list:
        return self.submit(init_producer, 60_000, transactional_id=transactional_id)

    def add(self, *partitions, producer_id: int = 1_000, epoch: int = 0) -> list:
        return self.submit(add_partitions, producer_id, epoch, partitions or [T0], 2)

    def end(self, producer_id: int = 1_000, epoch: int = 0, commit: bool = True) -> list:
        return self.submit(end_transaction, producer_id, epoch, commit, 2)

    def begin(self, *partitions) -> None:
        self.init()
        self.clock.run(1)
        added = self.add(*partitions)
        self.clock.run(1)
        assert code_of(added) is NONE

    def written(self, **codes) -> None:
        """Answer the oldest write of markers, as `t_0=...` says and else with NONE."""
        effect, then = self.writes.pop(0)
        then({name: codes.get(f"{name[0]}_{name[1]}", NONE) for name in effect.partitions})

    def state(self, transactional_id: str = "x") -> str:
        return self.describe(transactional_id).transaction_state

    def states_in_log(self) -> list[TransactionState]:
        return [decode_value(value).state for _, value, _ in self.log.records if value is not None]


@pytest.fixture
def node():
    node = Node()
    node.lead()
    return node


def code_of(answers: list) -> ErrorCode:
    (answer,) = answers
    return answer.error_code


# The log


def test_the_decision_is_answered_when_it_is_in_the_log_and_only_then_markers_are_written(node):
    node.begin(T0, ("u", 1))
    node.log.is_prompt = False
    ended = node.end()
    assert not ended
    assert not node.writes
    node.log.complete()
    assert [(answer.error_code, answer.producer_id, answer.producer_epoch) for answer in ended] == [
        (NONE, 1_000, 1)
    ]
    (effect, _), *_ = node.writes
    assert effect.marker == (1_000, 1, 0, True, 2)
    assert list(effect.partitions) == [T0, ("u", 1)]
    node.written()
    assert len(node.log.waiting) == 1
    node.log.complete()
    assert node.states_in_log()[-2:] == [TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT]


def test_what_is_to_be_written_is_refused_while_too_few_replicas_are_in_sync(node):
    node.begin()
    node.log.is_under_min_isr = True
    before = len(node.log.records)
    for answers in (node.init("y"), node.init(), node.add(("t", 1)), node.end()):
        assert code_of(answers) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.state() == "Ongoing", "reads are answered"
    assert len(node.log.records) == before
    node.log.is_under_min_isr = False
    ended = node.end()
    node.clock.run(1)
    assert code_of(ended) is NONE


def test_markers_of_a_decision_that_other_replicas_may_lack_are_not_written(node):
    """Else the next leader, without the decision, might decide otherwise."""
    node.begin()
    node.log.is_prompt = False
    node.end()
    node.log.records += node.log.waiting.pop()[0]
    node.log.is_behind = True
    node.lead(leader_epoch=1)
    node.clock.run(60_000)
    assert node.writes == []
    assert node.describe().error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.log.caught_up()
    assert [effect.marker.coordinator_epoch for effect, _ in node.writes] == [1]


def test_a_decision_that_the_log_refused_was_never_made(node):
    node.begin()
    node.log.is_prompt = False
    ended = node.end()
    node.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(ended) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.clock.run(1)
    assert not node.writes
    assert node.state() == "Ongoing"
    node.log.is_prompt = True
    aborted = node.end(commit=False)
    node.clock.run(1)
    assert code_of(aborted) is NONE


def test_a_failure_after_the_decision_has_the_markers_written_again_and_the_late_answer_is_not_heard(node):
    node.begin()
    node.end()
    node.clock.run(1)
    node.log.is_prompt = False
    node.init("other")
    node.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    node.log.is_prompt = True
    node.clock.run(1)
    (_, late), (again, then) = node.writes
    late({T0: NONE})
    node.clock.run(1)
    assert node.state() == "PrepareCommit"
    then({T0: NONE})
    then({T0: ErrorCode.UNKNOWN_SERVER_ERROR})
    node.clock.run(1)
    assert node.state() == "CompleteCommit"
    assert again.marker.producer_epoch == 1


# Markers


def test_partitions_that_fail_are_tried_again_with_growing_pauses_until_all_are_written(node):
    node.begin(T0, ("t", 1))
    node.end()
    node.clock.run(1)
    node.written(t_1=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    pauses = []
    for _ in range(9):
        before_ms = node.clock.now_ms
        while not node.writes:
            node.clock.run(10)
        pauses.append(round(node.clock.now_ms - before_ms, -2))
        assert list(node.writes[0][0].partitions) == [("t", 1)]
        assert node.state() == "PrepareCommit"
        node.written(t_1=ErrorCode.NOT_ENOUGH_REPLICAS)
    assert pauses == [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    node.clock.run(6_000)
    node.written()
    node.clock.run(1)
    assert node.state() == "CompleteCommit"


def test_where_a_later_coordinator_has_been_nothing_is_tried_again_before_the_next_loading(node):
    node.begin(T0, ("t", 1), ("t", 2))
    node.end()
    node.clock.run(1)
    node.written(t_1=ErrorCode.TRANSACTION_COORDINATOR_FENCED, t_2=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    node.clock.run(60_000)
    assert not node.writes
    told = node.describe()
    (topic,) = told.topics
    assert (told.transaction_state, topic.topic, topic.partitions) == ("PrepareCommit", "t", [1, 2])
    assert code_of(node.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    node.lead(leader_epoch=8)
    (effect, _), *_ = node.writes
    assert effect.marker.coordinator_epoch == 8
    assert list(effect.partitions) == [T0, ("t", 1), ("t", 2)]
    node.written()
    node.clock.run(1)
    assert node.state() == "CompleteCommit"


def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(node):
    node.begin(T0, ("u", 0), ("u", 1))
    node.end()
    node.clock.run(1)
    node.written(t_0=ErrorCode.NOT_LEADER_OR_FOLLOWER, u_1=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    del node.topics["u"]
    node.lead()
    node.clock.run(200)
    assert list(node.writes[0][0].partitions) == [T0]
    node.written()
    node.clock.run(1)
    assert node.state() == "CompleteCommit"


def test_a_transaction_whose_topics_are_all_gone_ends_without_a_write(node):
    node.begin(T0, ("u", 9))
    node.topics.clear()
    node.lead()
    ended = node.end()
    node.clock.run(1)
    assert code_of(ended) is NONE
    assert not node.writes
    assert node.state() == "CompleteCommit"


def test_a_writer_that_fails_or_forgets_a_partition_is_asked_again(node):
    node.begin(T0, ("t", 1))

    def fail(effect, then):
        raise OSError

    node.write_markers = fail
    node.end()
    node.clock.run(1)
    assert node.state() == "PrepareCommit"
    node.write_markers = lambda effect, then: then({T0: NONE})
    node.clock.run(100)
    del node.write_markers  # the one of its class again
    node.clock.run(200)
    assert list(node.writes[0][0].partitions) == [("t", 1)]


def test_answers_that_come_at_once_are_as_good(node):
    node.write_markers = lambda effect, then: then(dict.fromkeys(effect.partitions, NONE))
    node.begin()
    node.end()
    node.clock.run(1)
    assert node.state() == "CompleteCommit"
    assert node.states_in_log()[-1] is TransactionState.COMPLETE_COMMIT


# Leadership and loading


def test_a_new_coordinator_goes_on_with_what_the_old_one_left_and_says_its_epoch(node):
    node.begin()
    node.end()
    node.clock.run(1)
    node.lead(2, leader_epoch=3)
    assert code_of(node.end()) is ErrorCode.NOT_COORDINATOR
    node.written()
    node.lead(1, leader_epoch=4)
    (effect, _), *_ = node.writes
    assert effect.marker == (1_000, 1, 4, True, 2)
    node.written()
    node.clock.run(1)
    assert node.state() == "CompleteCommit"


def test_without_the_topic_it_is_not_the_coordinator():
    node = Node()
    assert code_of(node.init()) is ErrorCode.NOT_COORDINATOR
    node.coordinator.view_changed(ClusterView())
    assert code_of(node.init()) is ErrorCode.NOT_COORDINATOR
    assert node.listed().error_code is NONE


def record_of(transactional_id: str, **changes) -> tuple:
    values = {"producer_id": 5, "producer_epoch": 1, "timeout_ms": 60_000, "start_ms": 1, "updated_ms": 1}
    return encode_key(transactional_id), encode_value(Transaction(**{**values, **changes}), 2), 0


def test_a_long_log_is_loaded_in_slices_and_ids_wait_for_it():
    node = Node()
    node.log.records = [
        record_of(f"id-{number % 100}", producer_id=number) for number in range(3 * RECORDS_PER_TURN)
    ]
    node.lead()
    assert node.coordinator.is_loading
    assert code_of(node.init("id-1")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.listed().error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.clock.run(1)
    assert not node.coordinator.is_loading
    assert len(node.listed().transaction_states) == 100
    answers = node.init("id-1")
    node.clock.run(1)
    assert answers[0].producer_id == 3 * RECORDS_PER_TURN - 99
    assert answers[0].producer_epoch == 2


def test_a_record_that_nobody_knows_is_passed_over():
    node = Node()
    node.log.records = [
        (b"\x00\x63\x00\x00", b"\x00\x00", 0),
        (encode_key("x"), b"\x00\x63", 0),
        record_of("y"),
        (b"\x00", b"", 0),
    ]
    node.lead()
    (listed,) = node.listed().transaction_states
    assert (listed.transactional_id, listed.producer_id, listed.transaction_state) == ("y", 5, "Empty")


# All machines


def test_the_ids_of_all_partitions_are_listed_and_filtered():
    node = Node(3)
    node.lead()
    names = [f"id-{number}" for number in range(12)]
    assert len({node.coordinator.partition_of(name) for name in names}) == 3
    for name in names:
        node.init(name)
    node.clock.run(1)
    listed = node.listed()
    assert sorted(each.transactional_id for each in listed.transaction_states) == sorted(names)
    assert {each.transaction_state for each in listed.transaction_states} == {"Empty"}
    listed = node.listed(state_filters=["Empty", "Empti"], producer_id_filters=[1_001, 1_002])
    assert listed.unknown_state_filters == ["Empti"]
    assert sorted(each.producer_id for each in listed.transaction_states) == [1_001, 1_002]
    assert not node.listed(duration_filter=10**15).transaction_states


# Time and numbers


def effects_by_ring(node) -> list[list]:
    """What the machine decides each time when a timer rings, from now on."""
    rings: list[list] = []
    machine = node.coordinator.partitions[0].machine
    expire = machine.expire

    def ring(timer_key, now_ms):
        rings.append(expire(timer_key, now_ms))
        return rings[-1]

    machine.expire = ring
    return rings


def test_many_transactions_past_their_time_out_are_aborted_some_at_a_time(node):
    count = 2 * ABORTS_PER_TURN + 1
    node.log.records = [
        record_of(f"id-{number}", state=TransactionState.ONGOING, partitions=frozenset({T0}))
        for number in range(count)
    ]
    node.lead(leader_epoch=1)
    rings = effects_by_ring(node)
    node.clock.run(10_001)
    aborted = [sum(isinstance(effect, WriteMarkers) for effect in effects) for effects in rings]
    assert aborted == [ABORTS_PER_TURN, ABORTS_PER_TURN, 1]
    assert len(node.writes) == count


def test_ids_that_nobody_uses_are_forgotten_some_at_a_time_and_their_tombstones_fit_the_log(node):
    count = IDS_PER_TURN + 10
    node.settings.append_max_bytes = 2_000
    node.settings.transactional_id_expiration_ms = 1_000
    node.log.records = [record_of(f"id-{number}") for number in range(count)]
    node.lead(leader_epoch=1)
    node.clock.run(2)
    rings = effects_by_ring(node)
    node.clock.run(3_600_000)
    appends = [[effect.records for effect in effects if isinstance(effect, Append)] for effects in rings]
    assert [sum(map(len, records)) for records in appends if records] == [IDS_PER_TURN, 10]
    assert max(len(records) for ring in appends for records in ring) < 2_000 / 30
    assert not node.listed().transaction_states
    assert {value for _, value, _ in node.log.records[count:]} == {None}


def test_idle_ids_cost_no_timer(node):
    for number in range(1_000):
        node.init(f"id-{number}")
    node.clock.run(1)
    assert sum(len(partition.timers) for partition in node.coordinator.partitions.values()) == 2


def test_producer_ids_that_cannot_be_had_refuse_who_needs_one(node):
    def none_left():
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        yield

    node.producer_ids = none_left()
    assert code_of(node.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert node.describe().error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_closed_it_refuses_all_and_leaves_no_timer(node):
    node.begin()
    node.end()
    node.clock.run(1)
    node.coordinator.close()
    node.written()
    assert node.clock.pending == 0
    assert code_of(node.init()) is ErrorCode.NOT_COORDINATOR
