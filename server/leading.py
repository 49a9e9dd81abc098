"""The partitions with several replicas that this node leads: fetches of followers, high watermarks, ISRs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.coordinator.replication.alter_partition import AlterPartitionQueue, AlterPartitionRequest
from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.coordinator.replication.replica_state import (
    BeginEpoch,
    FollowerRead,
    HighWatermark,
    LeaderEffect,
    LeaderState,
)
from odradek.coordinator.replication.transitions import Known
from odradek.coordinator.replication.values import BrokerState, ReplicaKey
from odradek.server.replica_log import LocalReplicaLog, ReplicationSettings
from odradek.server.timers import monotonic_ms
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import alter_partition as wire

if TYPE_CHECKING:
    from odradek.apis.replicas import FetchingReplica
    from odradek.coordinator.cluster.view import ClusterView, PartitionView
    from odradek.server.timers import Timers
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition

logger = logging.getLogger("odradek.replication")

Ask = Callable[[Any, Callable[[Any], None]], None]
"""Sends a request to the controllers and calls back with the response, or None."""


class LeaderSettings:
    """Of one partition (`replica_state.LeaderSettings`)."""

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
    """Implements `apis.replicas.Replicas`."""

    def __init__(
        self,
        settings: ReplicationSettings,
        store: LogStore,
        current_view: Callable[[], ClusterView],
        altering: Altering,
    ) -> None:
        self.leaders: dict[ReplicaKey, LeaderState] = {}
        self._settings = settings
        self._store = store
        self._current_view = current_view
        self._altering = altering
        altering.tell = self.altered
        self._wakes: dict[ReplicaKey, tuple[Partition, Callable[[], None]]] = {}

    # Views

    def lead(self, key: ReplicaKey, partition: Partition, view: PartitionView) -> None:
        """This node leads by that view."""
        leader = self.leaders.get(key)
        if leader is None:
            settings = LeaderSettings(self._settings, partition)
            leader = LeaderState(
                key, self._settings.node_id, LocalReplicaLog(partition), self._broker, settings
            )
            self.leaders[key] = leader
        partition.follow_leader_epoch(view.leader_epoch)
        partition.appender.high_watermark.refuse(None)
        self._apply(leader.lead(view, monotonic_ms()))
        self._watch(key, partition, leader)

    def known(self, key: ReplicaKey) -> Known | None:
        """The epochs of a partition that is led here; the controller's answers bring new ones."""
        leader = self.leaders.get(key)
        return None if leader is None else leader.known

    def resign(self, key: ReplicaKey) -> None:
        """Nothing of the time as a leader is left. Whoever waits for other replicas here gets
        NOT_LEADER_OR_FOLLOWER."""
        leader = self.leaders.pop(key, None)
        if leader is None:
            return
        watched = self._wakes.pop(key, None)
        self._altering.forget(key)
        if watched is not None:
            partition, wake = watched
            partition.unwatch(wake)
            partition.appender.high_watermark.refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

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
        """Each commit may move the high watermark, where no other replica has to have it."""
        if key in self._wakes:
            return

        def wake() -> None:
            self._apply(leader.appended(monotonic_ms()))

        self._wakes[key] = partition, wake
        partition.watch(wake, at_log_end=True)

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
        return self._leader(key).read_for_follower(replica.id, leader_epoch, fetch_offset, last_fetched_epoch)

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
            else:
                _begin_epoch(partition, effect)

    def altered(self, change: AlterIsr, answer: AlteredIsr | ErrorCode) -> None:
        """The controller's answer."""
        leader = self.leaders.get(change.key)
        if leader is not None:
            if isinstance(answer, ErrorCode):
                logger.info("%s-%d: the ISR is not changed: %s", *change.key, answer.name)
            self._apply(leader.altered(change, answer, monotonic_ms()))


def _begin_epoch(partition: Partition, effect: BeginEpoch) -> None:
    partition.log.leader_epochs.assign(effect.leader_epoch, effect.start_offset)
    try:
        partition.log.durability.save_leader_epochs()
    except OSError as error:
        partition.availability.take_offline(f"its leader epochs cannot be written: {error}")


class Altering:
    """Changes of ISRs on their way to the controllers. `tell` gets each answer."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        current_view: Callable[[], ClusterView],
        ask: Ask,
        timers: Timers,
    ) -> None:
        self.tell: Callable[[AlterIsr, AlteredIsr | ErrorCode], None] = lambda change, answer: None
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._current_view = current_view
        self._ask = ask
        self._timers = timers
        self._queue = AlterPartitionQueue()

    def submit(self, change: AlterIsr) -> None:
        """Goes at once, or with the next request."""
        self._queue.submit(change)
        self._send()

    def forget(self, key: ReplicaKey) -> None:
        """The partition is not led here any more."""
        self._queue.forget(key)

    def _send(self) -> None:
        changes = self._queue.next_request(monotonic_ms())
        if changes is not None:
            self._ask(self._request(changes), partial(self._answered, changes))

    def _answered(self, changes: AlterPartitionRequest, response: Any) -> None:
        if response is None or response.error_code:
            if response is not None:
                logger.warning("no ISR was changed: %s", ErrorCode(response.error_code).name)
            self._queue.failed(changes, monotonic_ms())
        else:
            for change, answer in self._queue.answered(changes, self._answers(response)):
                self.tell(change, answer)
        self._send()
        wake_at_ms = self._queue.wake_at_ms
        if wake_at_ms is not None:
            self._timers.after(wake_at_ms - monotonic_ms(), self._send)

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

    def _answers(self, response: wire.AlterPartitionResponse) -> dict[ReplicaKey, AlteredIsr | ErrorCode]:
        answers: dict[ReplicaKey, AlteredIsr | ErrorCode] = {}
        names = self._current_view().topic_names
        for topic in response.topics:
            name = names.get(topic.topic_id)
            if name is None:
                continue
            for one in topic.partitions:
                code = ErrorCode(one.error_code)
                answers[name, one.partition_index] = (
                    AlteredIsr(one.leader_epoch, one.partition_epoch, tuple(one.isr))
                    if code is ErrorCode.NONE
                    else code
                )
        return answers
