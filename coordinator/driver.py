"""Runs the group machines of this node: one for each partition of `__consumer_offsets` that it leads.

A machine is loaded by replaying its log, a slice per turn of the event loop; until then its groups are
answered COORDINATOR_LOAD_IN_PROGRESS. An append that fails undoes nothing by hand: whoever waited for it, or
for anything after it, is refused, and the machine is loaded again. So is one that tripped over a command. All
timers of all machines share one heap.

Nothing here is thread-safe, and nothing blocks longer than one slice of loading.
"""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Protocol

from odradek.coordinator.cluster import ClusterView
from odradek.coordinator.commands import Command, ListGroups, ListGroupsReply, RemoveTopics
from odradek.coordinator.effects import Append, Effect, LogRecord, Reply, SetTimer
from odradek.coordinator.group_machine import GroupMachine, TimerKey
from odradek.coordinator.log import CoordinatorLog
from odradek.coordinator.partitioner import partition_for
from odradek.coordinator.settings import GroupSettings
from odradek.coordinator.topics import OFFSETS_TOPIC
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage

__all__ = ["OFFSETS_TOPIC", "GroupCoordinator", "TimerHandle", "coordinator_error"]

RECORDS_PER_TURN = 2_000
"""How much of a log is loaded before others have their turn: about 10 ms."""
RETRY_LOAD_AFTER_SECONDS = 5.0
RING_FOR_MS = 10
"""How long timers that are due together may hold up the event loop."""
STALE_TIMERS_KEPT = 1_000

logger = logging.getLogger(__name__)
_partition_for = lru_cache(maxsize=8_192)(partition_for)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
"""asyncio's `loop.call_later`: seconds, function."""

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
    """What a caller is told when the log answers with `code` (GroupCoordinatorService.java)."""
    return _MAPPED_ERRORS.get(code, code)


class _Partition:
    """One partition of `__consumer_offsets` that this node leads: its log, its machine, who waits for it."""

    __slots__ = (
        "failed",
        "held",
        "index",
        "leader_epoch",
        "loading",
        "log",
        "machine",
        "records",
        "removed_topics",
        "timers",
    )

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.log: CoordinatorLog | None = None
        self.machine: GroupMachine | None = None
        """None while it is being loaded."""
        self.loading: GroupMachine | None = None
        """The machine that is being loaded."""
        self.records: Iterator[LogRecord] | None = None
        """What is left to load."""
        self.held: deque[list[Reply]] = deque()
        """One list for each append under way: the replies that came after it."""
        self.failed = False
        """An append failed: load again when the last one under way is through."""
        self.removed_topics: set[str] = set()
        """Deleted while loading."""
        self.timers: dict[TimerKey, int] = {}
        """Which entry of the heap counts, by timer key."""


