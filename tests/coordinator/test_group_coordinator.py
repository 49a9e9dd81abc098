"""The coordinator of groups: machines come and go with the leadership, answers wait for the log, timers ring
once."""

import gc
from dataclasses import replace
from functools import partial

import pytest

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import MarkerRecord, SetTimer
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import classic_membership as membership
from odradek.coordinator.groups.record_codec import (
    CommittedOffset,
    encode_group_record,
    encode_offset,
    encode_offset_key,
)
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.runtime import (
    RECORDS_PER_TURN,
    RELOAD_PAUSE_S,
    RunningPartition,
    TimerHeap,
    coordinator_error,
)
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.group_records import GroupMetadataKey
from odradek.wire.messages.list_groups import ListGroupsRequest
from tests.coordinator import group_requests as requests
from tests.coordinator.fakes import FakeClock, FakeLog, view_with_offsets_topic
from tests.coordinator.shares.share_persister import FakePersister
from tests.coordinator.stages.group_stage import subscription

NONE = ErrorCode.NONE
COMMIT = EndMarker(9, 2, 0, True)
PROTOCOLS = [("range", subscription("t"))]


class Node:
    def __init__(self, partition_count: int = 1, after_loading=None) -> None:
        self.clock = FakeClock()
        self.logs = {index: FakeLog() for index in range(partition_count)}
        for log in self.logs.values():
            log.clock = self.clock
        self.log = self.logs[0]
        self.answers: list = []
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=partition_count
        )
        self.member_count = 0
        self.coordinator = GroupCoordinator(
            node_id=1,
            settings=self.settings,
            open_log=self.logs.get,
            clock_ms=self.clock.clock_ms,
            call_later=self.clock.call_later,
            new_member_suffix=self.new_suffix,
            persister=FakePersister,
            after_loading=after_loading,
        )

    def new_suffix(self) -> str:
        self.member_count += 1
        return str(self.member_count)

    def lead(self, *leaders: int, leader_epoch: int = 0) -> None:
        self.coordinator.view_changed(view_with_offsets_topic(list(leaders), leader_epoch))

    def ask(self, request, version: int = 9, submit=None) -> list:
        """Submit a request; a list that will hold its response."""
        answers: list = []
        group_id = requests.group_of(request)
        submit = partial(self.coordinator.submit, group_id) if submit is None else submit
        submit(requests.asked(request, answers.append, version))
        return answers

    def commit(self, offset: int, group_id: str = "g") -> list:
        return self.ask(requests.commit(group_id, [("t", 0, offset)]))

    def commit_in_transaction(self, offset: int) -> list:
        request = requests.commit_in_transaction("g", 9, [("t", 0, offset)], 2)
        return self.ask(request, submit=self.coordinator.commit_in_transaction)

    def fetch(self, group_id: str = "g") -> list:
        return self.ask(requests.fetch(group_id, [("t", 0)]))

    def beat(self, generation: int = 1, member_id: str = "c-1") -> list:
        return self.ask(requests.beat("g", generation, member_id))

    def join(self, member_id: str = "", version: int = 3) -> list:
        return self.ask(requests.join("g", member_id, PROTOCOLS, 10_000, 30_000), version)

    @property
    def state(self) -> str:
        """Of the group, as it is described."""
        return self.ask(requests.describe("g"))[0].groups[0].group_state

    def listed(self):
        return self.coordinator.list_groups(ListGroupsRequest())

    def stable_member(self) -> None:
        joined = self.join()
        self.clock.run(1)
        assert joined[0].error_code is NONE
        self.ask(requests.sync("g", 1, "c-1", {"c-1": b"all"}))
        self.clock.run(1)


@pytest.fixture
def node():
    node = Node()
    node.lead(1)
    return node


def offset_of(answers: list) -> int:
    (answer,) = answers
    assert answer.groups[0].error_code is NONE
    return requests.results_in(answer)[0][1].committed_offset


