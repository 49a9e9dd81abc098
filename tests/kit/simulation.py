"""What a simulated world is made of: time that passes only when it is told to, chance by one seed, and what
fails: timers of who has crashed, a log that loses what is on its way, connections that are late.

All that happens is an event in one queue, so a seed always gives the same world. No real time passes.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from odradek.coordinator.effects import Append, AppendMarker, LoggedRecord
from odradek.wire.errors import ErrorCode, KafkaError
from tests.coordinator.fakes import FakeHandle, OneReplica
from tests.kit.machine import logged

COMPLAINTS_MAX = 20


def failures(check: Callable[[int], object], seeds: Iterable[int]) -> dict[int, str]:
    """Seeds whose check fails, and how: one test for all of them."""
    failed = {}
    for seed in seeds:
        try:
            check(seed)
        except AssertionError as error:
            failed[seed] = str(error) or repr(error)
    return failed


class Found(Exception):
    """Something is wrong in a world that ends at the first complaint."""


class Simulation:
    """The clock, the scheduler and the chance of a world, and what is wrong in it."""

    def __init__(self, seed: int, now_ms: float = 0) -> None:
        self.random = random.Random(seed)
        self.numbers = itertools.count()
        self.events: list = []
        self.now_ms = now_ms
        self.chaos = True
        """Whether there is trouble; in peace nothing fails."""
        self.complaints: list[str] = []
        self.ends_at_first = False

    def at(self, delay_ms: float, action, *arguments) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action, arguments))

    def run(self, milliseconds: float) -> None:
        until_ms = self.now_ms + milliseconds
        while self.events and self.events[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
            if self.complaints and self.ends_at_first:
                raise Found(self.complaints[0])
        self.now_ms = until_ms

    def complain(self, text: str) -> None:
        if len(self.complaints) < COMPLAINTS_MAX:
            self.complaints.append(f"{round(self.now_ms)} ms: {text}")

    def play(self, *arguments):
        """A life of the world; itself."""
        raise NotImplementedError

    def judge(self) -> list[str]:
        """What is wrong, after a play."""
        return self.complaints

    def finds(self, *arguments) -> bool:
        """Whether there is a complaint in a play, which ends with the first."""
        self.ends_at_first = True
        try:
            self.play(*arguments)
            self.judge()
        except (Found, AssertionError):
            return True
        return bool(self.complaints)

    def happens(self, probability: float) -> bool:
        return self.chaos and self.random.random() < probability

    def timer(self, seconds: float, function) -> FakeHandle:
        handle = FakeHandle(function)
        self.at(seconds * 1000, handle)
        return handle

    def latency(self) -> float:
        """How long a message takes in this moment."""
        raise NotImplementedError


class CoordinatorWorld(Simulation):
    """A world with one coordinator, over a log that outlives it.

    `log_trouble` is how likely an append fails, and how likely the coordinator crashes with it.
    """

    def __init__(self, seed: int, log_trouble: float) -> None:
        super().__init__(seed, now_ms=1_000_000)
        self.log_trouble = log_trouble
        self.crashes = 0
        self.leader_epoch = 0
        self.log = Log(self)

    def start_coordinator(self) -> None:
        raise NotImplementedError

    def crash(self) -> None:
        self.crashes += 1
        self.log.crash()
        self.start_coordinator()

    def open_log(self, _index: int) -> "OpenLog":
        return OpenLog(self.log, self.leader_epoch)

    def clock_ms(self) -> int:
        return round(self.now_ms)

    def call_later(self, seconds: float, function) -> FakeHandle:
        return self.timer(seconds, self.if_alive(function))

    def if_alive(self, action):
        """What a coordinator that has crashed does not do any more."""
        epoch = self.leader_epoch

        def act(*arguments: Any) -> None:
            if epoch == self.leader_epoch:
                action(*arguments)

        return act


def never() -> None:
    """No crash is planned."""


class Log:
    """What survives of its owner, the world itself or a part of it.

    `planned` is asked at each append that is about to arrive: None, or whether it still does so in a crash
    that comes at this very moment.
    """

    def __init__(self, world, owner=None, planned=never) -> None:
        self.world = world
        self.owner = world if owner is None else owner
        self.planned = planned
        self.records: list[LoggedRecord] = []
        self.pending: deque = deque()
        self.next_ms = 0.0
        """When the last append under way is through: each comes after those before it."""

    def append(self, records, then) -> None:
        entry = (records, then)
        self.pending.append(entry)
        self.next_ms = max(self.next_ms, self.world.now_ms) + self.world.random.random()
        self.world.at(self.next_ms - self.world.now_ms, self.settle, entry)

    def crash(self) -> None:
        """Some of what was on its way has arrived."""
        for records, _ in itertools.islice(self.pending, self.world.random.randint(0, len(self.pending))):
            self.records += records
        self.pending.clear()

    def settle(self, entry) -> None:
        if not self.pending or self.pending[0] is not entry:
            return
        world, owner = self.world, self.owner
        arrives = self.planned()
        if arrives is not None:
            if arrives:
                self.records += entry[0]
            self.pending.clear()
            owner.crash()
            return
        if world.happens(owner.log_trouble):
            owner.crash()
            return
        records, then = self.pending.popleft()
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) if world.happens(owner.log_trouble) else None
        if error is None or world.happens(0.5):
            self.records += records
        then(error)


class OpenLog(OneReplica):
    """The log as one coordinator has it."""

    def __init__(self, log: Log, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch

    def append(self, records, then, producer=None) -> None:
        self.put(Append(records, producer), then)

    def append_marker(self, marker, then) -> None:
        self.put(AppendMarker(marker), then)

    def put(self, effect: Append | AppendMarker, then) -> None:
        assert self.log.owner.leader_epoch == self.leader_epoch
        self.log.append(logged(effect), then)

    def check_producer(self, producer, verified) -> None:
        """There is nothing that a producer may not do."""

    def check_marker(self, marker) -> None:
        """Neither may a marker come too late."""

    def read_all(self):
        return iter(list(self.log.records))


class Connection:
    """How long something takes: in order, or not."""

    def __init__(self, world: Simulation, in_order: bool) -> None:
        self.world = world
        self.in_order = in_order
        self.last_ms = 0.0

    def delay_ms(self) -> float:
        now_ms = self.world.now_ms
        arrives_ms = now_ms + self.world.latency()
        if self.in_order:
            self.last_ms = arrives_ms = max(arrives_ms, self.last_ms)
        return arrives_ms - now_ms
