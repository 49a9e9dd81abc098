"""Fetches of followers that are served in place: the same as by the handler of Fetch, whatever happens."""

import logging
import random

import pytest

from odradek.coordinator.replication._led import LedReplica
from odradek.server.cluster import leading
from odradek.server.cluster._exchange import Exchange
from odradek.storage.log.partition import Partition
from odradek.wire.errors import ErrorCode
from tests.server.exchange_world import FOLLOWERS, KEYS, MAX_WAIT_MS, World
from tests.tiers import NIGHTLY

SEEDS = 400 if NIGHTLY else 40
STEPS = 200


class Pair:
    """The same happens to both sides: in place, and by the handler."""

    def __init__(self, monkeypatch, **options):
        self.monkeypatch = monkeypatch
        self.sides = [World(monkeypatch, in_place=in_place, **options) for in_place in (True, False)]

    def do(self, what):
        """`what(side)` on each side, and all that follows at once."""
        for side in self.sides:
            self.monkeypatch.setattr(leading, "monotonic_ms", side.clock_ms)
            what(side)
            side.loop.run()
            for follower in side.followers.values():
                follower.take()

    def check(self, when):
        in_place, by_handler = (side.outcome() for side in self.sides)
        for one, other in zip(in_place, by_handler, strict=True):
            assert one == other, when


def step(choose, trouble):
    """The name of what happens next, and a function of a side. `trouble` is how much of it is unusual."""
    key, node_id = choose.choice(KEYS), choose.choice(FOLLOWERS)
    counts = [choose.choice((1, 1, 3)) for _ in range(choose.choice((1, 1, 1, 2, 5)))]
    flag = choose.random() < 0.5
    isr = choose.choice(((1, 2, 3), (1, 2, 3), (1, 2), (1, 3), (1,)))
    milliseconds = choose.choice((1, 50, MAX_WAIT_MS, 1_100))
    usual = (
        (30, "ask", lambda side: side.followers[node_id].ask()),
        (16, "both ask", lambda side: [one.ask() for one in side.followers.values()]),
        (24, "produce", lambda side: side.produce(key, counts)),
        (4, "a moment", lambda side: side.loop.run(milliseconds)),
        (6, "answer_changes", lambda side: side.answer_changes(True)),
        (4, "save", lambda side: side.save()),
    )
    unusual = (
        (4, "leave", lambda side: side.followers[node_id].leave()),
        (4, "begin_epoch", lambda side: side.begin_epoch(key)),
        (2, "hand_over", lambda side: side.hand_over(key)),
        (6, "set_isr", lambda side: key in side.leading.leaders and side.set_isr(key, isr)),
        (8, "delete_records", lambda side: side.delete_records(key)),
        (8, "shrink", lambda side: side.leading.shrink()),
        (4, "refuse_changes", lambda side: side.answer_changes(False)),
        (6, "a long time", lambda side: side.loop.run(40_000)),
        (2, "fence", lambda side: side.fence(node_id, flag)),
        (2, "restart", lambda side: side.restart(node_id)),
        (2, "throttle", lambda side: side.throttle(key[0], flag)),
        (2, "want", lambda side: side.followers[node_id].wanted.symmetric_difference_update({key})),
        (2, "pause_disk", lambda side: side.pause_disk(key, flag)),
    )
    steps = [*usual, *((weight * trouble, name, what) for weight, name, what in unusual)]
    ((_, name, what),) = choose.choices(steps, [weight for weight, _, _ in steps])
    return name, what


def play(monkeypatch, seed, **options):
    choose = random.Random(seed)
    pair = Pair(monkeypatch, has_late_disk=choose.random() < 0.3, **options)
    trouble = choose.choice((0, 0.05, 0.2, 1))
    history = []
    for number in range(STEPS):
        name, what = step(choose, trouble)
        history.append(name)
        pair.do(what)
        pair.check((seed, number, history[-10:]))
    return pair


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_whatever_happens_followers_and_leader_are_as_after_the_handler(first, monkeypatch, caplog):
    served = 0
    for seed in range(first, first + 10):
        in_place, by_handler = play(monkeypatch, seed).sides
        served += in_place.served_in_place
        assert not by_handler.served_in_place
    assert served > 100
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


