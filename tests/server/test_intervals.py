"""Every background interval has a clock of its own: its option alone says when its task runs."""

import asyncio
import heapq
from itertools import count
from types import SimpleNamespace

import pytest

from odradek.config.broker_config import load
from odradek.coordinator.cluster.topics import NewTopic
from odradek.coordinator.effects import SetTimer
from odradek.coordinator.group_machine import EXPIRE_OFFSETS, GroupMachine
from odradek.coordinator.transactions.machine import ABORT_TIMED_OUT, REMOVE_EXPIRED, TransactionMachine
from odradek.server.background import cleaner as cleaner_module
from odradek.server.background import schedule
from odradek.server.broker import BrokerServer
from odradek.server.coordination import coordinators
from odradek.server.network._clock import Clock as SystemClock
from odradek.server.network.connections import Connections
from odradek.server.network.timers import Timers
from odradek.storage.checkpoints import LOG_STARTS, RECOVERY_POINTS
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.store import LogStore
from odradek.storage.log.retention import Retention
from odradek.wire.work import finish

START_MS = 1_700_000_000_000
DAY_MS = 86_400_000

RETENTION = "log.retention.check.interval.ms"
FIRST_CHORES = "log.initial.task.delay.ms"
RECOVERY = "log.flush.offset.checkpoint.interval.ms"
STARTS = "log.flush.start.offset.checkpoint.interval.ms"
FLUSH = "log.flush.scheduler.interval.ms"
HIGH_WATERMARKS = "replica.high.watermark.checkpoint.interval.ms"
PRODUCERS = "producer.id.expiration.check.interval.ms"
CLEANER = "log.cleaner.backoff.ms"
IDLE = "connections.max.idle.ms"
OFFSETS = "offsets.retention.check.interval.ms"
TIMED_OUT = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
EXPIRED_IDS = "transaction.remove.expired.transaction.cleanup.interval.ms"

TASKS = {
    # Option: what it is set to, and when its task runs within half a minute, in seconds.
    RETENTION: (7_000, [0, 7, 14, 21, 28]),
    RECOVERY: (7_000, [7, 14, 21, 28]),
    STARTS: (7_000, [7, 14, 21, 28]),
    HIGH_WATERMARKS: (7_000, [7, 14, 21, 28]),
    PRODUCERS: (7_000, [7, 14, 21, 28]),
    CLEANER: (7_000, [7, 14, 21, 28]),
    # Who has been silent for so long is gone with the next look, which are four in that time.
    IDLE: (8_000, [10]),
}


class Clock:
    """The wall clock and the timers of a broker, in the hand of a test."""

    def __init__(self):
        self.passed_ms = 0
        self.held = HeldTimers(self)

    def now_ms(self):
        return START_MS + self.passed_ms

    def timers(self, loop, clock=None):
        return self.held


class HeldTimers(Timers):
    """Those of `server/network/timers.py`, save that time passes when it is told to."""

    def __init__(self, clock):
        self.clock = clock
        self.waiting = []
        self.numbers = count()

    def after(self, delay_ms, callback):
        timer = SimpleNamespace(callback=callback)
        timer.cancel = lambda: setattr(timer, "callback", lambda: None)
        heapq.heappush(self.waiting, (self.clock.passed_ms + max(delay_ms, 0), next(self.numbers), timer))
        return timer

    def close(self):
        self.waiting.clear()


async def pass_time(server, clock, until_ms):
    """Everything that is due up to that moment, in its order; what it hands to workers is waited for."""
    while clock.held.waiting and clock.held.waiting[0][0] <= until_ms:
        clock.passed_ms, _, timer = heapq.heappop(clock.held.waiting)
        timer.callback()
        for _ in range(3):
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while len(server.schedule.upkeep) or len(server.schedule.moves):
                await asyncio.sleep(0)
    clock.passed_ms = until_ms


