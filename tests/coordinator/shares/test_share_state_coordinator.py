"""The coordinator of share partitions over a log that fails: what was answered is there after any crash."""

import itertools
import random
from dataclasses import replace

import pytest

from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.coordinator.shares.state.coordinator import ShareCoordinator
from odradek.coordinator.shares.state.machine import ShareMachine
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.share_batches import Batch, combined
from tests.coordinator.fakes import FakeClock, FakeLog
from tests.coordinator.shares.share_state_requests import (
    asked,
    batches_in,
    delete,
    initialize,
    read,
    result_of,
    summarize,
    write,
)
from tests.tiers import NIGHTLY

NODE = 1
TOPIC_ID, OTHER_ID = (bytes([number] * 16) for number in (1, 2))
KEYS = [SharePartitionKey(group, TOPIC_ID, index) for group in ("g", "h") for index in (0, 1)]
ROUNDS = 300 if NIGHTLY else 30


class ShareLog(FakeLog):
    """One that can be cut at its start."""

    def __init__(self) -> None:
        super().__init__()
        self.read_from = self.start = 0
        self.delete_error: KafkaError | None = None

    def read_all(self):
        self.read_from = self.start
        yield from super().read_all()

    def delete_before(self, offset: int, then) -> None:
        then(self.delete_error)
        if self.delete_error is not None:
            return
        del self.records[: offset - self.start]
        self.start = offset


def view(*topics: bytes, leader: int = NODE, leader_epoch: int = 0) -> ClusterView:
    """With these topics of two partitions, and one partition of the coordinator's topic."""

    def of(name, topic_id, count, epoch):
        partitions = tuple(
            PartitionView(index, leader, epoch, (leader,), (leader,)) for index in range(count)
        )
        return TopicView(name, topic_id, partitions)

    found = [of(SHARE_STATE_TOPIC, bytes(16), 1, leader_epoch)]
    found += [of(topic_id.hex(), topic_id, 2, 0) for topic_id in topics]
    return ClusterView(
        topics={topic.name: topic for topic in found},
        topic_names={topic.topic_id: topic.name for topic in found},
    )


class World:
    def __init__(self, **settings) -> None:
        self.clock = FakeClock()
        self.log = ShareLog()
        self.log.clock = self.clock
        self.settings = ShareStateSettings(**settings)
        self.begin()

    def begin(self, *topics: bytes, leader_epoch: int = 0) -> None:
        """A coordinator that knows nothing yet."""
        self.coordinator = ShareCoordinator(
            node_id=NODE,
            settings=self.settings,
            open_log=lambda index: self.log,
            clock_ms=self.clock.clock_ms,
            call_later=self.clock.call_later,
        )
        self.coordinator.view_changed(view(*(topics or (TOPIC_ID, OTHER_ID)), leader_epoch=leader_epoch))

    def crash(self, arrived: int) -> None:
        """So many of the appends under way have arrived."""
        for records, _ in self.log.waiting[:arrived]:
            self.log.records += records
        self.log.waiting.clear()
        self.clock.calls.clear()
        self.begin()

    def submit(self, request, take) -> None:
        """`take` gets the result."""
        self.coordinator.submit_state(asked(request, lambda response: take(result_of(response))))

    def ask(self, kind, key=KEYS[0], *values):
        answers = []
        self.submit(kind(key, *values), answers.append)
        self.clock.run()
        (answer,) = answers
        return answer

    @property
    def machine(self) -> ShareMachine:
        return self.coordinator.partitions[0].machine


def code(answer) -> str:
    return ErrorCode(answer.error_code).name


def test_what_was_answered_is_there_after_a_new_load():
    world = World()
    assert code(world.ask(initialize, KEYS[0], 0, 5)) == "NONE"
    assert code(world.ask(write, KEYS[0], 0, 0, 5, 0, [Batch(5, 9, 1, 0)])) == "NONE"
    world.crash(0)
    answer = world.ask(read, KEYS[0], 0)
    assert (answer.start_offset, batches_in(answer)) == (5, [Batch(5, 9, 1, 0)])


def test_a_write_whose_append_fails_is_refused_and_undone():
    world = World()
    world.ask(initialize, KEYS[0], 0, 5)
    world.log.is_prompt = False
    answers = []
    for start in (6, 7):
        world.submit(write(KEYS[0], 0, 0, start, 0, []), answers.append)
    world.submit(summarize(KEYS[0]), answers.append)
    assert answers == []
    world.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [code(answer) for answer in answers] == ["NOT_COORDINATOR"] * 3
    world.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.log.is_prompt = True
    world.clock.run()
    assert world.ask(summarize).start_offset == 5


def test_nothing_is_written_while_too_few_replicas_are_in_sync():
    world = World()
    world.ask(initialize, KEYS[0], 0, 5)
    world.log.is_under_min_isr = True
    assert code(world.ask(write, KEYS[0], 0, 0, 6, 0, [])) == "COORDINATOR_NOT_AVAILABLE"
    assert world.ask(summarize).start_offset == 5


def test_a_reply_does_not_wait_for_other_replicas_for_ever():
    world = World(write_timeout_ms=500)
    world.log.is_replicated = True
    world.log.is_prompt = False
    answers = []
    world.submit(initialize(KEYS[0], 0, 5), answers.append)
    world.clock.run(499)
    assert answers == []
    world.clock.run(1)
    assert [code(answer) for answer in answers] == ["COORDINATOR_NOT_AVAILABLE"]