def code_of_fetch(answers: list) -> ErrorCode:
    (answer,) = answers
    return answer.groups[0].error_code


# Answers and the log


def test_what_can_be_said_at_once_is_said_without_a_ticket(node, monkeypatch):
    def ask(request):
        return node.coordinator.ask(requests.group_of(request), requests.asked(request, "none"))

    beat = requests.beat("g", 1, "c-1")
    assert ask(beat) is None
    node.stable_member()
    assert ask(beat).error_code is NONE
    assert ask(requests.beat("g", 2, "c-1")) is None
    assert ask(requests.beat("g", 1, "nobody")) is None
    node.log.is_prompt = False
    node.ask(requests.commit("g", [("t", 0, 5)], 1, "c-1"))
    assert ask(beat) is None
    node.log.complete()
    assert ask(beat).error_code is NONE
    with monkeypatch.context() as patch:
        patch.setattr(GroupMachine, "ask", lambda machine, command, now_ms: 1 / 0)
        assert ask(beat) is None
    node.lead(2)
    assert ask(beat) is None


def test_a_commit_is_answered_when_the_log_has_it_and_not_before(node):
    node.log.is_prompt = False
    committed = node.commit(5)
    assert not committed
    node.log.complete()
    assert [requests.errors_in(answer) for answer in committed] == [[NONE]]


def test_a_read_after_a_commit_waits_until_that_commit_is_safe(node):
    node.log.is_prompt = False
    committed = node.commit(5)
    fetched = node.fetch()
    assert not fetched
    node.log.complete()
    assert committed
    assert offset_of(fetched) == 5


def test_a_commit_that_other_replicas_lack_for_too_long_is_refused_and_counts_when_they_have_it(node):
    node.settings.offsets_commit_timeout_ms = 700
    node.log.is_prompt, node.log.is_replicated = False, True
    committed, fetched = node.commit(5), node.fetch()
    node.clock.run(699)
    assert not committed
    node.clock.run(1)
    assert [requests.errors_in(answer) for answer in committed] == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]]
    assert code_of_fetch(fetched) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.log.complete()
    assert offset_of(node.fetch()) == 5


def test_an_answer_may_come_with_the_next_command_which_stays_behind_in_the_log(node):
    second: list = []

    def commit_again(answer):
        second.append(node.commit(6))

    node.coordinator.submit("g", requests.asked(requests.commit("g", [("t", 0, 5)]), commit_again))
    node.clock.run(1)
    assert second[0]
    assert offset_of(node.fetch()) == 6


# Offsets in transactions


def test_offsets_in_a_transaction_are_appended_with_its_producer_and_count_after_its_marker(node):
    committed, ended = node.commit_in_transaction(5), []
    node.clock.run(1)
    assert requests.errors_in(committed[0]) == [NONE]
    assert node.log.records[-1].producer_id == 9
    assert offset_of(node.fetch()) == -1
    node.coordinator.end_offsets(0, COMMIT, ended.append)
    assert not ended
    node.clock.run(1)
    assert ended == [NONE]
    assert node.log.records[-1] == MarkerRecord(9, True)
    assert offset_of(node.fetch()) == 5
    node.lead(1, leader_epoch=1)
    assert offset_of(node.fetch()) == 5


def test_what_the_log_would_refuse_of_a_producer_is_refused_before_the_machine_hears_of_it(node):
    machine = node.coordinator.partitions[0].machine
    ended = []
    node.log.refusal = KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert requests.errors_in(node.commit_in_transaction(5)[0]) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    node.log.refusal = KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    node.coordinator.end_offsets(0, COMMIT, ended.append)
    node.log.refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    node.coordinator.end_offsets(0, COMMIT, ended.append)
    assert ended == [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.NOT_COORDINATOR]
    assert not node.log.records
    assert node.coordinator.partitions[0].machine is machine


