"""Our share partition and Kafka's own class, side by side: the same random history, one step after the other.

After each step both have to tell the same: what was acquired, what was refused, the start, the next offset,
and the state, count and member of each record. `java/ShareJudge.java` drives Kafka's class.

Not compared is a log that loses records: there Kafka gives out records before the new start of a batch that
it has cut, forgets that a change of such a batch is being stored, and can move its start backwards. Nor which
of two codes a senseless acknowledgement gets where the leader before has left holes.
"""

from __future__ import annotations

import pathlib
import random
import subprocess
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.kit.java import compile_java
from odradek.coordinator.shares.partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Demand,
    LogBatch,
    ShareLimits,
    SharePartition,
)
from odradek.coordinator.shares.partitions.window import Batch, Change
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.wire.errors import KafkaError
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from odradek.wire.messages.read_share_group_state import StateBatch
from tests.tiers import NIGHTLY

LOCK_MS = 10
STEPS = 60
DONE = {str(int(DeliveryState.ACKNOWLEDGED)), str(int(DeliveryState.ARCHIVED))}
SEEDS = 400 if NIGHTLY else 40
JUDGE = pathlib.Path(__file__).with_name("java") / "ShareJudge.java"


TRIPPED = "failed java.lang.NullPointerException"
"""Kafka's answer to offsets before and behind the start while nothing is in flight; ours is a refusal."""


def settled(state: str) -> list[str]:
    """The state without the records at its front that are done: while Kafka reads what a leader before has
    not stored, it moves the start later."""
    start, fresh, following, done, *records = state.split()
    kept = list(records)
    while kept and kept[0].split(":")[1] in DONE:
        kept.pop(0)
    if len(kept) < len(records):
        start = kept[0].partition(":")[0] if kept else fresh
    return [start, fresh, following, str(int(done) - len(records) + len(kept)), *kept]