# --- Planted bugs: each undoes one rule of what is compiled ---


class TellsNobody(LedReplica):
    def tell(self, has_grown):
        pass


class EndsInSilence(LedReplica):
    def end(self):
        pass


class ForgetsWhoKeptUp(LedReplica):
    """Followers without news are not noted late either: the next record makes them seem slow."""

    def kept_up(self, replica_id, offset, at_ms):
        pass


class NeverExpires(Exchange):
    def _expire(self):
        pass


class NeverAtTheEndOfATurn(Exchange):
    def send_ready(self):
        pass


PLANTED = [
    TellsNobody,
    EndsInSilence,
    NeverExpires,
    NeverAtTheEndOfATurn,
]
"""No seed finds an exchange that is not renewed after a request of the handler: it serves nothing more, as
the session has another epoch."""
SEARCHED = 60


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_bug_is_found(planted, monkeypatch):
    (original,) = planted.__bases__
    monkeypatch.setattr(leading, original.__name__, planted)

    def is_found(seed):
        try:
            play(monkeypatch, seed)
        except AssertionError:
            return True
        return False

    assert any(map(is_found, range(SEARCHED)))


# --- One case each ---


class Alone:
    """The side that serves in place, with sessions that are known."""

    def __init__(self, monkeypatch, **options):
        self.world = World(monkeypatch, in_place=True, **options)
        self.first, self.second = self.world.followers.values()
        self.ask()
        self.run(MAX_WAIT_MS)

    def run(self, milliseconds=0):
        self.world.loop.run(milliseconds)
        for follower in (self.first, self.second):
            follower.take()

    def ask(self, *followers):
        for follower in followers or (self.first, self.second):
            follower.ask()
        self.run()

    def produce(self, *counts, key=KEYS[0]):
        self.world.produce(key, counts)
        self.run()

    @property
    def served(self):
        return self.world.served_in_place


@pytest.fixture
def alone(monkeypatch):
    return Alone(monkeypatch)


def test_a_request_that_waits_is_answered_at_the_end_of_the_turn_with_what_the_turn_has_written(
    alone, monkeypatch
):
    alone.produce(1)
    alone.ask()
    alone.ask()
    monkeypatch.setattr(Partition, "read", None)
    asked, served = len(alone.first.told), alone.served
    alone.world.settled.clear()
    alone.produce(1, 2)
    assert len(alone.first.told) == len(alone.second.told) == asked + 1
    assert alone.first.logs[KEYS[0]] == alone.second.logs[KEYS[0]]
    assert alone.first.ends[KEYS[0]] == 4
    alone.ask(alone.first)
    assert not alone.world.settled
    alone.ask(alone.second)
    assert alone.world.settled == [(KEYS[0], 2, None), (KEYS[0], 3, None)]
    assert alone.served == served + 2
    assert alone.first.told[-1] != {}


def test_a_response_that_fails_is_left_to_the_handler(alone, monkeypatch, caplog):
    alone.produce(1)
    alone.ask()
    alone.ask()
    stable = Partition.last_stable_offset
    failures = iter([ZeroDivisionError()])

    def fails_once(partition):
        for error in failures:
            raise error
        return stable.fget(partition)

    monkeypatch.setattr(Partition, "last_stable_offset", property(fails_once))
    alone.produce(1)
    assert "left to the handler" in caplog.text
    assert alone.first.ends[KEYS[0]] == alone.second.ends[KEYS[0]] == 2


