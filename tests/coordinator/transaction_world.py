"""A world of producers, partitions and one coordinator of transactions, in which everything fails at times.

The coordinator is the real one, over a log that loses what is on its way when it crashes. Partitions are a
model of what storage promises: epochs, sequences, verification, markers. Producers behave as clients do:
some by the rules before transaction version 2, whose requests come in order, the others by version 2, whose
requests may come late, twice and in any order. Any producer may be replaced by another with the same
transactional id, and go on as if nothing had happened. All by one seed; no real time passes.
"""

import heapq
import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass, field

from odradek.coordinator.transaction_commands import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    VerifyPartitions,
)
from odradek.coordinator.transaction_coordinator import TRANSACTIONS_TOPIC, TransactionCoordinator
from odradek.coordinator.transaction_log import encode_key, encode_value
from odradek.coordinator.transaction_machine import TransactionMachine
from odradek.coordinator.transaction_settings import TransactionSettings
from odradek.coordinator.transaction_state import Transaction
from odradek.wire.errors import ErrorCode, KafkaError
from tests.coordinator.fakes import view_of

NONE = ErrorCode.NONE
OFFSETS = ("__consumer_offsets", 0)
NAMES = [*(("t", index) for index in range(4)), OFFSETS]
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


class World:
    def __init__(self, seed: int, machine_class=TransactionMachine, log_trouble: float = 0.02) -> None:
        """`log_trouble` is how likely an append to the coordinator's log fails, and how likely it crashes."""
        self.random = random.Random(seed)
        self.numbers = itertools.count()
        self.producer_ids = itertools.count(1_000)
        self.events: list = []
        self.now_ms = 1_000_000
        self.skew_ms = 0
        self.chaos = True
        self.crashes = 0
        self.machine_class = machine_class
        self.log_trouble = log_trouble
        self.settings = TransactionSettings(
            transaction_version=seed % 3 and 2,
            abort_timed_out_interval_ms=2_000,
            transaction_max_timeout_ms=TIMEOUT_MS,
        )
        self.log = Log(self)
        self.partitions = {name: Partition(self, name) for name in NAMES}
        self.transactions: dict[tuple, Sent] = {}
        self.leader_epoch = 0
        self.slots = [Slot(self, f"p{index}", 2 if index % 3 else 0) for index in range(PRODUCERS)]
        for index, slot in enumerate(self.slots):
            # Near the end of its epochs, so that some run out of them.
            known = Transaction(500 + index, 500 + index, -1, 32_755 + 2 * index % 8, updated_ms=0)
            self.log.records.append((encode_key(slot.name), encode_value(known, 2), 0))
        self.start_coordinator()

    # Time

    def at(self, delay_ms: float, action, *arguments) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action, arguments))

    def run(self, milliseconds: int) -> None:
        until_ms = self.now_ms + milliseconds
        while self.events and self.events[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
        self.now_ms = until_ms

    def happens(self, probability: float) -> bool:
        return self.chaos and self.random.random() < probability

    def latency(self) -> int:
        return self.random.randrange(1, 3_000 if self.happens(0.03) else 15)

    # The coordinator

    def start_coordinator(self) -> None:
        self.leader_epoch = epoch = self.leader_epoch + 1
        world, machine_class = self, self.machine_class

        class Coordinator(TransactionCoordinator):
            def _new_machine(self, partition):
                return machine_class(world.settings, partition.leader_epoch, self._new_producer_id)

        self.coordinator = Coordinator(
            node_id=1,
            settings=self.settings,
            open_log=lambda index: OpenLog(self.log, epoch),
            new_producer_id=lambda: next(self.producer_ids),
            write_markers=self.if_alive(self.write_markers),
            clock_ms=lambda: round(self.now_ms) + self.skew_ms,
            call_later=self.call_later,
        )
        topics = {"t": len(NAMES) - 1, OFFSETS[0]: 1}
        self.coordinator.view_changed(view_of(TRANSACTIONS_TOPIC, [1], epoch, topics))

    def if_alive(self, action):
        """What a coordinator that has crashed does not do any more."""
        epoch = self.leader_epoch

        def act(*arguments):
            if epoch == self.leader_epoch:
                action(*arguments)

        return act

    def call_later(self, seconds: float, function):
        handle = Handle(self.if_alive(function))
        self.at(seconds * 1000, handle)
        return handle

    def crash(self) -> None:
        self.crashes += 1
        self.log.crash()
        self.start_coordinator()

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
        self.coordinator.submit(command.transactional_id, command)

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
        code = self.partitions[name].append_marker(marker)
        self.at(self.latency(), written, name, code)

    # Trouble

    def trouble(self) -> None:
        if not self.chaos:
            return
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

    # The verdict

    def complaints(self) -> list[str]:
        """What read_committed readers would complain of; nothing if all is well."""
        found = [
            f"{name}: the transaction of producer {producer_id} stays open"
            for name, partition in self.partitions.items()
            for producer_id in partition.open
        ]
        visible = {name: partition.committed() for name, partition in self.partitions.items()}
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


class Handle:
    def __init__(self, function) -> None:
        self.function = function

    def __call__(self) -> None:
        if self.function is not None:
            self.function()

    def cancel(self) -> None:
        self.function = None


class Log:
    """What survives of the coordinator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.records: list = []
        self.pending: deque = deque()
        self.next_ms = 0.0
        """When the last append under way is through: each comes after those before it."""

    def crash(self) -> None:
        """Some of what was on its way has arrived."""
        for records, _ in itertools.islice(self.pending, self.world.random.randint(0, len(self.pending))):
            self.records += records
        self.pending.clear()

    def settle(self, entry) -> None:
        if not self.pending or self.pending[0] is not entry:
            return
        world = self.world
        if world.happens(world.log_trouble):
            return world.crash()
        records, then = self.pending.popleft()
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) if world.happens(world.log_trouble) else None
        if error is None or world.happens(0.5):
            self.records += records
        return then(error)


class OpenLog:
    """The log as one coordinator has it."""

    def __init__(self, log: Log, leader_epoch: int) -> None:
        self.log = log
        self.leader_epoch = leader_epoch

    def append(self, records, then) -> None:
        world = self.log.world
        assert world.leader_epoch == self.leader_epoch
        entry = (records, then)
        self.log.pending.append(entry)
        self.log.next_ms = max(self.log.next_ms, world.now_ms) + world.random.random()
        world.at(self.log.next_ms - world.now_ms, self.log.settle, entry)

    def read_all(self):
        return iter(list(self.log.records))


class Connection:
    """How long something takes: in order, or not."""

    def __init__(self, world: World, in_order: bool) -> None:
        self.world = world
        self.in_order = in_order
        self.last_ms = 0.0

    def delay_ms(self) -> float:
        now_ms = self.world.now_ms
        arrives_ms = now_ms + self.world.latency()
        if self.in_order:
            self.last_ms = arrives_ms = max(arrives_ms, self.last_ms)
        return arrives_ms - now_ms


# Partitions


@dataclass(frozen=True)
class Batch:
    transactional_id: str
    producer_id: int
    epoch: int
    sequence: int
    value: tuple
    version: int


@dataclass
class KnownProducer:
    epoch: int
    last_sequence: int = -1
    coordinator_epoch: int = -1


class Partition:
    """A model of what storage promises of transactions."""

    def __init__(self, world: World, name) -> None:
        self.world = world
        self.name = name
        self.entries: list = []
        self.producers: dict[int, KnownProducer] = {}
        self.open: set[int] = set()
        self.verifications: dict[int, object] = {}
        self.available_at_ms = 0.0
        self.markers = Connection(world, in_order=True)

    def crash(self) -> None:
        self.verifications.clear()
        self.available_at_ms = self.world.now_ms + self.world.random.randrange(50, 800)

    @property
    def is_available(self) -> bool:
        return self.world.now_ms >= self.available_at_ms

    def produce(self, batch: Batch, then) -> None:
        code = self.judge(batch)
        if code is not None or self.is_open(batch):
            then(self.append(batch) if code is None else code)
            return
        verification = self.verifications.setdefault(batch.producer_id, object())
        connection = Connection(self.world, in_order=batch.version < 2)

        def verified(reply) -> None:
            code = reply.error_code if batch.version >= 2 else reply.errors[0]
            if code is NONE and self.verifications.get(batch.producer_id) is not verification:
                code = ErrorCode.NOT_ENOUGH_REPLICAS
            if code is NONE:
                code = self.judge(batch)
                if code is None:
                    code = self.append(batch)
            then(code)

        asks = AddPartitions if batch.version >= 2 else VerifyPartitions
        self.world.ask(
            connection,
            lambda ticket: asks(
                ticket, batch.transactional_id, batch.producer_id, batch.epoch, [self.name], batch.version
            ),
            verified,
        )

    def is_open(self, batch: Batch) -> bool:
        """Whether the batch goes on in a transaction; that of another epoch is not its own."""
        return batch.producer_id in self.open and self.producers[batch.producer_id].epoch == batch.epoch

    def judge(self, batch: Batch) -> ErrorCode | None:
        """None if it may be appended."""
        if not self.is_available:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = self.producers.get(batch.producer_id)
        if known is not None and batch.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        last = known.last_sequence if known is not None and known.epoch == batch.epoch else -1
        if batch.sequence <= last:
            return NONE
        return None if batch.sequence == last + 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def append(self, batch: Batch) -> ErrorCode:
        if self.world.happens(0.01):
            self.crash()
            if self.world.happens(0.5):
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = self.producers.setdefault(batch.producer_id, KnownProducer(batch.epoch))
        known.epoch, known.last_sequence = batch.epoch, batch.sequence
        self.open.add(batch.producer_id)
        self.verifications.pop(batch.producer_id, None)
        self.entries.append((batch.producer_id, batch.value))
        return NONE if self.is_available else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def append_marker(self, marker) -> ErrorCode:
        if not self.is_available:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = self.producers.get(marker.producer_id)
        if known is not None:
            if marker.coordinator_epoch < known.coordinator_epoch:
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
            must_be_higher = marker.transaction_version >= 2 and marker.producer_id in self.open
            least = known.epoch + must_be_higher
            if marker.producer_epoch < least:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.world.happens(0.02):
            self.crash()
            if self.world.happens(0.5):
                return ErrorCode.KAFKA_STORAGE_ERROR
        if known is None or known.epoch < marker.producer_epoch:
            known = self.producers[marker.producer_id] = KnownProducer(marker.producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        self.open.discard(marker.producer_id)
        self.verifications.pop(marker.producer_id, None)
        self.entries.append((marker.producer_id, marker.commit))
        return NONE if self.is_available else ErrorCode.KAFKA_STORAGE_ERROR

    def committed(self) -> list:
        """What a read_committed reader sees, in the order in which it was written."""
        pending: dict[int, list[int]] = {}
        shown: set[int] = set()
        for offset, (producer_id, value) in enumerate(self.entries):
            if isinstance(value, tuple):
                pending.setdefault(producer_id, []).append(offset)
            else:
                ended = pending.pop(producer_id, [])
                shown.update(ended if value else ())
        return [self.entries[offset][1] for offset in sorted(shown)]


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

    def ask(self, command_class, *arguments):
        """Until there is an answer that says something. Raises Gone."""
        name = self.slot.name

        def request(then) -> None:
            self.world.at(ANSWER_WITHIN_MS, then, None)
            self.world.ask(self.connection, lambda ticket: command_class(ticket, name, *arguments), then)

        while True:
            answer = yield request
            if answer is not None and answer.error_code in FENCED:
                raise Gone
            if answer is None and command_class is EndTransaction and self.world.happens(0.4):
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
        answer = yield from self.ask(InitProducer, TIMEOUT_MS, producer_id, epoch)
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
            answer = yield from self.ask(AddPartitions, *self.identity, names, 0)
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
        answer = yield from self.ask(EndTransaction, *self.identity, commit, self.version)
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