def test_the_states_of_deleted_topics_are_forgotten():
    world = World()
    world.ask(initialize, KEYS[0], 0, 5)
    world.ask(initialize, SharePartitionKey("g", OTHER_ID, 0), 0, 5)
    world.coordinator.view_changed(view(OTHER_ID))
    world.coordinator.remove_topics([TOPIC_ID])
    world.clock.run()
    assert {key.topic_id for key in world.machine.states} == {OTHER_ID}
    world.begin(OTHER_ID)
    assert {key.topic_id for key in world.machine.states} == {OTHER_ID}


def test_the_states_of_topics_that_were_deleted_meanwhile_are_forgotten_after_loading():
    world = World()
    for number in range(50):
        world.ask(initialize, SharePartitionKey(f"g{number}", TOPIC_ID, 0), 0, 5)
    world.begin(OTHER_ID)
    assert len(world.machine.states) == 50
    world.clock.run()
    assert not world.machine.states
    world.begin(OTHER_ID)
    assert not world.machine.states


def test_old_records_are_deleted_and_what_is_left_is_enough():
    world = World(prune_interval_ms=1_000, cold_snapshot_interval_ms=900, updates_per_snapshot=3)
    for key in KEYS:
        world.ask(initialize, key, 0, 0)
    for start in range(1, 20):
        world.ask(write, KEYS[0], 0, 0, start, 0, [Batch(start, start + 3, 1, 0)])
    before = {
        key: replace(kept.state, batches=[*kept.state.batches]) for key, kept in world.machine.states.items()
    }
    world.clock.run(1_000)
    assert world.log.start == len(KEYS) + 19, "all states were written again, since they are old"
    world.begin()
    after = {key: kept.state for key, kept in world.machine.states.items()}
    assert after.keys() == before.keys()
    for key in KEYS:
        rewritten = replace(
            after[key], snapshot_epoch=before[key].snapshot_epoch, written_ms=before[key].written_ms
        )
        assert rewritten == before[key]
    # Offsets are counted from where the log begins now.
    start = world.log.start
    for start_offset in range(20, 30):
        world.ask(write, KEYS[0], 0, 0, start_offset, 0, [])
    for key in KEYS[1:]:
        world.ask(initialize, key, 1, 0)
    world.clock.run(1_000)
    assert world.log.start > start
    world.begin()
    assert world.ask(summarize).start_offset == 29


def test_an_update_of_a_state_that_was_written_again_is_a_change():
    world = World(prune_interval_ms=1_000, cold_snapshot_interval_ms=900)
    for key in KEYS:
        world.ask(initialize, key, 0, 0)
    world.clock.run(1_000)
    assert all(kept.is_rewritten for kept in world.machine.states.values())
    end = world.log.start + len(world.log.records)
    world.clock.run(5_000)
    assert world.log.start + len(world.log.records) == end, "nothing has changed, and nothing is written"
    world.ask(write, KEYS[0], 0, 0, 1, 0, [])
    world.clock.run(2_000)
    assert world.log.start == end + 1


def test_a_log_that_does_not_let_itself_be_cut_disturbs_nobody():
    world = World(prune_interval_ms=1_000)
    world.log.delete_error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    world.ask(initialize, KEYS[0], 0, 0)
    world.ask(initialize, KEYS[0], 0, 1)
    world.clock.run(1_000)
    assert world.ask(summarize).start_offset == 1


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_no_answered_write_is_lost_whatever_crashes(seed):
    choose = random.Random(seed)
    world = World(
        updates_per_snapshot=choose.choice([0, 1, 3, 500]), prune_interval_ms=50, cold_snapshot_interval_ms=40
    )
    world.log.is_prompt = False
    known = {key: [None] for key in KEYS}
    """The state by the answers, then those that may have come to be without an answer."""
    clocks = itertools.count(1)

    def take(key, states):
        def answered(result):
            if result.error_code == ErrorCode.NONE:
                position = known[key].index(states)
                del known[key][:position]

        return answered

    for _ in range(300):
        key = choose.choice(KEYS)
        what = choose.random()
        last = known[key][-1]
        if what < 0.05:
            new = (next(clocks), ())
            known[key].append(new)
            world.submit(initialize(key, -1, new[0]), take(key, new))
        elif what < 0.08 and last is not None:
            known[key].append(None)
            world.submit(delete(key), lambda result: None)
        elif what < 0.5 and last is not None:
            first = choose.randrange(last[0], last[0] + 20)
            batches = [
                Batch(first, first + choose.randrange(5), choose.randrange(3), choose.choice([0, 2, 4]))
            ]
            start = choose.choice([-1, last[0] + choose.randrange(3)])
            begin = last[0] if start == -1 else start
            new = (begin, tuple(combined(last[1], combined((), batches, start), begin)))
            known[key].append(new)
            world.submit(write(key, -1, -1, start, 0, batches), take(key, new))
        elif what < 0.9:
            if world.log.waiting:
                world.log.complete()
        elif what < 0.93:
            world.clock.run(choose.randrange(60))
        elif what < 0.96:
            if world.log.waiting:
                world.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
                while world.log.waiting:
                    world.log.fail(ErrorCode.KAFKA_STORAGE_ERROR)
                world.clock.run(5_000)
                check(world, known)
        else:
            world.crash(choose.randint(0, len(world.log.waiting)))
            check(world, known)
    while world.log.waiting:
        world.log.complete()
    world.crash(0)
    check(world, known)


def check(world: World, known: dict) -> None:
    """Each key has the state of its last answer, or a later one; from now on that is certain."""
    while world.log.waiting:
        world.log.complete()
    for key, states in known.items():
        kept = world.machine.states.get(key)
        found = None if kept is None else (kept.state.start_offset, tuple(kept.state.batches))
        assert found in states, key
        known[key] = [found]
