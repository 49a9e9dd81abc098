"""A world of producers, partitions and one coordinator of transactions, in which everything fails at times.

The coordinator is the real one, over a log that loses what is on its way when it crashes, and so is that of
the groups under `__consumer_offsets`. Partitions are a model of what storage promises
(`transaction_partitions.py`). Producers behave as clients do: some by the rules before transaction version 2,
whose requests come in order, the others by version 2, whose requests may come late, twice and in any order.
Any producer may be replaced by another with the same transactional id, and go on as if nothing had happened.
All by one seed; no real time passes.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.coordinator.cluster.topics import TRANSACTIONS_TOPIC
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.transactions.coordinator import TransactionCoordinator
from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.record_codec import encode_key, encode_value
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.coordinator.transactions.state import Transaction
from odradek.wire.errors import ErrorCode
from tests.coordinator.fakes import view_of
from tests.coordinator.transaction_partitions import (
    DATA_PARTITIONS,
    OFFSETS,
    SHARED_GROUP,
    Batch,
    OffsetsPartition,
    Partition,
    place_of,
)
from tests.coordinator.transaction_requests import add_partitions, end_transaction, id_in, init_producer
from tests.kit.simulation import Connection, CoordinatorWorld, Log

NONE = ErrorCode.NONE
NAMES = [*(("t", index) for index in range(DATA_PARTITIONS)), OFFSETS]
PRODUCERS = 6
ANSWER_WITHIN_MS = 1_500
TIMEOUT_MS = 8_000
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class Crash(NamedTuple):
    """What is to crash at which of its appends: "coordinator", "offsets" (its groups, too) or "data"."""

    of: str
    at: int
    arrives: bool
    """Whether the append is in the log all the same."""


class World(CoordinatorWorld):
    def __init__(
        self,
        seed: int,
        machine_class=TransactionMachine,
        log_trouble: float = 0.02,
        *,
        group_machine_class=GroupMachine,
        partition_class=Partition,
        crash: Crash | None = None,
    ) -> None:
        """`log_trouble` is how likely an append to a coordinator's log fails, and how likely it crashes."""
        super().__init__(seed, log_trouble)
        self.producer_ids = itertools.count(1_000)
        self.skew_ms = 0
        self.partition_crashes = 0
        self.machine_class = machine_class
        self.settings = TransactionSettings(
            transaction_version=seed % 3 and 2,
            abort_timed_out_interval_ms=2_000,
            transaction_max_timeout_ms=TIMEOUT_MS,
        )
        self.crash_planned = crash
        self.appends: Counter[str] = Counter()
        self.appends_of_script: Counter[str] = Counter()
        self.log = Log(self, planned=lambda: self.planned("coordinator"))
        self.offsets = OffsetsPartition(self, OFFSETS, group_machine_class)
        self.partitions: dict = {name: partition_class(self, name) for name in NAMES if name != OFFSETS}
        self.partitions[OFFSETS] = self.offsets
        self.transactions: dict[tuple, Sent] = {}
        self.slots = [Slot(self, f"p{index}", 2 if index % 3 else 0) for index in range(PRODUCERS)]
        for index, slot in enumerate(self.slots):
            # Near the end of its epochs, so that some run out of them.
            known = Transaction(500 + index, 500 + index, -1, 32_755 + 2 * index % 8, updated_ms=0)
            self.log.records.append((encode_key(slot.name), encode_value(known, 2), 0))
        self.start_coordinator()

    def latency(self) -> int:
        return self.random.randrange(1, 3_000 if self.happens(0.03) else 15)

    # The coordinator

    def start_coordinator(self) -> None:
        self.leader_epoch += 1
        world, machine_class = self, self.machine_class

        class Coordinator(TransactionCoordinator):
            def _new_machine(self, partition):
                return machine_class(world.settings, partition.leader_epoch, self._new_producer_id)

        self.coordinator = Coordinator(
            node_id=1,
            settings=self.settings,
            open_log=self.open_log,
            new_producer_id=lambda: next(self.producer_ids),
            write_markers=self.if_alive(self.write_markers),
            clock_ms=lambda: self.clock_ms() + self.skew_ms,
            call_later=self.call_later,
        )
        topics = {"t": DATA_PARTITIONS, OFFSETS[0]: 1}
        self.coordinator.view_changed(view_of(TRANSACTIONS_TOPIC, [1], self.leader_epoch, topics))

    def ask(self, connection: "Connection", make_command, then) -> None:
        """Bring a command to the coordinator and its answer back: late, twice or not at all."""
        if self.happens(0.03):
            return
        for _ in range(2 if self.happens(0.05) else 1):
            self.at(connection.delay_ms(), self.receive, make_command, then)

    def receive(self, make_command, then) -> None:
        def answer(reply) -> None:
            if not self.happens(0.03):
                self.at(self.latency(), then, reply)

        command = make_command(self.if_alive(answer))
        self.coordinator.submit(id_in(command), command)

    def write_markers(self, effect, then) -> None:
        results: dict = {}
        waiting = len(effect.partitions)

        def written(name, code) -> None:
            nonlocal waiting
            results[name] = code
            waiting -= 1
            if not waiting:
                told(results)

        told = self.if_alive(then)
        for name in effect.partitions:
            # On one connection to the leader of a partition nothing overtakes.
            partition = self.partitions[name]
            self.at(partition.markers.delay_ms(), self.write_marker, name, effect.marker, written)

    def write_marker(self, name, marker, written) -> None:
        self.partitions[name].write_marker(marker, lambda code: self.at(self.latency(), written, name, code))

    # Trouble

    def planned(self, of: str) -> bool | None:
        """Asked at each append: None, or whether it arrives in the crash that is planned for it."""
        number = self.appends[of]
        self.appends[of] += 1
        crash = self.crash_planned
        return crash.arrives if crash is not None and (crash.of, crash.at) == (of, number) else None

    def trouble(self) -> None:
        if not self.chaos:
            return
        self.complaints += self.offsets.audit()
        what = self.random.random()
        if what < 0.15:
            self.crash()
        elif what < 0.3:
            self.random.choice(list(self.partitions.values())).crash()
        elif what < 0.35:
            self.skew_ms = self.random.randrange(-5_000, 20_000)
        else:
            self.random.choice(self.slots).begin(leave_zombie=what < 0.6)
        self.at(self.random.randrange(20, 600), self.trouble)

    def play(self) -> "World":
        """Trouble for a while, then peace until every transaction has found its end."""
        for slot in self.slots:
            slot.begin(leave_zombie=False)
        self.trouble()
        self.run(25_000)
        self.chaos = False
        self.run(5_000)
        for slot in self.slots:
            slot.close()
        self.run(TIMEOUT_MS + 60_000)
        return self

    def play_script(self, milliseconds: int, more_ms: int = 0) -> "World":
        """Without any trouble but the crash that is planned: a while, some more, then the end."""
        self.chaos = False
        for slot in self.slots:
            slot.begin(leave_zombie=False)
        self.run(milliseconds)
        self.appends_of_script = Counter(self.appends)
        self.run(more_ms)
        for slot in self.slots:
            slot.close()
        self.run(TIMEOUT_MS + 60_000)
        return self

    # The verdict

    def judge(self) -> list[str]:
        """What read_committed readers and the groups would complain of; nothing if all is well."""
        self.complaints += [
            *self.open_transactions(),
            *self.halves_and_repeats(),
            *self.disorder(),
            *self.wrong_offsets(),
        ]
        return self.complaints

    def open_transactions(self) -> list[str]:
        return [
            f"{name}: the transaction of producer {producer_id} stays open"
            for name, partition in self.partitions.items()
            for producer_id in partition.open
        ]

    def halves_and_repeats(self) -> list[str]:
        """All of a transaction is visible or nothing of it, and nothing twice; offsets are part of it."""
        visible = {name: partition.committed() for name, partition in self.partitions.items()}
        found: list[str] = []
        for name, values in visible.items():
            found += [f"{name}: {value} twice" for value, count in Counter(values).items() if count > 1]
        seen: dict[tuple, dict] = {tag: {} for tag in self.transactions}
        for name, values in visible.items():
            for tag, number in values:
                seen[tag].setdefault(name, []).append(number)
        for tag, sent in self.transactions.items():
            if seen[tag] and not sent.may_be_committed:
                found.append(f"{tag} is {sent.outcome} and visible: {seen[tag]}")
            elif (seen[tag] or sent.outcome == "committed") and seen[tag] != sent.acknowledged:
                found.append(f"{tag} is {sent.outcome}: {sent.acknowledged} sent, {seen[tag]} visible")
        return found

    def disorder(self) -> list[str]:
        """A partition shows the transactions of one producer in the order in which it has begun them."""
        found: list[str] = []
        for name, partition in self.partitions.items():
            newest: dict[str, int] = {}
            for (producer, count), _ in partition.committed():
                if count < newest.get(producer, -1):
                    found.append(f"{name}: transaction {count} of {producer} after {newest[producer]}")
                newest[producer] = max(count, newest.get(producer, -1))
        return found

    def wrong_offsets(self) -> list[str]:
        """The groups have the offsets of the last committed transactions, and after a start the same."""
        groups = [SHARED_GROUP, *(slot.name for slot in self.slots)]
        fetched = self.offsets.fetched(groups)
        found: list[str] = []
        told_by_log = self.offsets.told_by_log()
        if fetched != told_by_log:
            found.append(f"the groups say {fetched}, their log {told_by_log}")
        for place, value in fetched.items():
            sent = self.transactions[value[0]] if isinstance(value, tuple) else None
            if sent is None or not sent.may_be_committed:
                found.append(f"{place}: the offset of {value}, which is {sent and sent.outcome}")
        for (producer, count), sent in self.transactions.items():
            for number in sent.acknowledged.get(OFFSETS, ()) if sent.outcome == "committed" else ():
                place = place_of(((producer, count), number))
                value = fetched.get(place)
                is_late = isinstance(value, tuple) and value[0] < (producer, count)
                if value is None or (is_late and place.group_id == producer):
                    found.append(f"{place}: {value}, where {(producer, count)} committed one later")
        self.offsets.coordinator.close()
        self.offsets.start_coordinator()
        if self.offsets.fetched(groups) != fetched:
            found.append(f"the groups said {fetched}, after a start {self.offsets.fetched(groups)}")
        return found