def run_for_half_a_minute(tmp_path, monkeypatch, settings):
    """When each task of a broker ran with these settings, in seconds; every other interval is a day."""
    clock, seen = Clock(), {name: [] for name in TASKS}

    def noting(owner, method, *names):
        real = getattr(owner, method)

        def noted(self, *arguments, **keywords):
            for name in names or [one for one in (RECOVERY, STARTS) if checkpoint_of[one] in arguments]:
                seen[name].append(clock.passed_ms / 1000)
            return real(self, *arguments, **keywords)

        monkeypatch.setattr(owner, method, noted)

    checkpoint_of = {RECOVERY: RECOVERY_POINTS, STARTS: LOG_STARTS}
    noting(Retention, "maintaining", RETENTION)
    noting(Checkpointing, "writing")
    noting(Checkpointing, "writing_high_watermarks", HIGH_WATERMARKS)
    noting(Retention, "expire_producers", PRODUCERS)
    noting(cleaner_module._Lane, "_look", CLEANER)
    noting(Connections, "left", IDLE)
    monkeypatch.setattr(schedule, "Timers", clock.timers)
    monkeypatch.setattr(schedule, "ClockTimers", clock.timers)

    async def act():
        given = {**dict.fromkeys(TASKS, DAY_MS), FIRST_CHORES: 0, **settings}
        config = load(listen="127.0.0.1:0", data_dir=tmp_path, sets=[f"{n}={v}" for n, v in given.items()])
        server = BrokerServer(config, clock=SystemClock(clock.now_ms))
        try:
            await server.start()
            finish(server.plane.creating_topics([NewTopic("t", configs={"cleanup.policy": "compact"})]))
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            async with asyncio.timeout(20):
                while not len(server.connections):
                    await asyncio.sleep(0)
            await pass_time(server, clock, 30_000)
            writer.close()
            return {name: list(times) for name, times in seen.items()}
        finally:
            await server.stop()

    return asyncio.run(act())


FIRST_LOOK = {RETENTION: [0]}
"""Retention is looked at when the chores begin."""


@pytest.mark.parametrize("option", TASKS)
def test_an_interval_alone_says_when_its_task_runs(tmp_path, monkeypatch, option):
    interval_ms, times = TASKS[option]
    ran = run_for_half_a_minute(tmp_path, monkeypatch, {option: interval_ms})
    assert ran == {**{name: [] for name in TASKS}, **FIRST_LOOK, option: times}


@pytest.mark.parametrize("option", TASKS)
def test_no_other_interval_makes_a_task_run(tmp_path, monkeypatch, option):
    others = {name: 1_000 for name in TASKS if name != option}
    ran = run_for_half_a_minute(tmp_path, monkeypatch, others)
    assert ran[option] == FIRST_LOOK.get(option, [])
    assert all(len(times) > 1 for name, times in ran.items() if name not in (option, IDLE))


def test_the_first_delay_is_one_of_retention_and_checkpoints_alone(tmp_path, monkeypatch):
    """As Kafka's LogManager has it; its cleaner and its expiry of producers do not wait for that."""
    often = dict.fromkeys(TASKS, 2_000)
    ran = run_for_half_a_minute(tmp_path, monkeypatch, {**often, FIRST_CHORES: 15_000})
    first = {name: times[0] for name, times in ran.items()}
    assert first == {
        RETENTION: 15,
        RECOVERY: 15,
        STARTS: 15,
        HIGH_WATERMARKS: 2,
        PRODUCERS: 2,
        CLEANER: 2,
        IDLE: 2.5,
    }


def test_a_look_for_flushes_waits_for_nothing_else(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(LogStore, "flush_due", lambda self, now_ms: looks.append(now_ms - START_MS) or [])
    run_for_half_a_minute(tmp_path, monkeypatch, {FLUSH: 500, FIRST_CHORES: DAY_MS})
    assert looks == [500 * number for number in range(1, 61)]


@pytest.mark.parametrize("option", [OFFSETS, TIMED_OUT, EXPIRED_IDS])
def test_an_interval_of_a_coordinator_is_that_of_its_own_timer_alone(tmp_path, option):
    """Their timers run as `coordinator/group_coordinator.py` is told by these effects."""
    given = {**dict.fromkeys((OFFSETS, TIMED_OUT, EXPIRED_IDS), DAY_MS), option: 7_000}
    config = load(data_dir=tmp_path, sets=[f"{name}={value}" for name, value in given.items()])
    groups = GroupMachine(coordinators._group_settings(config), lambda: "1")
    transactions = TransactionMachine(coordinators._transaction_settings(config), 0, lambda: 1)
    keys = {
        groups: {OFFSETS: EXPIRE_OFFSETS},
        transactions: {TIMED_OUT: ABORT_TIMED_OUT, EXPIRED_IDS: REMOVE_EXPIRED},
    }
    for machine, of_machine in keys.items():
        assert due(machine.start(START_MS)) == {key: given[name] for name, key in of_machine.items()}
        for name, key in of_machine.items():
            now_ms = START_MS + given[name]
            assert due(machine.expire(key, now_ms)) == {key: 2 * given[name]}


def due(effects):
    return {effect.key: effect.at_ms - START_MS for effect in effects if isinstance(effect, SetTimer)}
