"""What a simulated world is made of that fails: a log, timers, connections.

A world has `random`, `now_ms`, `at(delay_ms, action, *arguments)`, `happens(probability)` and `latency()`;
who owns a log, the world itself or a part of it, has a `leader_epoch`, a `log_trouble` and a `crash()`.
"""

import itertools
from collections import deque

from odradek.wire.errors import ErrorCode, KafkaError
from tests.coordinator.fakes import OneReplica


class Handle:
    def __init__(self, function) -> None:
        self.function = function

    def __call__(self) -> None:
        if self.function is not None:
            self.function()

    def cancel(self) -> None:
        self.function = None


def never() -> None:
    """No crash is planned."""


class Log:
    """What survives of its owner.

    `planned` is asked at each append that is about to arrive: None, or whether it still does so in a crash
    that comes at this very moment. The owner's `log_trouble` is how likely one fails, and how likely one
    crashes.
    """

    def __init__(self, world, owner=None, planned=never) -> None:
        self.world = world
        self.owner = world if owner is None else owner
        self.planned = planned
        self.records: list = []
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

    def append(self, records, then) -> None:
        assert self.log.owner.leader_epoch == self.leader_epoch
        self.log.append(records, then)

    def read_all(self):
        return iter(list(self.log.records))


class Connection:
    """How long something takes: in order, or not."""

    def __init__(self, world, in_order: bool) -> None:
        self.world = world
        self.in_order = in_order
        self.last_ms = 0.0

    def delay_ms(self) -> float:
        now_ms = self.world.now_ms
        arrives_ms = now_ms + self.world.latency()
        if self.in_order:
            self.last_ms = arrives_ms = max(arrives_ms, self.last_ms)
        return arrives_ms - now_ms