class GroupCoordinator:
    """Every method is called on the event loop.

    `open_log(partition)` gives the log of a partition of `__consumer_offsets`, None while it has none.
    `clock_ms` is the time since the epoch; it should not jump, since sessions are measured with it.
    `new_member_suffix` makes the random part of a member id (a UUID in its text form).
    `after_loading` is called after each slice of loading: what there is now is there to stay.
    """

    def __init__(
        self,
        *,
        node_id: int,
        settings: GroupSettings,
        open_log: Callable[[int], CoordinatorLog | None],
        clock_ms: Callable[[], int],
        call_later: CallLater,
        new_member_suffix: Callable[[], str],
        after_loading: Callable[[], object] | None = None,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._open_log = open_log
        self._clock_ms = clock_ms
        self._new_member_suffix = new_member_suffix
        self._after_loading = after_loading
        self._call_later = call_later
        self._partition_count = settings.offsets_topic_num_partitions
        self._partitions: dict[int, _Partition] = {}
        self._loading: deque[_Partition] = deque()
        self._topics: Collection[str] = ()
        self._load_timer: TimerHandle | None = None
        self._timers = _TimerHeap(clock_ms, call_later, self._ring)

    # For the server

    def view_changed(self, view: ClusterView) -> None:
        """Take up the partitions that this node leads now, give up the others. Call with each new view."""
        topic = view.topic(OFFSETS_TOPIC)
        self._topics = view.topics
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
            partition = self._partitions[index] = _Partition(index, led[index])
            self._loading.append(partition)
        if self._load_timer is not None:
            self._load_timer.cancel()
        self._load()

    def remove_topics(self, names: Collection[str]) -> None:
        """Forget the offsets of topics that have been deleted."""
        for partition in self._partitions.values():
            if partition.machine is None:
                partition.removed_topics.update(names)
            else:
                self._remove_topics(partition, frozenset(names))

    def close(self) -> None:
        """Give up every partition: what waits is answered with NOT_COORDINATOR."""
        for partition in list(self._partitions.values()):
            self._give_up(partition)
        if self._load_timer is not None:
            self._load_timer.cancel()
            self._load_timer = None
        self._timers.close()

    @property
    def is_loading(self) -> bool:
        """Whether any partition is not ready yet."""
        return any(partition.machine is None for partition in self._partitions.values())

    # For the handlers

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that looks after a group."""
        return _partition_for(group_id, self._partition_count)

    def submit(self, group_id: str, command: Command) -> None:
        """Carry out a command. `command.ticket(answer)` is called once: perhaps before this returns."""
        partition = self._partitions.get(_partition_for(group_id, self._partition_count))
        if partition is None:
            command.ticket(command.refused(ErrorCode.NOT_COORDINATOR))
        elif partition.machine is None:
            command.ticket(command.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            try:
                effects = partition.machine.handle(command, self._clock_ms())
            except Exception:
                logger.exception("%s-%d: a command failed", OFFSETS_TOPIC, partition.index)
                code = ErrorCode.UNKNOWN_SERVER_ERROR
                if command.ticket not in self._fail(partition, code):
                    command.ticket(command.refused(code))
            else:
                self._run(partition, effects)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> ListGroupsReply:
        """The groups of all machines of this node; COORDINATOR_LOAD_IN_PROGRESS while one is not ready."""
        listed = ListGroupsReply(ErrorCode.NONE)
        command = ListGroups(None, frozenset(states), frozenset(types))
        now_ms = self._clock_ms()
        for partition in self._partitions.values():
            if partition.machine is None:
                return command.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            for effect in partition.machine.handle(command, now_ms):
                assert isinstance(effect, Reply)
                listed.groups += effect.value.groups
        return listed

    # Effects

    def _run(self, partition: _Partition, effects: list[Effect]) -> None:
        """Carry out what a machine decided. Answers go last: who gets one may come with a command at once,
        which must not overtake this one on its way to the log."""
        held = partition.held
        answers: list[Reply] = []
        for effect in effects:
            if isinstance(effect, Reply):
                (held[-1] if held else answers).append(effect)
            elif isinstance(effect, SetTimer):
                self._timers.set(partition, effect.key, effect.at_ms)
            elif isinstance(effect, Append):
                assert partition.log is not None
                held.append([])
                partition.log.append(effect.records, self._appended(partition))
            else:
                partition.timers.pop(effect.key, None)
        for answer in answers:
            answer.ticket(answer.value)

    def _appended(self, partition: _Partition) -> Callable[[KafkaError | None], None]:
        def appended(error: KafkaError | None) -> None:
            held = partition.held
            if self._partitions.get(partition.index) is not partition:
                held.popleft()
            elif partition.failed:
                held.popleft()
                if not held:
                    partition.failed = False
                    self._load_again(partition)
            elif error is None:
                _deliver(held.popleft())
            else:
                logger.error("%s-%d: an append failed: %s", OFFSETS_TOPIC, partition.index, error)
                self._fail(partition, coordinator_error(error.code), held.popleft())

        return appended

    def _ring(self, partition: _Partition, key: TimerKey) -> None:
        if partition.machine is None:
            return
        try:
            effects = partition.machine.expire(key, self._clock_ms())
        except Exception:
            logger.exception("%s-%d: a timer failed: %s", OFFSETS_TOPIC, partition.index, key)
            self._fail(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._run(partition, effects)

    # Failure

    def _fail(self, partition: _Partition, code: ErrorCode, waiting: Sequence[Reply] = ()) -> list[Any]:
        """Load the machine again, once nothing is on its way to the log. Returns the refused tickets."""
        refused = self._drop_machine(partition, code, waiting)
        if partition.held:
            partition.failed = True
        else:
            self._load_again(partition)
        return refused

    def _drop_machine(
        self, partition: _Partition, code: ErrorCode, waiting: Sequence[Reply] = ()
    ) -> list[Any]:
        """Refuse all that waits, for the log or in the machine. Returns their tickets."""
        refused = _refuse(waiting, code)
        for replies in partition.held:
            refused += _refuse(replies, code)
            replies.clear()
        machine, partition.machine = partition.machine, None
        partition.loading = partition.records = None
        partition.timers = {}
        if machine is not None:
            refused += [effect for effect in machine.refuse_waiting(code) if isinstance(effect, Reply)]
        _deliver(refused)
        return [reply.ticket for reply in refused]

    def _give_up(self, partition: _Partition) -> None:
        del self._partitions[partition.index]
        if partition in self._loading:
            self._loading.remove(partition)
        self._drop_machine(partition, ErrorCode.NOT_COORDINATOR)

    # Loading

    def _load_again(self, partition: _Partition) -> None:
        self._loading.append(partition)
        if self._load_timer is None:
            self._load_timer = self._call_later(0, self._load)

    def _load(self) -> None:
        """Load a slice of what is to be loaded; small logs are through in one call."""
        self._load_timer = None
        if not self._loading:
            return
        # Loading makes many objects and no garbage: the collector would go through them again and again.
        collects = gc.isenabled()
        gc.disable()
        try:
            self._load_some()
        finally:
            if collects:
                gc.enable()
        if self._after_loading is not None:
            self._after_loading()

    def _load_some(self) -> None:
        budget = RECORDS_PER_TURN
        waiting: list[_Partition] = []
        while self._loading and budget > 0:
            partition = self._loading.popleft()
            try:
                budget = self._load_slice(partition, budget)
            except Exception as error:
                # Whatever it is, the other partitions are to be loaded, and this one may heal.
                logger.error(
                    "%s-%d cannot be loaded yet: %s",
                    OFFSETS_TOPIC,
                    partition.index,
                    error,
                    exc_info=not isinstance(error, KafkaError),
                )
                partition.machine = None
                partition.loading = partition.records = None
                waiting.append(partition)
                continue
            if partition.machine is None:
                self._loading.appendleft(partition)
        delay_seconds = 0.0 if self._loading else RETRY_LOAD_AFTER_SECONDS
        self._loading.extend(waiting)
        if self._loading and self._load_timer is None:
            self._load_timer = self._call_later(delay_seconds, self._load)

    def _load_slice(self, partition: _Partition, budget: int) -> int:
        """Replay up to `budget` records; if these were the last, the machine is ready.

        Returns what is left of the budget. Raises KafkaError when the log is not there or cannot be read.
        """
        machine = partition.loading
        if machine is None or partition.records is None:
            machine = partition.loading = GroupMachine(self._settings, self._new_member_suffix)
            partition.log = self._open_log(partition.index)
            if partition.log is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "its log is not there")
            partition.records = partition.log.read_all()
        for key, value, _ in islice(partition.records, budget):
            budget -= 1
            try:
                machine.replay(key, value)
            except MalformedMessage as error:
                # Sound on disk, but nothing that we know: a newer broker's. The rest still counts.
                logger.warning("%s-%d: a record is passed over: %s", OFFSETS_TOPIC, partition.index, error)
        if budget > 0:
            self._loaded(partition, machine)
        return budget

    def _loaded(self, partition: _Partition, machine: GroupMachine) -> None:
        partition.machine, partition.loading, partition.records = machine, None, None
        self._run(partition, machine.start(self._clock_ms()))
        # Also those of topics that were deleted just before a crash, when no tombstone had been written yet.
        names = partition.removed_topics | machine.offsets.topics().difference(self._topics)
        partition.removed_topics = set()
        if names:
            self._remove_topics(partition, frozenset(names))

    def _remove_topics(self, partition: _Partition, names: frozenset[str]) -> None:
        assert partition.machine is not None
        command = RemoveTopics(_nobody, names)
        self._run(partition, partition.machine.handle(command, self._clock_ms()))


class _TimerHeap:
    """Timers of many partitions behind one `call_later`.

    An entry is (time, number, partition, key); it counts if `partition.timers[key]` is its number. Entries
    that were replaced or cancelled stay until they surface, or until they outnumber the others.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        call_later: CallLater,
        ring: Callable[[_Partition, TimerKey], None],
    ) -> None:
        self._clock_ms = clock_ms
        self._call_later = call_later
        self._ring = ring
        self._heap: list[tuple[int, int, _Partition, TimerKey]] = []
        self._number = 0
        self._tidy_at = STALE_TIMERS_KEPT
        self._handle: TimerHandle | None = None
        self._wakes_at_ms = 0

    def set(self, partition: _Partition, key: TimerKey, at_ms: int) -> None:
        self._number += 1
        partition.timers[key] = self._number
        heappush(self._heap, (at_ms, self._number, partition, key))
        if len(self._heap) > self._tidy_at:
            self._tidy()
        if self._handle is None or at_ms < self._wakes_at_ms:
            self._arm()

    def close(self) -> None:
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _tidy(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].timers.get(entry[3]) == entry[1]]
        heapify(self._heap)
        self._tidy_at = 2 * len(self._heap) + STALE_TIMERS_KEPT

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._heap:
            self._wakes_at_ms = self._heap[0][0]
            delay_ms = max(self._wakes_at_ms - self._clock_ms(), 0)
            self._handle = self._call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        """Ring what is due now, and let others have their turn when that takes long."""
        self._handle = None
        now_ms = self._clock_ms()
        newest = self._number
        while self._heap and self._heap[0][0] <= now_ms and self._heap[0][1] <= newest:
            _, number, partition, key = heappop(self._heap)
            if partition.timers.get(key) == number:
                del partition.timers[key]
                self._ring(partition, key)
                if self._clock_ms() - now_ms >= RING_FOR_MS:
                    break
        self._arm()


def _deliver(replies: list[Reply]) -> None:
    for reply in replies:
        reply.ticket(reply.value)


def _refuse(replies: Sequence[Reply], code: ErrorCode) -> list[Reply]:
    return [Reply(reply.ticket, reply.value.refused(code)) for reply in replies]


def _nobody(answer: object) -> None:
    """The ticket of a command whose answer nobody waits for."""
