"""Runs the state machines of this node over an internal topic: one for each partition that it leads.

A machine is loaded by replaying its log, a slice per turn of the event loop; until then it
answers COORDINATOR_LOAD_IN_PROGRESS. Where there are other replicas it also waits until they have what was
read, which may be lost with this leader before. An append that fails undoes nothing by hand: the replies that
wait for it, or for a later one, become refusals, and the machine is loaded again. So is one whose command
raised.
After a load that brought no record into the log, as on a disk that is full, there is a pause before the next.
All timers of all machines share one heap.

`group_coordinator.GroupCoordinator` and `transactions.coordinator.TransactionCoordinator` are made of this.
Nothing here is thread-safe, and nothing blocks longer than one slice of loading.
"""

from __future__ import annotations

import gc
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from odradek.coordinator.asked import Ticket
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import (
    Append,
    AppendMarker,
    Asking,
    CancelTimer,
    Effect,
    LoggedRecord,
    MarkerRecord,
    Reply,
    SetTimer,
    TransactionalRecord,
)
from odradek.coordinator.late_replies import CallLater, LateReplies, TimerHandle
from odradek.coordinator.log import CoordinatorLog
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.partitioner import partition_for

RECORDS_PER_TURN = 2_000
"""How much of a log is loaded before others have their turn: about 10 ms."""
RELOAD_PAUSE_S = 5.0
"""Pause before a partition is loaded again, so that a machine whose first append fails is not reloaded in a
loop."""
RING_FOR_MS = 10
"""How long timers that are due together may hold up the event loop."""
STALE_TIMERS_KEPT = 1_000
LONGEST_CACHED_KEY = 255
"""Characters: the partitions of thousands of keys are remembered, and a key may have 32 KB."""

logger = logging.getLogger("odradek.coordinator")
_remembered_partition_for = lru_cache(maxsize=8_192)(partition_for)

TimerKey = tuple[str, ...]
"""Purpose of a timer, then the names that it is for."""


class Machine(Protocol):
    """A machine that the runtime runs; see `coordinator/effects.py`.

    A machine whose log has records of transactions has `replay_pending` and `replay_marker`, too.
    """

    def handle(self, command: Any, now_ms: int) -> list[Effect]:
        """Carry out a command."""

    def expire(self, timer_key: TimerKey, now_ms: int) -> list[Effect]:
        """A timer is due, at its time or later."""

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take in one record of the log; a value of None deletes. Raises MalformedMessage."""

    def start(self, now_ms: int) -> list[Effect]:
        """The log has been replayed: go to work."""

    def refuse_waiting(self, code: ErrorCode) -> Sequence[Effect]:
        """Refuses all tickets that wait, for a machine that is given up."""


class Command(Protocol):
    """A question to a machine: what a client has asked (`Asked`), or a command that no client sends."""

    ticket: Ticket[Any]


M = TypeVar("M", bound=Machine)
_OF_TRANSACTIONS = (TransactionalRecord, MarkerRecord)

_MAPPED_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """The error for the client when the log refuses with `code`.

    GroupCoordinatorService.java and TransactionStateManager.appendTransactionToLog agree.
    """
    return _MAPPED_ERRORS.get(code, code)


class RunningPartition(Generic[M]):
    """One partition of the topic that this node leads: its log, its machine, who waits for it."""

    __slots__ = (
        "appended",
        "failed",
        "held",
        "index",
        "late",
        "leader_epoch",
        "loading",
        "log",
        "machine",
        "pause",
        "records",
        "rests_until_ms",
        "timers",
    )

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.log: CoordinatorLog | None = None
        self.machine: M | None = None
        """None while it is being loaded."""
        self.loading: M | None = None
        """The machine that is being loaded."""
        self.records: Iterator[LoggedRecord] | None = None
        """Records that are left to load."""
        self.held: deque[list[Effect]] = deque()
        """One list for each append under way: what came after it and has to wait for it."""
        self.failed = False
        """An append failed: load again when the last one under way is through."""
        self.rests_until_ms = 0
        """Not to be loaded again before; 0 once an append of this machine has succeeded."""
        self.pause: TimerHandle | None = None
        """Set while it waits for that."""
        self.timers: dict[TimerKey, int] = {}
        """Which entry of the heap counts, by timer key."""
        self.late: LateReplies
        """Set by the owner, as is the next one."""
        self.appended: Callable[[KafkaError | None], None]
        """Called with the result of each append."""

    def begin_append(self) -> CoordinatorLog:
        """Makes all that comes from now on wait for one more append to the log."""
        log = self.log
        assert log is not None
        self.held.append([])
        if log.is_replicated:
            self.late.limit()
        return log


EffectHandler = Callable[[RunningPartition[Any], Any], None]
"""`(partition, effect)`: carries out one effect of the partition's machine."""