class Judge:
    """Kafka's class in a JVM: a line is answered by a line."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [
                *("java", *reference.SMALL_JVM, "-cp", compile_java(reference.class_path(), JUDGE)),
                "kafka.server.share.ShareJudge",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        while not (told := self._process.stdout.readline()).startswith(">"):
            assert told, "the judge has ended"  # others are of Kafka's log
        return told[1:].strip()

    def close(self) -> None:
        self._process.communicate(timeout=20)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


class Ours:
    """Our share partition, told in the judge's words."""

    def __init__(self, limits: ShareLimits, start: int, batches: list[StateBatch]) -> None:
        self.partition = SharePartition(ShareState(state_batches=batches), start)
        self.limits = limits
        self.now_ms = 0
        self.waiting: list[Change | None] = []

    def acquire(self, demand: Demand, read_from: int, batches: list[LogBatch]) -> str:
        found = self.partition.acquire(demand, read_from, batches, (), self.limits, self.now_ms)
        return " ".join(f"{first}:{last}:{count}" for first, last, count in found)

    def acknowledge(self, member: str, one: Acknowledgement) -> str:
        try:
            change = self.partition.acknowledge(member, [one], self.limits, self.now_ms)
        except KafkaError as error:
            return error.code.name
        return self._stored_later(change)

    def release(self, member: str) -> str:
        return self._stored_later(self.partition.release(member, self.limits))

    def _stored_later(self, change: Change) -> str:
        if not change.batches:
            return "done"
        self.waiting.append(change)
        return "waits"

    def answer(self, is_stored: bool) -> None:
        change = self.waiting.pop(0)
        if change is None:
            return
        if is_stored:
            self.partition.stored(change)
        else:
            self.partition.undo(change, self.limits, self.now_ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.partition.expire(self.limits, self.now_ms)

    def state(self) -> str:
        partition = self.partition
        records = [
            f"{offset}:{int(run.state)}:{run.count}:{run.member}"
            for part in partition.window
            if isinstance(part, Batch)
            for run in part.runs
            for offset in range(max(run.first, partition.start), run.last + 1)
        ]
        told = (partition.start, partition.fresh, partition.next_offset(), partition.done_count, *records)
        return " ".join(map(str, told))


class History:
    """Random steps, which both sides take."""

    def __init__(self, seed: int, judge: Judge) -> None:
        self.random = random.Random(seed)
        self.judge = judge
        self.log: list[LogBatch] = []
        base = 0
        for _ in range(60):
            size = self.random.choice([1, 2, 5, 10])
            self.log.append(LogBatch(base, base + size - 1))
            base += size
        self.limits = ShareLimits(
            lock_ms=LOCK_MS,
            deliveries_max=self.random.choice([2, 3, 5, 10]),
            locks_max=self.random.choice([20, 60, 200]),
        )
        start, batches = self._stored()
        self.ours = Ours(self.limits, start, batches)
        words = [
            f"{one.first_offset}:{one.last_offset}:{int(one.delivery_state)}:{one.delivery_count}"
            for one in batches
        ]
        judge.ask("load", self.limits.locks_max, self.limits.deliveries_max, start, *words)
        self.steps = [("load", start, batches)]

    def _stored(self) -> tuple[int, list[StateBatch]]:
        """What a leader before has left, mostly nothing."""
        if self.random.random() < 0.7:
            return 0, []
        offset = start = self.random.randrange(10)
        batches = []
        for _ in range(self.random.randrange(4)):
            offset += self.random.choice([0, 0, 3])
            last = offset + self.random.randrange(6)
            state = self.random.choice(
                [DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED]
            )
            count = self.random.randrange(1, 3)
            batches.append(
                StateBatch(first_offset=offset, last_offset=last, delivery_state=state, delivery_count=count)
            )
            offset = last + 1
        return start, batches

    def step(self) -> tuple[str, str]:
        """What both say."""
        kind = self.random.choices(
            ["acquire", "acknowledge", "held", "release", "answer", "wait"], [8, 3, 6, 1, 6, 2]
        )[0]
        return getattr(self, f"_{kind}")()

    def _acquire(self) -> tuple[str, str]:
        member, is_strict = self.random.choice("ab"), self.random.random() < 0.3
        batch_size, records_max = self.random.choice([3, 500]), self.random.choice([1, 4, 12, 500])
        read_from = self.ours.partition.next_offset()
        if not self.ours.partition.can_acquire(self.limits):
            return "", ""
        most = self.random.choice([1, 3, 60])
        batches = [one for one in self.log if one.last_offset >= read_from][:most]
        if not batches:
            return "", ""
        self.steps.append(("acquire", member, is_strict, batch_size, records_max, read_from, batches))
        words = [f"{base}:{last}" for base, last in batches]
        theirs = self.judge.ask("acquire", member, int(is_strict), batch_size, records_max, read_from, *words)
        demand = Demand(member, records_max, batch_size, is_strict)
        return theirs, self.ours.acquire(demand, read_from, batches)

    def _acknowledge(self) -> tuple[str, str]:
        first = self.ours.partition.start + self.random.randrange(-3, 20)
        return self._acknowledged(self.random.choice("ab"), max(first, 0), self.random.randrange(6))

    def _held(self) -> tuple[str, str]:
        """Records that somebody has."""
        held = [
            run
            for part in self.ours.partition.window
            if isinstance(part, Batch)
            for run in part.runs
            if run.member
        ]
        if not held:
            return "", ""
        run = self.random.choice(held)
        first = self.random.randint(run.first, run.last)
        return self._acknowledged(run.member, first, self.random.randint(0, run.last - first))

    def _acknowledged(self, member: str, first: int, more: int) -> tuple[str, str]:
        last = first + more
        kinds = [self.random.choice(list(AcknowledgeType))]
        if self.random.random() < 0.3:
            kinds = [self.random.choice(list(AcknowledgeType)) for _ in range(more + 1)]
        self.steps.append(("acknowledge", member, first, last, kinds))
        types = ",".join(str(int(kind)) for kind in kinds)
        theirs = self.judge.ask("acknowledge", member, first, last, types)
        return theirs, self.ours.acknowledge(member, Acknowledgement(first, last, kinds))

    def _release(self) -> tuple[str, str]:
        member = self.random.choice("ab")
        self.steps.append(("release", member))
        return self.judge.ask("release", member), self.ours.release(member)

    def _answer(self) -> tuple[str, str]:
        if not self.ours.waiting:
            return "", ""
        is_stored = self.random.random() < 0.8
        self.steps.append(("answer", is_stored))
        self.ours.answer(is_stored)
        return self.judge.ask("answer", int(is_stored)), ""

    def _wait(self) -> tuple[str, str]:
        """Kafka stores each lock that runs out by itself, and we all together: nothing may wait before it."""
        self._answer_all()
        ms = self.random.choice([3, LOCK_MS])
        self.steps.append(("wait", ms))
        self.ours.wait(ms)
        self.judge.ask("wait", ms)
        self.judge.ask("answer_all")
        return "", ""

    def _answer_all(self) -> None:
        while self.ours.waiting:
            self.ours.answer(True)
        self.judge.ask("answer_all")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_goes_as_with_kafka(judge: Judge, seed: int) -> None:
    history = History(seed, judge)
    for _ in range(STEPS):
        theirs, ours = history.step()
        if not theirs.startswith(TRIPPED):
            both_refuse = theirs.startswith("INVALID_") and ours.startswith("INVALID_")
            assert theirs == ours or both_refuse, history.steps
        assert settled(judge.ask("state")) == settled(history.ours.state()), history.steps