def test_a_high_watermark_is_told_with_the_next_response_and_wakes_nobody(alone):
    alone.ask()
    alone.produce(1)
    alone.ask()
    told = len(alone.first.told)
    assert alone.world.partitions[KEYS[0]].high_watermark == 1
    alone.run(MAX_WAIT_MS - 1)
    assert len(alone.first.told) == told
    alone.run(1)
    assert [fields[1] for fields in alone.first.told[-1].values()] == [1]
    alone.ask(alone.first)
    alone.run(MAX_WAIT_MS)
    assert alone.first.told[-1] == {}


def test_a_busy_partition_does_not_starve_the_others(monkeypatch):
    alone = Alone(monkeypatch, max_bytes=200)
    alone.ask()
    alone.produce(*[1] * 20, key=KEYS[0])
    alone.produce(*[1] * 20, key=KEYS[2])
    for _ in range(4):
        alone.ask(alone.first)
    assert alone.first.ends[KEYS[0]]
    assert alone.first.ends[KEYS[2]]
    served = alone.served
    for _ in range(60):
        alone.ask(alone.first)
    assert [alone.first.ends[key] for key in (KEYS[0], KEYS[2])] == [20, 20]
    assert alone.served > served + 10


@pytest.mark.parametrize(
    "fields", [{"isolation_level": 1}, {"rack_id": "here"}, {"cluster_id": "cluster"}], ids=str
)
def test_what_a_replica_seldom_says_is_understood(alone, fields):
    alone.ask()
    alone.produce(1)
    alone.first.ask(**fields)
    alone.produce(1)
    assert alone.first.ends[KEYS[0]] == 2


@pytest.mark.parametrize("part", range(0, 100, 7))
def test_a_request_with_a_changed_bit_commits_nothing_that_the_follower_lacks(alone, part):
    alone.ask()
    alone.produce(1)
    served = alone.served
    sent = []
    send = alone.first.wire.send
    alone.first.wire.send = sent.append
    alone.first.ask()
    (frame,) = sent
    head = 14 + len("broker-2") + 1
    place = head + (len(frame) - head) * part // 100
    changed = bytearray(frame)
    changed[place] ^= 0x40
    alone.first.wire.send = send
    alone.first.wire.send(bytes(changed))
    assert alone.served in (served, served + 1)
    assert alone.world.leading.leaders[KEYS[0]].followers[2].log_end_offset in (0, 1)
    assert alone.world.partitions[KEYS[0]].high_watermark == 0


def keep_up(alone):
    """Both followers fetch for a minute in which nothing comes, then a record does. Returns the changes of
    the ISR that the leader asks for then."""
    for _ in range(60_000 // MAX_WAIT_MS):
        alone.ask()
        alone.run(MAX_WAIT_MS)
    alone.produce(1)
    alone.world.leading.shrink()
    return alone.world.altering.changes


def test_who_keeps_up_with_an_idle_partition_is_not_slow_when_a_record_comes(alone):
    assert keep_up(alone) == []


def test_a_leader_that_forgets_who_kept_up_is_found(monkeypatch):
    monkeypatch.setattr(leading, "LedReplica", ForgetsWhoKeptUp)
    assert keep_up(Alone(monkeypatch))


def test_a_connection_that_has_ended_is_told_of_nothing(alone):
    alone.ask()
    alone.first.leave()
    alone.produce(1)
    assert alone.second.ends[KEYS[0]] == 1
    exchange = alone.first.wire.connection.requests.exchange
    assert exchange is None
    alone.ask()
    alone.ask()
    assert alone.first.ends[KEYS[0]] == 1


def test_produces_of_one_turn_that_wait_for_replicas_time_out_together(alone):
    alone.produce(1, 1, 1)
    assert not alone.world.settled
    alone.run(2_000)
    assert [code for _, _, code in alone.world.settled] == [ErrorCode.REQUEST_TIMED_OUT] * 3
    assert [number for _, number, _ in alone.world.settled] == [1, 2, 3]