class Runtime(Generic[M]):
    """Every method is called on the event loop.

    `topic` is the internal topic; `partition_count` counts until it exists. `open_log(partition)` gives the
    log of one of its partitions, None while it has none. `clock_ms` is the time since the epoch; it should
    not jump, since time-outs are measured with it. `after_loading` is called after each slice of loading:
    what there is now is there to stay. A reply that has waited `patience_ms()` for other replicas is refused
    with COORDINATOR_NOT_AVAILABLE.

    A subclass makes the machine (`_new_machine`), and may look at one that has been loaded
    (`_machine_loaded`).
    """

    partition_class: type[RunningPartition[M]] = RunningPartition

    def __init__(
        self,
        *,
        node_id: int,
        topic: str,
        partition_count: int,
        open_log: Callable[[int], CoordinatorLog | None],
        clock_ms: Callable[[], int],
        call_later: CallLater,
        after_loading: Callable[[], object] | None = None,
        patience_ms: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._topic = topic
        self._partition_count = partition_count
        self._open_log = open_log
        self._clock_ms = clock_ms
        self._call_later = call_later
        self._after_loading = after_loading
        self._patience_ms = patience_ms
        self._partitions: dict[int, RunningPartition[M]] = {}
        self._loading: deque[RunningPartition[M]] = deque()
        self._load_timer: TimerHandle | None = None
        self._timers = TimerHeap(clock_ms, call_later, self._expire_timer)
        self._effects = self._effect_handlers()

    # For subclasses

    def _effect_handlers(self) -> dict[type[Effect], EffectHandler]:
        """Carry out one effect of a partition, by the class of the effect. A subclass whose machines have
        effects of their own adds them. A command that follows from an effect comes after this call."""
        return {
            Append: self._append,
            AppendMarker: self._append_marker,
            SetTimer: self._timers.set,
            CancelTimer: _cancel_timer,
        }

    @abstractmethod
    def _new_machine(self, partition: RunningPartition[M]) -> M:
        """A machine that has seen nothing of its log yet."""
        raise NotImplementedError

    def _machine_loaded(self, partition: RunningPartition[M]) -> None:
        """`partition.machine` has just been loaded and started."""

    def _refusal(self, command: Command, code: ErrorCode) -> Any:
        """The response to a command for which there is no machine."""
        return command.ticket.refused(code)

    # For the server

    def view_changed(self, view: ClusterView) -> None:
        """Take up the partitions that this node leads now, give up the others. Call with each new view."""
        topic = view.topic(self._topic)
        led = {}
        if topic is not None:
            self._partition_count = len(topic.partitions)
            led = {
                partition.index: partition.leader_epoch
                for partition in topic.partitions
                if partition.leader == self._node_id and self._node_id not in partition.offline
            }
        for partition in list(self._partitions.values()):
            if led.get(partition.index) != partition.leader_epoch:
                self._give_up(partition)
        for index in sorted(led.keys() - self._partitions.keys()):
            self._take_up(index, led[index])
        if self._load_timer is not None:
            self._load_timer.cancel()
        self._load()

    def _take_up(self, index: int, leader_epoch: int) -> None:
        partition = self._partitions[index] = self.partition_class(index, leader_epoch)
        partition.appended = partial(self._appended, partition)

        def refuse(late: list[Reply]) -> None:
            self._deliver(partition, _refuse(late, coordinator_error(ErrorCode.REQUEST_TIMED_OUT)))

        partition.late = LateReplies(
            partition.held, self._patience_ms, self._clock_ms, self._call_later, refuse
        )
        self._loading.append(partition)

    def close(self) -> None:
        """Give up every partition: what waits is answered with NOT_COORDINATOR."""
        for partition in list(self._partitions.values()):
            self._give_up(partition)
        if self._load_timer is not None:
            self._load_timer.cancel()
            self._load_timer = None
        self._timers.close()

    @property
    def partitions(self) -> Mapping[int, RunningPartition[M]]:
        """The partitions of the topic that this node leads, by number."""
        return self._partitions

    @property
    def is_loading(self) -> bool:
        """Whether any partition is not ready yet."""
        return any(partition.machine is None for partition in self._partitions.values())

    # For the handlers

    def partition_of(self, key: str) -> int:
        """The partition of the topic that looks after a group or a transactional id."""
        if len(key) > LONGEST_CACHED_KEY:
            return partition_for(key, self._partition_count)
        return _remembered_partition_for(key, self._partition_count)

    def submit(self, key: str, command: Command) -> None:
        """Carry out a command about `key`. Its ticket takes the response once, perhaps before the return."""
        self._submit_to(self._partitions.get(self.partition_of(key)), command)

    def submitter(self, key: str) -> Callable[[Command], None]:
        """`submit` for many commands about the same key: its partition is looked up once."""
        index, partition, submit_to = self.partition_of(key), self._partitions.get, self._submit_to

        def submit(command: Command) -> None:
            submit_to(partition(index), command)

        return submit

    def _submit_to(self, partition: RunningPartition[M] | None, command: Command) -> None:
        if partition is None:
            command.ticket.take(self._refusal(command, ErrorCode.NOT_COORDINATOR))
            return
        if partition.machine is None:
            command.ticket.take(self._refusal(command, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        try:
            effects = partition.machine.handle(command, self._clock_ms())
        except Exception:
            logger.exception(
                "%s-%d: a command failed, loading the partition again", self._topic, partition.index
            )
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if command.ticket not in self._fail(partition, code):
                command.ticket.take(command.ticket.refused(code))
        else:
            self._run(partition, effects)

    def _submit_checked(
        self,
        partition: RunningPartition[M] | None,
        command: Command,
        check: Callable[[CoordinatorLog], None],
    ) -> None:
        """Carry out a command if the log would take its records now: `check` raises KafkaError if not. A
        refusal now is for this command only; later the machine would have to be loaded again."""
        if partition is not None and partition.machine is not None:
            assert partition.log is not None
            try:
                check(partition.log)
            except KafkaError as error:
                command.ticket.take(command.ticket.refused(coordinator_error(error.code)))
                return
        self._submit_to(partition, command)

    def _handle_in_all(self, command: Command) -> list[Any] | None:
        """The reply of every machine to a command that changes nothing; None while one is not ready."""
        now_ms = self._clock_ms()
        responses = []
        for partition in self._partitions.values():
            if partition.machine is None:
                return None
            for effect in partition.machine.handle(command, now_ms):
                assert isinstance(effect, Reply)
                responses.append(effect.response)
        return responses

    # Effects

    def _run(self, partition: RunningPartition[M], effects: Iterable[Effect]) -> None:
        """Carry out the decisions of a machine. Replies go last: the client may send a command at once, which
        must not overtake this one on its way to the log."""
        held, handlers = partition.held, self._effects
        due: list[Effect] = []
        for effect in effects:
            if effect.waits_for_log:
                (held[-1] if held else due).append(effect)
            else:
                handlers[effect.__class__](partition, effect)
        if due:
            self._deliver(partition, due)

    def _deliver(self, partition: RunningPartition[M], due: Iterable[Effect]) -> None:
        handlers = self._effects
        for effect in due:
            if effect.__class__ is Reply:  # most are, so these alone need no entry and no call
                effect.ticket.take(effect.response)
            else:
                handlers[effect.__class__](partition, effect)

    def _append(self, partition: RunningPartition[M], effect: Append) -> None:
        log = partition.begin_append()
        if effect.producer is None:
            log.append(effect.records, partition.appended)
        else:
            log.append(effect.records, partition.appended, effect.producer)

    def _append_marker(self, partition: RunningPartition[M], effect: AppendMarker) -> None:
        partition.begin_append().append_marker(effect.marker, partition.appended)

    def _appended(self, partition: RunningPartition[M], error: KafkaError | None) -> None:
        held = partition.held
        if self._partitions.get(partition.index) is not partition:
            held.popleft()
        elif partition.failed:
            held.popleft()
            if not held:
                partition.failed = False
                self._load_again(partition)
        elif error is None:
            partition.rests_until_ms = 0
            self._deliver(partition, held.popleft())
        else:
            logger.log(
                _level_of(error),
                "%s-%d: an append failed, loading the partition again: %s",
                self._topic,
                partition.index,
                error,
            )
            self._fail(partition, coordinator_error(error.code), held.popleft())

    def _expire_timer(self, partition: RunningPartition[M], key: TimerKey) -> None:
        if partition.machine is None:
            return
        try:
            effects = partition.machine.expire(key, self._clock_ms())
        except Exception:
            logger.exception(
                "%s-%d: a timer failed, loading the partition again: %s", self._topic, partition.index, key
            )
            self._fail(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._run(partition, effects)

    # Failure

    def _fail(
        self, partition: RunningPartition[M], code: ErrorCode, waiting: Iterable[Effect] = ()
    ) -> list[Any]:
        """Load the machine again, once nothing is on its way to the log. Returns the refused tickets."""
        refused = self._drop_machine(partition, code, waiting)
        if partition.held:
            partition.failed = True
        else:
            self._load_again(partition)
        return refused

    def _drop_machine(
        self, partition: RunningPartition[M], code: ErrorCode, waiting: Iterable[Effect] = ()
    ) -> list[Any]:
        """Refuse all that waits, for the log or in the machine. Returns their tickets.

        Markers that waited are forgotten: the machine that is loaded next knows what is to be written.
        """
        refused = _refuse(waiting, code)
        for effects in partition.held:
            refused += _refuse(effects, code)
            effects.clear()
        machine, partition.machine = partition.machine, None
        partition.loading = partition.records = None
        partition.timers = {}
        if machine is not None:
            refused += [effect for effect in machine.refuse_waiting(code) if isinstance(effect, Reply)]
        self._deliver(partition, refused)
        return [reply.ticket for reply in refused]

    def _give_up(self, partition: RunningPartition[M]) -> None:
        del self._partitions[partition.index]
        if partition in self._loading:
            self._loading.remove(partition)
        if partition.pause is not None:
            partition.pause.cancel()
            partition.pause = None
        partition.late.close()
        self._drop_machine(partition, ErrorCode.NOT_COORDINATOR)

    # Loading

    def _load_again(self, partition: RunningPartition[M]) -> None:
        def load() -> None:
            partition.pause = None
            self._loading.append(partition)
            if self._load_timer is None:
                self._load_timer = self._call_later(0, self._load)

        rest_seconds = (partition.rests_until_ms - self._clock_ms()) / 1000
        if rest_seconds > 0:
            # Never longer, should the clock have been set back.
            partition.pause = self._call_later(min(rest_seconds, RELOAD_PAUSE_S), load)
        else:
            load()

    def _load(self) -> None:
        """Load a slice of what is to be loaded; small logs are through in one call."""
        self._load_timer = None
        if not self._loading:
            return
        budget = RECORDS_PER_TURN
        waiting: list[RunningPartition[M]] = []
        with _without_collector():
            while self._loading and budget > 0:
                partition = self._loading.popleft()
                try:
                    budget = self._load_slice(partition, budget)
                except Exception as error:
                    # After any error the other partitions are loaded; this one is tried again.
                    _loading_failed(self._topic, partition, error)
                    waiting.append(partition)
                    continue
                if partition.records is not None:
                    self._loading.appendleft(partition)
        delay_seconds = 0.0 if self._loading else RELOAD_PAUSE_S
        self._loading.extend(waiting)
        if self._loading and self._load_timer is None:
            self._load_timer = self._call_later(delay_seconds, self._load)
        if self._after_loading is not None:
            self._after_loading()

    def _load_slice(self, partition: RunningPartition[M], budget: int) -> int:
        """Replay up to `budget` records; if these were the last, the machine is ready, or waits for replicas.

        Returns what is left of the budget. Raises KafkaError when the log is not there or cannot be read.
        """
        machine = partition.loading
        if machine is None or partition.records is None:
            machine = partition.loading = self._new_machine(partition)
            partition.log = self._open_log(partition.index)
            if partition.log is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its log is not there")
            partition.records = partition.log.read_all()
        for record in islice(partition.records, budget):
            budget -= 1
            try:
                if isinstance(record, _OF_TRANSACTIONS):
                    _replay_of_transaction(machine, record)
                else:
                    machine.replay(record[0], record[1])
            except MalformedMessage as error:
                # Of a newer broker, perhaps. The other records still count.
                logger.warning("%s-%d: unknown record ignored: %s", self._topic, partition.index, error)
        if budget > 0:
            assert partition.log is not None
            partition.records = None
            if not partition.log.waits_for_replicas(partial(self._replicated, partition, machine)):
                self._begin(partition, machine)
        return budget

    def _replicated(self, partition: RunningPartition[M], machine: M, error: KafkaError | None) -> None:
        """The other replicas have all that was loaded, or will not have it."""
        if partition.loading is not machine:
            return
        try:
            if error is not None:
                raise error
            self._begin(partition, machine)
        except Exception as failure:
            _loading_failed(self._topic, partition, failure)
            partition.rests_until_ms = self._clock_ms() + round(RELOAD_PAUSE_S * 1000)
            self._load_again(partition)

    def _begin(self, partition: RunningPartition[M], machine: M) -> None:
        partition.machine, partition.loading = machine, None
        now_ms = self._clock_ms()
        partition.rests_until_ms = now_ms + round(RELOAD_PAUSE_S * 1000)
        self._run(partition, machine.start(now_ms))
        self._machine_loaded(partition)


class TimerHeap(Generic[M]):
    """Timers of many partitions behind one `call_later`.

    An entry is (time, number, partition, key); it counts if `partition.timers[key]` is its number. Entries
    that were replaced or cancelled stay until they are due, or until they are more than the others.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        call_later: CallLater,
        expire: Callable[[RunningPartition[M], TimerKey], None],
    ) -> None:
        self._clock_ms = clock_ms
        self._call_later = call_later
        self._expire = expire
        self._heap: list[tuple[int, int, RunningPartition[M], TimerKey]] = []
        self._number = 0
        self._rebuild_at = STALE_TIMERS_KEPT
        self._handle: TimerHandle | None = None
        self._wake_at_ms = 0

    def __len__(self) -> int:
        """Its entries, also those that count no more."""
        return len(self._heap)

    def set(self, partition: RunningPartition[M], effect: SetTimer) -> None:
        key, at_ms = effect.key, effect.at_ms
        self._number += 1
        partition.timers[key] = self._number
        heappush(self._heap, (at_ms, self._number, partition, key))
        if len(self._heap) > self._rebuild_at:
            self._rebuild_heap()
        if self._handle is None or at_ms < self._wake_at_ms:
            self._set_wake()

    def close(self) -> None:
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _rebuild_heap(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].timers.get(entry[3]) == entry[1]]
        heapify(self._heap)
        self._rebuild_at = 2 * len(self._heap) + STALE_TIMERS_KEPT

    def _set_wake(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._wake_at_ms = self._heap[0][0]
            delay_ms = max(self._wake_at_ms - self._clock_ms(), 0)
            self._handle = self._call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        """Expire the timers that are due, and stop for other work when that takes long."""
        self._handle = None
        now_ms = self._clock_ms()
        newest = self._number
        while self._heap and self._heap[0][0] <= now_ms and self._heap[0][1] <= newest:
            _, number, partition, key = heappop(self._heap)
            if partition.timers.get(key) == number:
                del partition.timers[key]
                self._expire(partition, key)
                if self._clock_ms() - now_ms >= RING_FOR_MS:
                    break
        self._set_wake()


@contextmanager
def _without_collector() -> Iterator[None]:
    """Loading makes many objects and no garbage: the collector would go through them again and again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _loading_failed(topic: str, partition: RunningPartition[Any], error: Exception) -> None:
    partition.machine = partition.loading = partition.records = None
    logger.log(
        _level_of(error),
        "%s-%d: loading failed, will try again: %s",
        topic,
        partition.index,
        error,
        exc_info=not isinstance(error, KafkaError),
    )


def _level_of(error: Exception) -> int:
    """Another leader is nothing that an operator has to look at."""
    is_moved = isinstance(error, KafkaError) and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    return logging.INFO if is_moved else logging.ERROR


def _cancel_timer(partition: RunningPartition[Any], effect: CancelTimer) -> None:
    partition.timers.pop(effect.key, None)


def _replay_of_transaction(machine: Any, record: TransactionalRecord | MarkerRecord) -> None:
    if isinstance(record, MarkerRecord):
        machine.replay_marker(record.producer_id, record.commit)
    else:
        machine.replay_pending(record.key, record.value, record.producer_id)


def _refuse(effects: Iterable[Effect], code: ErrorCode) -> list[Reply]:
    refused = []
    for effect in effects:
        if isinstance(effect, Reply):
            refused.append(Reply(effect.ticket, effect.ticket.refused(code)))
        elif isinstance(effect, Asking):
            refused.append(Reply(effect.command.ticket, effect.command.ticket.refused(code)))
    return refused
