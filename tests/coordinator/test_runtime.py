"""The runtime with a machine that does as it is told: what any machine may rely on, groups or not."""

from dataclasses import dataclass
from typing import Any

import pytest

from odradek.coordinator.asked import Ticket
from odradek.coordinator.effects import (
    Append,
    AppendMarker,
    MarkerRecord,
    Reply,
    SetTimer,
    TransactionalRecord,
    WriteMarkers,
)
from odradek.coordinator.runtime import (
    LONGEST_CACHED_KEY,
    RELOAD_PAUSE_S,
    Runtime,
    _remembered_partition_for,
)
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, MalformedMessage
from tests.coordinator.fakes import FakeClock, FakeLog, view_of

TOPIC = "__obedient"
COMMIT = EndMarker(9, 2, 5, True)
PAUSE_MS = round(RELOAD_PAUSE_S * 1000)
PATIENCE_MS = 5_000


@dataclass
class Do:
    """Tell the machine what to decide."""

    ticket: Ticket[str]
    effects: list[Any]


class ObedientMachine:
    def __init__(self) -> None:
        self.replayed: list = []

    def handle(self, command: Do, now_ms: int) -> list:
        return command.effects

    def expire(self, timer_key, now_ms: int) -> list:
        return []

    def replay(self, key: bytes, value: bytes | None) -> None:
        if key == b"bad":
            raise MalformedMessage("unknown")
        self.replayed.append((key, value))

    def replay_pending(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        self.replayed.append((key, value, producer_id))

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        self.replayed.append((producer_id, commit))

    def start(self, now_ms: int) -> list:
        return []

    def refuse_waiting(self, code: ErrorCode) -> list:
        return []


class ObedientRuntime(Runtime[ObedientMachine]):
    def __init__(self, **arguments) -> None:
        super().__init__(
            node_id=1, topic=TOPIC, partition_count=1, patience_ms=lambda: PATIENCE_MS, **arguments
        )
        self.written: list[WriteMarkers] = []

    def _new_machine(self, partition) -> ObedientMachine:
        return ObedientMachine()

    def _effect_handlers(self):
        def write(partition, effect):
            self.written.append(effect)

        return {**super()._effect_handlers(), WriteMarkers: write}


class Node:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = FakeLog()
        self.log.clock = self.clock
        self.runtime = ObedientRuntime(
            open_log=lambda index: self.log, clock_ms=self.clock.clock_ms, call_later=self.clock.call_later
        )
        self.answers: list[str] = []
        self.ticket = Ticket(self.answers.append, lambda code: code.name)

    def lead(self, leader_epoch: int = 0) -> None:
        self.runtime.view_changed(view_of(TOPIC, [1], leader_epoch, {}))

    @property
    def machine(self) -> ObedientMachine:
        return self.runtime.partitions[0].machine

    def do(self, *effects) -> None:
        self.runtime.submit("k", Do(self.ticket, list(effects)))

    def reply(self, text: str) -> Reply:
        return Reply(self.ticket, text)


@pytest.fixture
def node():
    node = Node()
    node.log.is_prompt = False
    node.lead()
    return node


def markers(name: str) -> WriteMarkers:
    return WriteMarkers(name, COMMIT, [("t", 0)])


def test_markers_are_written_when_what_came_before_them_is_in_the_log(node):
    node.do(
        Append([(b"a", b"1", 0)]), node.reply("one"), markers("x"), Append([(b"b", b"2", 0)]), markers("y")
    )
    node.do(node.reply("two"))
    assert (node.answers, node.runtime.written) == ([], [])
    node.log.complete()
    assert node.answers == ["one"]
    assert node.runtime.written == [markers("x")]
    node.log.complete()
    assert node.answers == ["one", "two"]
    assert node.runtime.written == [markers("x"), markers("y")]


def test_markers_whose_decision_is_not_in_the_log_are_never_written(node):
    node.do(Append([(b"a", b"1", 0)]), node.reply("one"), markers("x"))
    node.do(Append([(b"b", b"2", 0)]), markers("y"))
    node.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    node.log.complete()
    node.clock.run(1)
    assert node.answers == ["NOT_COORDINATOR"]
    assert node.runtime.written == []


def test_what_follows_nothing_is_done_at_once(node):
    node.do(markers("x"), node.reply("one"))
    assert node.answers == ["one"]
    assert node.runtime.written == [markers("x")]


def test_records_of_transactions_and_their_ends_are_appended_in_order_and_read_back(node):
    node.do(
        Append([(b"a", b"1", 0)]),
        Append([(b"b", b"2", 0), (b"c", None, 0)], (9, 2)),
        AppendMarker(COMMIT),
        node.reply("all"),
    )
    for _ in range(3):
        assert node.answers == []
        node.log.complete()
    assert node.answers == ["all"]
    assert node.log.records == [
        (b"a", b"1", 0),
        TransactionalRecord(b"b", b"2", 0, 9),
        TransactionalRecord(b"c", None, 0, 9),
        MarkerRecord(9, True),
    ]
    node.log.records.insert(1, (b"bad", b"", 0))
    node.lead(leader_epoch=1)
    assert node.machine.replayed == [(b"a", b"1"), (b"b", b"2", 9), (b"c", None, 9), (9, True)]


def test_a_marker_that_cannot_be_appended_fails_as_any_append(node):
    node.do(AppendMarker(COMMIT), node.reply("one"))
    node.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert node.answers == ["COORDINATOR_NOT_AVAILABLE"]
    assert node.machine is None
    node.clock.run(PAUSE_MS)
    assert node.machine is not None


def fail_an_append(node: Node) -> None:
    node.do(Append([(b"a", b"1", 0)]))
    node.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_load_that_brought_nothing_into_the_log_is_followed_by_a_pause_and_others_are_not(node):
    fail_an_append(node)
    node.clock.run(PAUSE_MS - 1)
    assert node.machine is None
    node.do(node.reply("never"))
    assert node.answers == ["COORDINATOR_LOAD_IN_PROGRESS"]
    node.clock.run(1)
    node.do(Append([(b"a", b"1", 0)]))
    node.log.complete()
    fail_an_append(node)
    node.clock.run()
    assert node.machine is not None
    node.clock.run(PAUSE_MS)
    fail_an_append(node)
    node.clock.run()
    assert node.machine is not None, "that load was long ago"


def test_a_machine_that_trips_whenever_it_is_loaded_is_loaded_once_in_a_pause(node, monkeypatch):
    loads = []

    def start(machine, now_ms):
        loads.append(now_ms)
        return [SetTimer(("overdue",), now_ms)]

    def expire(machine, timer_key, now_ms):
        assert len(loads) > 100
        return []

    monkeypatch.setattr(ObedientMachine, "start", start)
    monkeypatch.setattr(ObedientMachine, "expire", expire)
    node.lead(leader_epoch=1)
    node.clock.run(3 * PAUSE_MS)
    assert [at_ms - loads[0] for at_ms in loads] == [0, PAUSE_MS, 2 * PAUSE_MS, 3 * PAUSE_MS]


def test_a_partition_that_is_given_up_in_its_pause_is_not_loaded_by_it(node):
    fail_an_append(node)
    node.lead(leader_epoch=1)
    machine = node.machine
    assert machine is not None
    node.clock.run(PAUSE_MS)
    assert node.machine is machine
    fail_an_append(node)
    node.runtime.close()
    assert node.clock.pending == 0


def test_a_pause_is_no_longer_when_the_clock_is_set_back(node):
    node.clock.now_ms -= 60_000
    fail_an_append(node)
    node.clock.run(PAUSE_MS)
    assert node.machine is not None


def test_keys_of_any_length_have_a_partition_and_long_ones_are_not_kept(node):
    _remembered_partition_for.cache_clear()
    assert node.runtime.partition_of("k" * LONGEST_CACHED_KEY) == 0
    assert node.runtime.partition_of("k" * 32_767) == 0
    assert _remembered_partition_for.cache_info().currsize == 1


# Other replicas


@pytest.fixture
def replicated(node):
    node.log.is_replicated = True
    return node


def test_a_machine_goes_to_work_when_the_other_replicas_have_what_it_was_loaded_from(node, monkeypatch):
    monkeypatch.setattr(ObedientMachine, "start", lambda machine, now_ms: [markers("left to write")])
    node.log.is_behind = True
    node.log.records = [(b"a", b"1", 0)]
    node.lead(leader_epoch=1)
    node.clock.run(PAUSE_MS)
    node.do(node.reply("never"))
    assert node.machine is None
    assert node.answers == ["COORDINATOR_LOAD_IN_PROGRESS"]
    assert node.runtime.written == []
    node.log.caught_up()
    assert node.machine.replayed == [(b"a", b"1")]
    assert node.runtime.written == [markers("left to write")]
    node.do(node.reply("now"))
    assert node.answers[1:] == ["now"]


def test_replicas_that_caught_up_with_an_earlier_leader_say_nothing_about_this_one(node):
    node.log.is_behind = True
    node.lead(leader_epoch=1)
    earlier, node.log.waits = node.log.waits, []
    node.lead(leader_epoch=2)
    for then in earlier:
        then(None)
    assert node.machine is None
    node.log.caught_up()
    assert node.machine is not None


def test_a_log_that_is_cut_while_replicas_lack_it_is_loaded_again(node):
    node.log.is_behind = True
    node.log.records = [(b"a", b"1", 0), (b"b", b"2", 0)]
    node.lead(leader_epoch=1)
    del node.log.records[1]
    node.log.is_behind = False
    node.log.caught_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert node.machine is None
    node.clock.run(PAUSE_MS)
    assert node.machine.replayed == [(b"a", b"1")]


def test_a_machine_that_trips_when_the_replicas_have_caught_up_is_loaded_again_in_a_pause(node, monkeypatch):
    def trip(machine, now_ms):
        raise RuntimeError("a bug")

    node.log.is_behind = True
    node.lead(leader_epoch=1)
    monkeypatch.setattr(ObedientMachine, "start", trip)
    node.log.caught_up()
    assert node.machine is None
    monkeypatch.undo()
    node.clock.run(PAUSE_MS)
    node.log.caught_up()
    assert node.machine is not None


def test_a_reply_that_waits_too_long_for_the_replicas_is_refused_and_its_record_stays(replicated):
    node = replicated
    node.do(Append([(b"a", b"1", 0)]), node.reply("first"), markers("x"))
    node.clock.run(PATIENCE_MS - 1_000)
    node.do(Append([(b"b", b"2", 0)]), node.reply("second"))
    machine = node.machine
    node.clock.run(999)
    assert node.answers == []
    node.clock.run(1)
    assert node.answers == ["COORDINATOR_NOT_AVAILABLE"]
    node.log.complete()
    node.log.complete()
    assert node.answers == ["COORDINATOR_NOT_AVAILABLE", "second"]
    assert node.runtime.written == [markers("x")], "only the reply does not come"
    assert node.machine is machine
    node.clock.run(2 * PATIENCE_MS)
    assert len(node.answers) == 2
    assert node.clock.pending == 0


def test_whoever_comes_after_a_late_append_does_not_wait_for_ever(replicated):
    node = replicated
    node.do(Append([(b"a", b"1", 0)]))
    node.clock.run(2 * PATIENCE_MS)
    node.do(node.reply("read"))
    node.clock.run(PATIENCE_MS)
    assert node.answers == ["COORDINATOR_NOT_AVAILABLE"]
    node.log.complete()
    node.do(node.reply("again"))
    assert node.answers[1:] == ["again"]


def test_a_partition_that_is_given_up_refuses_nobody_twice(replicated):
    node = replicated
    node.do(Append([(b"a", b"1", 0)]), node.reply("one"))
    node.runtime.close()
    assert node.answers == ["NOT_COORDINATOR"]
    assert node.clock.pending == 0


def test_a_node_alone_waits_for_its_disk_as_long_as_that_takes(node):
    node.do(Append([(b"a", b"1", 0)]), node.reply("one"))
    node.clock.run(10 * PATIENCE_MS)
    node.log.complete()
    assert node.answers == ["one"]