def test_without_a_machine_offsets_and_markers_have_to_come_again(node):
    ended = []
    node.log.read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    node.lead(1, leader_epoch=1)
    node.coordinator.end_offsets(0, COMMIT, ended.append)
    node.coordinator.end_offsets(7, COMMIT, ended.append)
    assert ended == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR]
    (refused,) = node.commit_in_transaction(5)
    assert requests.errors_in(refused) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


# Failure


def test_a_failed_append_refuses_its_callers_and_brings_back_what_the_log_holds(node):
    node.commit(5)
    node.clock.run(1)
    node.log.is_prompt = False
    failed, behind, fetched = node.commit(6), node.commit(7), node.fetch()
    node.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert [requests.errors_in(answer) for answer in failed] == [[ErrorCode.NOT_COORDINATOR]]
    assert [requests.errors_in(answer) for answer in behind] == [[ErrorCode.NOT_COORDINATOR]]
    assert code_of_fetch(fetched) is ErrorCode.NOT_COORDINATOR

    # The append behind it is still under way: what it becomes is known only when it is through.
    assert code_of_fetch(node.fetch()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    node.clock.run(1)
    assert offset_of(node.fetch()) == 5
    node.log.is_prompt = True
    node.commit(8)
    node.clock.run(1)
    assert offset_of(node.fetch()) == 8


def test_a_failed_append_answers_parked_members_and_their_timers_are_forgotten(node):
    node.stable_member()
    waiting = node.join()
    node.log.is_prompt = False
    node.commit(1, group_id="other")
    node.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [answer.error_code for answer in waiting] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    node.log.is_prompt = True
    node.clock.run(1)
    assert node.state == "Stable"
    node.clock.run(10_001)
    assert node.state == "Empty"


def test_a_machine_that_trips_over_a_command_is_loaded_again(node):
    node.stable_member()
    node.commit(5, group_id="simple")
    node.clock.run(1)
    machine = node.coordinator.partitions[0].machine

    def trip(*arguments):
        machine.groups.clear()
        raise ZeroDivisionError

    machine.handle = trip
    assert node.beat()[0].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    node.clock.run(1)
    assert node.beat()[0].error_code is NONE
    assert offset_of(node.fetch("simple")) == 5


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_errors_of_the_log_become_errors_of_a_coordinator(said, told):
    assert coordinator_error(said) is told


# Leadership and loading


def test_without_the_topic_or_the_leadership_it_is_not_the_coordinator():
    node = Node(2)
    group_of = {node.coordinator.partition_of(name): name for name in ("a", "b", "c", "d")}
    assert code_of_fetch(node.fetch("a")) is ErrorCode.NOT_COORDINATOR
    node.coordinator.view_changed(ClusterView())
    assert code_of_fetch(node.fetch("a")) is ErrorCode.NOT_COORDINATOR
    node.lead(1, 2)
    assert code_of_fetch(node.fetch(group_of[0])) is NONE
    assert code_of_fetch(node.fetch(group_of[1])) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("is_loading", [False, True])
def test_what_is_wrong_with_a_request_in_itself_is_told_before_the_coordinator_is_asked_for(is_loading):
    node = Node()
    code = ErrorCode.NOT_COORDINATOR
    if is_loading:
        node.log.read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        node.lead(1)
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for request in (
        requests.sync("", 1, "c-1"),
        requests.leave(""),
        requests.delete_offsets("", []),
        requests.beat("", 1, "c-1"),
    ):
        (refused,) = node.ask(request)
        assert refused.error_code is ErrorCode.INVALID_GROUP_ID, request
    ((refused,),) = (answer.groups for answer in node.ask(requests.describe_consumers("")))
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_GROUP_ID, None)
    (refused,) = node.ask(requests.join("g", "c-1", PROTOCOLS, 1, 30_000))
    assert (refused.error_code, refused.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "c-1")
    (refused,) = node.join("c-1", version=9)
    assert (refused.error_code, refused.member_id) == (code, "")
    (refused,) = node.ask(requests.consumer_beat("g", "m", -3), 1)
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    (refused,) = node.ask(requests.consumer_beat("g", "m", 3), 1)
    assert (refused.error_code, refused.error_message) == (code, None)


