"""The partitions with several replicas that this node leads: fetches of followers, high watermarks, ISRs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.apis.access import ALLOW_ALL
from odradek.apis.replicas import EpochNotSaved
from odradek.coordinator.cluster.view import RECOVERING
from odradek.coordinator.replication._led import LedReplica
from odradek.coordinator.replication.alter_partition import AlterPartitionQueue, AlterPartitionRequest
from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.coordinator.replication.read_replica import preferred_read_replica
from odradek.coordinator.replication.replica_state import (
    BeginEpoch,
    FollowerRead,
    HighWatermark,
    LeaderEffect,
    LeaderState,
)
from odradek.coordinator.replication.transitions import Known
from odradek.coordinator.replication.values import BrokerState, ReplicaKey
from odradek.server.cluster._exchange import FIRST_VERSION_IN_PLACE, Exchange
from odradek.server.cluster.replica_log import LocalReplicaLog, ReplicationSettings
from odradek.server.network.connection import Connection
from odradek.server.network.timers import monotonic_ms
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_partition as wire

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.fetch_sessions import FetchSession
    from odradek.apis.in_place import FetchHandler
    from odradek.apis.replicas import FetchingReplica
    from odradek.coordinator.cluster.view import ClusterView, PartitionView
    from odradek.coordinator.replication.replication_quota import ReplicationQuota
    from odradek.server.network._pipeline import Turn
    from odradek.server.network.timers import Timer, Timers
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition

logger = logging.getLogger("odradek.replication")

Ask = Callable[[Any, Callable[[Any], None]], None]
"""Sends a request to the controllers and calls back with the response, or None."""


LEADER_EPOCH_RETRY_MS = 1_000
"""Pause before a failed write of leader epochs is repeated."""

SaveEpochs = Callable[["Partition", Callable[[KafkaError | None], None]], None]
"""Puts the leader epochs of a partition on the disk, and calls back."""


class LeaderSettings:
    """Settings of one partition (`replica_state.LeaderSettings`)."""

    __slots__ = ("_partition", "_settings")

    def __init__(self, settings: ReplicationSettings, partition: Partition) -> None:
        self._settings = settings
        self._partition = partition

    @property
    def replica_lag_time_max_ms(self) -> int:
        return self._settings.replica_lag_time_max_ms

    @property
    def min_insync_replicas(self) -> int:
        return self._partition.config.min_insync_replicas


class Leading:
    """Implements `apis.replicas.Replicas`.

    A new leader epoch goes to the disk in a worker: of a thousand partitions that fail over at once the event
    loop would else wait for two thousand syncs. Until it is there followers wait for their responses
    (KAFKA-7415): after a crash nobody would know where that epoch began. Clients do not wait.
    """

    def __init__(
        self,
        settings: ReplicationSettings,
        store: LogStore,
        current_view: Callable[[], ClusterView],
        altering: Altering,
        quota: ReplicationQuota,
        timers: Timers,
        save_epochs: SaveEpochs,
        turn: Turn | None = None,
    ) -> None:
        """`quota` is for what followers read here; `save_epochs` writes leader epochs in a worker. Without
        `turn` no request is served in place."""
        self.leaders: dict[ReplicaKey, LeaderState] = {}
        self.led: dict[ReplicaKey, LedReplica] = {}
        """The compiled part of each leader."""
        self.isr_changes = IsrChanges()
        self._settings = settings
        self._store = store
        self._current_view = current_view
        self._altering = altering
        self._quota = quota
        altering.tell = self.altered
        self._timers = timers
        self._save_epochs = save_epochs
        self._turn = turn
        self._unsaved: set[ReplicaKey] = set()
        """Their leader epochs may not be on the disk yet."""
        self._wakes: dict[ReplicaKey, tuple[Partition, _Growth]] = {}
        self._low_watermark_wakes: dict[ReplicaKey, list[Callable[[], None]]] = {}

    # Views

    def lead(self, key: ReplicaKey, partition: Partition, view: PartitionView) -> None:
        """This node leads by that view."""
        leader = self.leaders.get(key)
        is_new = leader is None
        if leader is None:
            settings = LeaderSettings(self._settings, partition)
            leader = LeaderState(
                key, self._settings.node_id, LocalReplicaLog(partition), self._broker, settings
            )
            self.leaders[key] = leader
            self.led[key] = LedReplica(leader, partition.appender, self._unsaved, self._quota.is_throttled)
        if view.leader_recovery_state == RECOVERING and view.leader_epoch > leader.leader_epoch:
            logger.warning(
                "%s-%d: elected uncleanly in epoch %d: what other replicas have from offset %d on is lost",
                *key,
                view.leader_epoch,
                partition.log_end_offset,
            )
        partition.follow_leader_epoch(view.leader_epoch)
        partition.appender.high_watermark.refuse(None)
        before = leader.in_sync.isr
        self._apply(leader.lead(view, monotonic_ms()))
        if not is_new:
            self.isr_changes.note(before, leader.in_sync.isr)
        self._watch(key, partition, leader)
        self.led[key].tell(False)

    def known(self, key: ReplicaKey) -> Known | None:
        """The epochs of a partition that is led here; the controller's responses bring new ones."""
        leader = self.leaders.get(key)
        return None if leader is None else leader.known

    def resign(self, key: ReplicaKey) -> None:
        """Nothing of the time as a leader is left. Whoever waits for other replicas here gets
        NOT_LEADER_OR_FOLLOWER."""
        leader = self.leaders.pop(key, None)
        if leader is None:
            return
        watched = self._wakes.pop(key, None)
        self._unsaved.discard(key)
        self.led.pop(key).end()
        self._altering.forget(key)
        if watched is not None:
            partition, wake = watched
            partition.unwatch(wake)
            partition.appender.high_watermark.refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._wake_low_watermark(key)

    def brokers_changed(self) -> None:
        """One that has gone is not waited for: low watermarks may be other ones."""
        for key in list(self._low_watermark_wakes):
            self._wake_low_watermark(key)

    def shrink(self) -> None:
        """Every half of `replica.lag.time.max.ms`."""
        now_ms = monotonic_ms()
        for leader in list(self.leaders.values()):
            self._apply(leader.shrink(now_ms))

    def _broker(self, node_id: int) -> BrokerState | None:
        broker = self._current_view().registrations.get(node_id)
        if broker is None:
            return None
        return BrokerState(broker.epoch, broker.is_fenced, broker.in_controlled_shutdown)

    def _watch(self, key: ReplicaKey, partition: Partition, leader: LeaderState) -> None:
        if key not in self._wakes:
            wake = _Growth(self, partition, leader, self.led[key])
            self._wakes[key] = partition, wake
            partition.watch(wake, at_log_end=True)

    def has_grown(self, partition: Partition, leader: LeaderState, led: LedReplica) -> None:
        """After a commit, where the log begins later, and where it has failed or may be read again."""
        now_ms = monotonic_ms()
        high_watermark = led.appended(self._current_view(), now_ms)
        if high_watermark is None:
            self._apply(leader.appended(now_ms))
        elif high_watermark > partition.high_watermark:
            partition.advance_high_watermark(high_watermark)
        led.tell(True)

    # For the handlers

    def read(
        self,
        key: ReplicaKey,
        replica: FetchingReplica,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
    ) -> FollowerRead:
        """See `apis.replicas.Replicas`."""
        leader = self._leader(key)
        if key in self._unsaved:
            leader.check_follower(replica.id, leader_epoch)
            raise EpochNotSaved
        return leader.read_for_follower(replica.id, leader_epoch, fetch_offset, last_fetched_epoch)

    def fetched(
        self,
        key: ReplicaKey,
        replica: FetchingReplica,
        fetch_offset: int,
        log_start_offset: int,
        read: FollowerRead,
    ) -> None:
        """See `apis.replicas.Replicas`."""
        leader = self._leader(key)
        self._apply(
            leader.fetched(replica.id, fetch_offset, log_start_offset, replica.epoch, read, monotonic_ms())
        )
        if key in self._low_watermark_wakes:
            self._wake_low_watermark(key)

    def serve_in_place(
        self, handler: FetchHandler, session: FetchSession, replica: FetchingReplica, context: RequestContext
    ) -> None:
        """See `apis.replicas.Replicas`."""
        connection = context.connection
        if self._turn is None or replica.version < FIRST_VERSION_IN_PLACE:
            return
        if not isinstance(connection, Connection):
            return
        exchange = connection.requests.exchange
        if exchange is None or not exchange.is_of(session, replica):
            parts = (handler, self._find, self._turn, self._timers, monotonic_ms)
            exchange = Exchange(*parts, session, replica)
            connection.requests.begin_exchange(exchange)
        # A view may bring other rules.
        view = None if context.authorizer is ALLOW_ALL else self._current_view()
        exchange.renew(context, view)

    def _find(self, key: ReplicaKey) -> tuple[LedReplica, Partition] | None:
        led = self.led.get(key)
        return None if led is None else (led, self._wakes[key][0])

    def holds_back(self, key: ReplicaKey, replica: FetchingReplica) -> bool:
        """See `apis.replicas.Replicas`."""
        quota = self._quota
        if not quota.is_throttled(key) or not quota.is_exceeded(monotonic_ms()):
            return False
        return replica.id not in self._leader(key).in_sync.isr

    def sent(self, key: ReplicaKey, size_bytes: int) -> None:
        """See `apis.replicas.Replicas`."""
        self._quota.record(key, size_bytes, monotonic_ms())

    def leads(self, key: ReplicaKey, leader_epoch: int) -> bool:
        """See `apis.replicas.Replicas`."""
        leader = self.leaders.get(key)
        return leader is not None and leader.leader_epoch == leader_epoch

    def check_append(self, key: ReplicaKey) -> None:
        """See `apis.replicas.Replicas`."""
        leader = self.leaders.get(key)
        if leader is not None:
            leader.check_append(by_all=True)

    def has_offsets(self, key: ReplicaKey) -> bool:
        """See `apis.replicas.Replicas`."""
        leader = self.leaders.get(key)
        return leader is None or leader.has_offsets

    def low_watermark(self, key: ReplicaKey) -> int | None:
        """See `apis.replicas.Replicas`."""
        leader = self.leaders.get(key)
        return None if leader is None else leader.low_watermark()

    def watch_low_watermark(self, key: ReplicaKey, wake: Callable[[], None]) -> None:
        """See `apis.replicas.Replicas`."""
        self._low_watermark_wakes.setdefault(key, []).append(wake)

    def unwatch_low_watermark(self, key: ReplicaKey, wake: Callable[[], None]) -> None:
        """See `apis.replicas.Replicas`."""
        wakes = self._low_watermark_wakes.get(key, [])
        if wake in wakes:
            wakes.remove(wake)
        if not wakes:
            self._low_watermark_wakes.pop(key, None)

    def _wake_low_watermark(self, key: ReplicaKey) -> None:
        for wake in list(self._low_watermark_wakes.get(key, ())):
            wake()

    @property
    def selects_by_rack(self) -> bool:
        """See `apis.replicas.Replicas`."""
        return self._settings.selects_by_rack

    def preferred_read_replica(self, key: ReplicaKey, rack: str, fetch_offset: int) -> int | None:
        """See `apis.replicas.Replicas`."""
        leader = self.leaders.get(key)
        return None if leader is None else preferred_read_replica(leader, rack, fetch_offset, self._rack_of)

    def _rack_of(self, node_id: int) -> str | None:
        broker = self._current_view().brokers.get(node_id)
        return None if broker is None else broker.rack

    def _leader(self, key: ReplicaKey) -> LeaderState:
        leader = self.leaders.get(key)
        if leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return leader

    # Effects

    def _apply(self, effects: Iterable[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, AlterIsr):
                isr = ",".join(str(broker_id) for broker_id, _ in effect.new_isr)
                logger.info("%s-%d: asking for the ISR %s", *effect.key, isr)
                self._altering.submit(effect)
                continue
            partition = self._store.get(*effect.key)
            if partition is None:
                continue
            if isinstance(effect, HighWatermark):
                partition.advance_high_watermark(effect.offset)
                self.led[effect.key].tell(False)
            else:
                self._begin_epoch(partition, effect)

    def _begin_epoch(self, partition: Partition, effect: BeginEpoch) -> None:
        partition.log.leader_epochs.assign(effect.leader_epoch, effect.start_offset)
        self._unsaved.add(effect.key)
        self._save_epochs(partition, partial(self._saved, partition, effect))

    def _saved(self, partition: Partition, begun: BeginEpoch, error: KafkaError | None) -> None:
        leader = self.leaders.get(begun.key)
        if leader is None or leader.leader_epoch != begun.leader_epoch:
            return
        if error is not None:
            logger.warning("%s-%d: its leader epoch is not on the disk yet: %s", *begun.key, error)
            self._timers.after(LEADER_EPOCH_RETRY_MS, partial(self.begin_again, partition, leader))
            return
        self._unsaved.discard(begun.key)
        partition.appender.high_watermark.wake()

    def begin_again(self, partition: Partition, leader: LeaderState) -> None:
        """The disk has not taken the epoch; or the partition is back from a rescan, which has found the
        epochs of batches only."""
        if self.leaders.get(leader.key) is leader:
            start_offset = min(leader.epoch_start_offset, partition.log_end_offset)
            self._begin_epoch(partition, BeginEpoch(leader.key, leader.leader_epoch, start_offset))

    def altered(self, change: AlterIsr, result: AlteredIsr | ErrorCode) -> None:
        """The controller's response."""
        leader = self.leaders.get(change.key)
        if leader is not None:
            if isinstance(result, ErrorCode):
                logger.info("%s-%d: the ISR is not changed: %s", *change.key, result.name)
                self.isr_changes.failures += 1
            before = leader.in_sync.isr
            self._apply(leader.altered(change, result, monotonic_ms()))
            self.led[change.key].tell(False)
            self.isr_changes.note(before, leader.in_sync.isr)


class _Growth:
    """Watches the log of a partition that is led here. Each commit may move the high watermark, where no
    other replica has to have it."""

    __slots__ = ("_leader", "_leading", "_led", "_log", "_partition")

    def __init__(self, leading: Leading, partition: Partition, leader: LeaderState, led: LedReplica) -> None:
        self._leading = leading
        self._partition = partition
        self._leader = leader
        self._led = led
        self._log = partition.log

    def __call__(self) -> None:
        if self._partition.log is not self._log:
            self._log = self._partition.log
            self._leading.begin_again(self._partition, self._leader)
        self._leading.has_grown(self._partition, self._leader, self._led)


class IsrChanges:
    """Counts of changes to the ISRs of partitions that were led here, since the start."""

    __slots__ = ("expands", "failures", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        """ISRs that lost replicas, whether this node has asked for it or the controller has fenced them."""
        self.expands = 0
        self.failures = 0
        """Changes that the controller has refused."""

    def note(self, before: frozenset[int], after: frozenset[int]) -> None:
        """An ISR may be another one."""
        self.shrinks += bool(before - after)
        self.expands += bool(after - before)


class Altering:
    """Changes of ISRs on their way to the controllers. `tell` gets each response."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        current_view: Callable[[], ClusterView],
        ask: Ask,
        timers: Timers,
        clock_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.tell: Callable[[AlterIsr, AlteredIsr | ErrorCode], None] = lambda change, result: None
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._current_view = current_view
        self._ask = ask
        self._timers = timers
        self._clock_ms = clock_ms
        self._queue = AlterPartitionQueue()
        self._timer: Timer | None = None

    def submit(self, change: AlterIsr) -> None:
        """Goes at once, or with the next request."""
        self._queue.submit(change)
        self._send()

    def forget(self, key: ReplicaKey) -> None:
        """The partition is not led here any more."""
        self._queue.forget(key)

    def _send(self) -> None:
        now_ms = self._clock_ms()
        changes = self._queue.next_request(now_ms)
        if changes is not None:
            self._ask(self._request(changes), partial(self._answered, changes))
            return
        wake_at_ms = self._queue.wake_at_ms
        if wake_at_ms is not None and self._timer is None:
            # A timer may come within the millisecond before it is due: then this waits for the rest.
            self._timer = self._timers.after(max(wake_at_ms - now_ms, 1), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._send()

    def _answered(self, changes: AlterPartitionRequest, response: Any) -> None:
        if response is None or response.error_code:
            if response is not None:
                logger.warning("no ISR was changed: %s", ErrorCode(response.error_code).name)
            self._queue.failed(changes, self._clock_ms())
        else:
            for change, result in self._queue.answered(changes, self._results(response)):
                self.tell(change, result)
        self._send()

    def _request(self, changes: AlterPartitionRequest) -> wire.AlterPartitionRequest:
        topics: dict[bytes, wire.TopicData] = {}
        known = self._current_view().topics
        for change in changes:
            name, index = change.key
            found = known.get(name)
            if found is None:
                continue
            partition = wire.PartitionData(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=[
                    wire.BrokerState(broker_id=broker_id, broker_epoch=epoch)
                    for broker_id, epoch in change.new_isr
                ],
                partition_epoch=change.partition_epoch,
            )
            topic = topics.setdefault(found.topic_id, wire.TopicData(topic_id=found.topic_id, partitions=[]))
            topic.partitions.append(partition)
        return wire.AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _results(self, response: wire.AlterPartitionResponse) -> dict[ReplicaKey, AlteredIsr | ErrorCode]:
        results: dict[ReplicaKey, AlteredIsr | ErrorCode] = {}
        names = self._current_view().topic_names
        for topic in response.topics:
            name = names.get(topic.topic_id)
            if name is None:
                continue
            for one in topic.partitions:
                code = ErrorCode(one.error_code)
                results[name, one.partition_index] = (
                    AlteredIsr(one.leader_epoch, one.partition_epoch, tuple(one.isr))
                    if code is ErrorCode.NONE
                    else code
                )
        return results
