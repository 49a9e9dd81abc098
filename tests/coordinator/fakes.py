"""What a coordinator is given: a clock with timers, a log that a test completes, and a cluster of one."""

import heapq
import itertools

from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.cluster.view import (
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.effects import MarkerRecord, TransactionalRecord
from odradek.wire.errors import ErrorCode, KafkaError


class FakeClock:
    """Milliseconds that pass only in `run`."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.calls: list = []
        self.numbers = itertools.count()

    def clock_ms(self) -> int:
        return self.now_ms

    def call_later(self, delay_seconds: float, function):
        handle = FakeHandle(function)
        heapq.heappush(self.calls, (self.now_ms + delay_seconds * 1000, next(self.numbers), handle))
        return handle

    def run(self, milliseconds: int = 0) -> None:
        until_ms = self.now_ms + milliseconds
        while self.calls and self.calls[0][0] <= until_ms:
            at_ms, _, handle = heapq.heappop(self.calls)
            self.now_ms = max(self.now_ms, round(at_ms))
            handle()
        self.now_ms = until_ms

    @property
    def pending(self) -> int:
        return sum(handle.function is not None for _, _, handle in self.calls)


class FakeHandle:
    def __init__(self, function) -> None:
        self.function = function

    def __call__(self) -> None:
        if self.function is not None:
            self.function()

    def cancel(self) -> None:
        self.function = None


class OneReplica:
    """What the log of a node alone says."""

    is_replicated = False

    def waits_for_replicas(self, then) -> bool:
        return False

    def check_replicas(self) -> None:
        """There is nobody to wait for."""


class FakeLog:
    """Keeps records in a list, as they are read back; with `is_prompt` off, appends wait for `complete` or
    `fail`. With `is_behind` the other replicas lack what was read, until `caught_up`."""

    def __init__(self) -> None:
        self.records: list = []
        self.waiting: list = []
        self.is_prompt = True
        self.read_error: KafkaError | None = None
        self.refusal: KafkaError | None = None
        """What `check_producer` and `check_marker` say."""
        self.clock: FakeClock | None = None
        self.is_replicated = self.is_behind = self.is_under_min_isr = False
        self.waits: list = []

    def waits_for_replicas(self, then) -> bool:
        if self.is_behind:
            self.waits.append(then)
        return self.is_behind

    def caught_up(self, code: ErrorCode = ErrorCode.NONE) -> None:
        waits, self.waits = self.waits, []
        for then in waits:
            then(KafkaError(code) if code else None)

    def check_replicas(self) -> None:
        if self.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def append(self, records, then, producer=None) -> None:
        if producer is not None:
            records = [TransactionalRecord(*record, producer[0]) for record in records]
        self.wait(records, then)

    def check_producer(self, producer, verified) -> None:
        if self.refusal is not None:
            raise self.refusal

    def check_marker(self, marker) -> None:
        self.check_producer(None, None)

    def append_marker(self, marker, then) -> None:
        self.wait([MarkerRecord(marker.producer_id, marker.commit)], then)

    def wait(self, records, then) -> None:
        self.waiting.append((records, then))
        if self.is_prompt:
            self.clock.call_later(0, self.complete)

    def complete(self) -> None:
        records, then = self.waiting.pop(0)
        self.records += records
        then(None)

    def fail(self, code: ErrorCode) -> None:
        _, then = self.waiting.pop(0)
        then(KafkaError(code))

    def read_all(self):
        if self.read_error is not None:
            raise self.read_error
        yield from list(self.records)


def view_with_offsets_topic(
    leaders: list[int], leader_epoch: int = 0, topics: tuple[str, ...] = ("t", "u")
) -> ClusterView:
    return view_of(OFFSETS_TOPIC, leaders, leader_epoch, dict.fromkeys(topics, 0))


def view_of(topic: str, leaders: list[int], leader_epoch: int, others: dict[str, int]) -> ClusterView:
    """A view with an internal topic that has these leaders, and other topics with so many partitions."""

    def partitions(leader_of_each, epoch):
        return tuple(
            PartitionView(index, leader, epoch, (leader,), (leader,))
            for index, leader in enumerate(leader_of_each)
        )

    views = {name: TopicView(name, bytes(16), partitions([1] * count, 0)) for name, count in others.items()}
    views[topic] = TopicView(topic, bytes(16), partitions(leaders, leader_epoch), is_internal=True)
    return ClusterView(topics=views)