def test_who_waits_is_told_when_the_leadership_moves_and_a_late_append_harms_nobody(node):
    node.stable_member()
    node.log.is_prompt = False
    committed, joining = node.commit(1, group_id="x"), node.join()
    node.lead(2)
    assert [requests.errors_in(answer) for answer in committed] == [[ErrorCode.NOT_COORDINATOR]]
    assert [answer.error_code for answer in joining] == [ErrorCode.NOT_COORDINATOR]
    node.log.complete()
    node.clock.run(100_000)
    assert len(committed) == len(joining) == 1
    node.lead(1, leader_epoch=2)
    assert offset_of(node.fetch("x")) == 1


def test_a_new_leader_epoch_loads_again(node):
    node.commit(5)
    node.clock.run(1)
    node.log.records.append((encode_offset_key("g", "t", 0), encode_offset(CommittedOffset(9, -1, "", 0)), 0))
    node.lead(1, leader_epoch=1)
    assert offset_of(node.fetch()) == 9


def test_a_long_log_is_loaded_in_slices_and_groups_wait_for_it():
    node = Node()
    record = encode_offset(CommittedOffset(7, -1, "", 0))
    node.log.records = [
        (encode_offset_key("g", "t", number % 10), record, 0) for number in range(3 * RECORDS_PER_TURN)
    ]
    node.lead(1)
    assert node.coordinator.is_loading
    assert code_of_fetch(node.fetch()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert node.beat()[0].error_code is NONE
    assert node.listed().error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.coordinator.remove_topics({"u"})
    node.clock.run(1)
    assert not node.coordinator.is_loading
    assert offset_of(node.fetch()) == 7
    assert [group.group_id for group in node.listed().groups] == ["g"]


def test_topics_deleted_while_loading_lose_their_offsets():
    node = Node()
    node.log.read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    node.log.records = [(encode_offset_key("g", "t", 0), encode_offset(CommittedOffset(7, -1, "", 0)), 0)]
    node.lead(1)
    node.coordinator.remove_topics({"t"})
    node.log.read_error = None
    node.clock.run(6_000)
    assert offset_of(node.fetch()) == -1


def test_offsets_of_a_topic_that_was_deleted_just_before_a_crash_are_gone_after_it():
    node = Node()
    value = encode_offset(CommittedOffset(7, -1, "", 0))
    node.log.records = [(encode_offset_key("g", topic, 0), value, 0) for topic in ("t", "gone")]
    node.coordinator.view_changed(view_with_offsets_topic([1], topics=("t",)))
    node.clock.run(1)
    assert offset_of(node.fetch()) == 7
    assert offset_of(node.ask(requests.fetch("g", [("gone", 0)]))) == -1
    assert node.log.records[-1][:2] == (encode_offset_key("g", "gone", 0), None)


def test_offsets_of_a_topic_that_was_made_anew_just_before_a_crash_are_gone_after_it():
    node = Node()
    old, new = b"o" * 16, b"n" * 16
    view = view_with_offsets_topic([1], topics=("t",))
    view = replace(view, topics={**view.topics, "t": replace(view.topics["t"], topic_id=new)})
    node.log.records = [
        (encode_offset_key("g", "t", index), encode_offset(CommittedOffset(7, -1, "", 0, topic_id=one)), 0)
        for index, one in enumerate([old, new, bytes(16)])
    ]
    node.coordinator.view_changed(view)
    node.clock.run(1)
    (fetched,) = node.ask(requests.fetch("g", [("t", index) for index in range(3)]))
    assert [one.committed_offset for _, one in requests.results_in(fetched)] == [-1, 7, 7]
    assert node.log.records[-1][:2] == (encode_offset_key("g", "t", 0), None)


def test_offsets_are_loaded_as_they_were_written_whatever_was_deleted_in_between():
    node = Node()

    def stored(group_id, offset, metadata=""):
        value = encode_offset(CommittedOffset(offset, -1, metadata, 0))
        return encode_offset_key(group_id, "t", 0), value, 0

    node.log.records = [
        stored("g", 1),
        (encode_offset_key("g", "t", 0), None, 0),
        stored("h", 1),
        stored("h", 2),
        (*encode_group_record(GroupMetadataKey(group="h"), None), 0),
        stored("h", 3, "note"),
        stored("g", 4),
        stored("g", 5),
    ]
    node.lead(1)
    assert offset_of(node.fetch("g")) == 5
    assert offset_of(node.fetch("h")) == 3
    assert {group.group_id for group in node.listed().groups} == {"g", "h"}


def test_the_collector_rests_during_a_slice_of_loading_and_not_longer():
    seen = []
    node = Node(after_loading=lambda: seen.append(gc.isenabled()))
    node.log.read_all = lambda: iter(seen.append(gc.isenabled()) or [])
    node.lead(1)
    assert seen == [False, True]


class FullLog(FakeLog):
    """A log without room, but only for so many loads: a test that waits for an end of them has one."""

    def __init__(self) -> None:
        super().__init__()
        self.has_room = False
        self.loads = 0

    def read_all(self):
        self.loads += 1
        yield from super().read_all()

    def wait(self, records, then) -> None:
        if self.has_room or self.loads > 100:
            return super().wait(records, then)
        self.waiting.append((records, then))
        self.clock.call_later(0, lambda: self.fail(ErrorCode.KAFKA_STORAGE_ERROR))


def test_a_machine_whose_first_append_fails_is_not_loaded_for_ever_and_heals_when_there_is_room():
    node = Node()
    node.logs[0] = log = FullLog()
    log.clock = node.clock
    value = encode_offset(CommittedOffset(7, -1, "", 0))
    log.records = [(encode_offset_key("g", topic, 0), value, 0) for topic in ("t", "gone")]
    node.coordinator.view_changed(view_with_offsets_topic([1], topics=("t",)))
    node.clock.run(60_000)
    assert log.loads == 1 + 60_000 / (1000 * RELOAD_PAUSE_S)
    assert code_of_fetch(node.fetch()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    log.has_room = True
    node.clock.run(round(1000 * RELOAD_PAUSE_S))
    assert offset_of(node.fetch()) == 7
    assert offset_of(node.ask(requests.fetch("g", [("gone", 0)]))) == -1
    assert log.records[-1][:2] == (encode_offset_key("g", "gone", 0), None)
    loads = log.loads
    node.clock.run(60_000)
    assert log.loads == loads


def test_a_log_that_cannot_be_read_is_tried_again_until_it_can():
    node = Node(2)
    node.logs[0].read_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    node.lead(1, 1)
    group_of = {node.coordinator.partition_of(name): name for name in ("a", "b", "c", "d")}
    assert code_of_fetch(node.fetch(group_of[1])) is NONE
    assert code_of_fetch(node.fetch(group_of[0])) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.logs[0].read_error = None
    node.clock.run(6_000)
    assert code_of_fetch(node.fetch(group_of[0])) is NONE


def test_a_record_that_nobody_knows_is_passed_over():
    node = Node()
    node.log.records = [
        (b"\x00\x63\x00\x00", b"\x00\x00", 0),
        (encode_offset_key("g", "t", 0), b"\x00\x63", 0),
        (encode_offset_key("g", "t", 0), encode_offset(CommittedOffset(7, -1, "", 0)), 0),
        (b"\x00", b"", 0),
    ]
    node.lead(1)
    assert offset_of(node.fetch()) == 7


# Timers


def test_a_session_ends_in_time_and_heartbeats_set_no_timer(node):
    node.stable_member()
    for _ in range(1_000):
        node.clock.run(1_000)
        assert node.beat()[0].error_code is NONE
    assert len(node.coordinator._timers) < 10
    node.clock.run(9_999)
    assert node.state == "Stable"
    node.clock.run(2)
    assert node.state == "Empty"


def test_replaced_timers_do_not_pile_up():
    clock, partition = FakeClock(), RunningPartition(0, 0)
    timers = TimerHeap(clock.clock_ms, clock.call_later, lambda partition, key: None)
    for number in range(10_000):
        timers.set(partition, SetTimer(("join", "g"), clock.now_ms + 1_000_000 - number))
    assert len(timers) < 2_500


def test_expired_offsets_are_looked_for_at_the_interval(node):
    node.settings.offsets_retention_ms = 1_000
    node.commit(5)
    node.clock.run(599_999)
    assert offset_of(node.fetch()) == 5
    node.clock.run(10)
    assert offset_of(node.fetch()) == -1
    assert node.listed().groups == []


def test_closed_it_refuses_all_and_leaves_no_timer(node):
    node.stable_member()
    joining = node.join()
    node.coordinator.close()
    assert [answer.error_code for answer in joining] == [ErrorCode.NOT_COORDINATOR]
    assert node.clock.pending == 0
    assert code_of_fetch(node.fetch()) is ErrorCode.NOT_COORDINATOR


def test_a_log_that_the_machine_trips_over_keeps_no_other_from_being_loaded(monkeypatch):
    node = Node(2)
    replay = GroupMachine.replay
    group_of = {node.coordinator.partition_of(name): name for name in ("a", "b", "c", "d")}
    value = encode_offset(CommittedOffset(7, -1, "", 0))
    for index, name in group_of.items():
        node.logs[index].records = [(encode_offset_key(name, "t", 0), value, 0)]

    def trip(machine, key, value):
        if group_of[0].encode() in key:
            raise ZeroDivisionError
        replay(machine, key, value)

    monkeypatch.setattr(GroupMachine, "replay", trip)
    node.lead(1, 1)
    assert offset_of(node.fetch(group_of[1])) == 7
    assert code_of_fetch(node.fetch(group_of[0])) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    monkeypatch.setattr(GroupMachine, "replay", replay)
    node.clock.run(6_000)
    assert offset_of(node.fetch(group_of[0])) == 7


def test_timers_that_are_due_together_do_not_hold_up_the_loop():
    clock, rung = FakeClock(), []

    def ring_slowly(partition, key):
        rung.append(key)
        clock.now_ms += 4

    timers, partition = TimerHeap(clock.clock_ms, clock.call_later, ring_slowly), RunningPartition(0, 0)
    for number in range(7):
        timers.set(partition, SetTimer(("sync", str(number)), clock.now_ms + 50))
    counts = []
    clock.run(50)
    while len(rung) < 7:
        counts.append(len(rung))
        clock.run(12)
    counts.append(len(rung))
    assert counts == [3, 6, 7]


def test_ids_that_nobody_uses_are_bounded_and_the_oldest_goes_first(monkeypatch):
    monkeypatch.setattr(membership, "PENDING_MEMBERS_MAX", 3)
    node = Node()
    node.lead(1)
    node.clock.run(1)

    def join(member_id=""):
        answers = node.join(member_id, version=4)
        node.clock.run(1)
        return answers

    ids = [join()[0].member_id for _ in range(5)]
    group = node.coordinator.partitions[0].machine.groups["g"]
    assert list(group.pending_members) == ids[2:]
    assert join(ids[0])[0].error_code is ErrorCode.UNKNOWN_MEMBER_ID
    join(ids[4])
    assert list(group.members) == [ids[4]]
    assert len(node.coordinator.partitions[0].timers) == 5  # two ids, the member, the join, the expiry