# Producers


@dataclass
class Sent:
    """A transaction as its producer knows it."""

    outcome: str = "open"
    acknowledged: dict = field(default_factory=dict)

    @property
    def may_be_committed(self) -> bool:
        return self.outcome in ("committing", "committed")


class Slot:
    """One transactional id and the producers that have it, one after the other or at the same time."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.world = world
        self.name = name
        self.version = version
        self.count = itertools.count()
        self.alive: list[Process] = []
        self.is_closed = False

    def begin(self, leave_zombie: bool) -> None:
        if self.is_closed:
            return
        if not leave_zombie or len(self.alive) > 2:
            self.stop()
        process = Process(self.world, self)
        self.alive.append(process)
        process.go_on(process.attempt, None)

    def stop(self) -> None:
        for process in self.alive:
            process.attempt += 1
        self.alive = []

    def close(self) -> None:
        self.is_closed = True
        self.stop()


class Gone(Exception):
    """There is a newer producer, or this one has died."""


class Process:
    """One producer: a generator that yields what it asks for and is sent the answer, None if none came."""

    def __init__(self, world: World, slot: Slot) -> None:
        self.world = world
        self.slot = slot
        self.version = slot.version
        self.connection = Connection(world, in_order=self.version < 2)
        self.identity = (-1, -1)
        self.sequences: dict = {}
        self.attempt = 0
        self.steps = self.work()

    def go_on(self, attempt: int, answer) -> None:
        if attempt != self.attempt:
            return
        self.attempt += 1
        try:
            request = self.steps.send(answer)
        except Gone:
            if self in self.slot.alive:
                self.slot.alive.remove(self)
            if not self.slot.alive:
                self.world.at(50, self.slot.begin, True)
            return
        attempt = self.attempt
        request(lambda answer: self.go_on(attempt, answer))

    def sleep(self, milliseconds: int):
        yield lambda then: self.world.at(milliseconds, then, None)

    def ask(self, request_about, *arguments):
        """Until there is an answer that says something. Raises Gone."""
        name = self.slot.name

        def request(then) -> None:
            self.world.at(ANSWER_WITHIN_MS, then, None)
            self.world.ask(self.connection, lambda take: request_about(take, name, *arguments), then)

        while True:
            answer = yield request
            if answer is not None and answer.error_code in FENCED:
                raise Gone
            if answer is None and request_about is end_transaction and self.world.happens(0.4):
                raise Gone
            if answer is not None and answer.error_code not in AGAIN:
                return answer
            yield from self.sleep(self.world.random.randrange(5, 60))

    def work(self):
        yield from self.initialise(-1, -1)
        while True:
            yield from self.transaction()
            if self.version < 2 and self.world.random.random() < 0.2:
                yield from self.initialise(*self.identity)

    def initialise(self, producer_id: int, epoch: int):
        answer = yield from self.ask(init_producer, TIMEOUT_MS, producer_id, epoch)
        assert answer.error_code is NONE, answer
        self.identity = (answer.producer_id, answer.producer_epoch)
        self.sequences = {}

    def transaction(self):
        random = self.world.random
        tag = (self.slot.name, next(self.slot.count))
        sent = self.world.transactions[tag] = Sent()
        names = random.sample(NAMES, random.randint(1, 3))
        is_well = True
        if self.version < 2:
            answer = yield from self.ask(add_partitions, *self.identity, names, 0)
            assert answer.error_code is NONE, answer
        for number, name in enumerate(random.choices(names, k=random.randint(1, 5))):
            if random.random() < 0.02:
                yield from self.sleep(random.randrange(2 * TIMEOUT_MS))
            is_well = is_well and (yield from self.produce(name, sent, (tag, number)))
        commit = is_well and random.random() < 0.8
        yield from self.end(sent, commit)
        if not is_well and self.version < 2:
            # Nobody knows which sequence is next: a new epoch begins anew.
            yield from self.initialise(*self.identity)

    def produce(self, name, sent: Sent, value):
        """Whether it was taken. Raises Gone."""
        sequence = self.sequences.get(name, 0)
        batch = Batch(self.slot.name, *self.identity, sequence, value, self.version)
        world = self.world

        def request(then) -> None:
            world.at(ANSWER_WITHIN_MS, then, None)

            def answer(code) -> None:
                if not world.happens(0.03):
                    world.at(world.latency(), then, code)

            for _ in range(2 if world.happens(0.05) else 1):
                world.at(self.connection.delay_ms(), world.partitions[name].produce, batch, answer)

        while True:
            code = yield request
            if code is NONE:
                self.sequences[name] = sequence + 1
                sent.acknowledged.setdefault(name, []).append(value[1])
                return True
            if code in FENCED:
                raise Gone
            if code is not None and code not in AGAIN:
                return False
            yield from self.sleep(world.random.randrange(5, 60))

    def end(self, sent: Sent, commit: bool):
        sent.outcome = "committing" if commit else "aborting"
        answer = yield from self.ask(end_transaction, *self.identity, commit, self.version)
        if answer.error_code is NONE:
            sent.outcome = "committed" if commit else "aborted"
            if self.version >= 2:
                self.identity = (answer.producer_id, answer.producer_epoch)
                self.sequences = {}
        else:
            assert answer.error_code is ErrorCode.INVALID_TXN_STATE, answer
            # By version 2 it was aborted, or is known as what it was not to be; nothing was committed by us.
            sent.outcome = "aborted"
            yield from self.initialise(-1, -1)
