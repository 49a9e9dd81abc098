"""The partitions that this node leads: the only place where handlers get a partition by its topic's name.

Everything comes from the newest `ClusterView`; nothing here assumes that this node leads every partition.
Refusals are Kafka's: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, and KAFKA_STORAGE_ERROR for a partition whose log is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.apis.addresses import address_of
from odradek.apis.turn import COMMITTED, FLUSHED, Until
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.apis.replicas import Replicas
    from odradek.coordinator.cluster.view import (
        ClusterView,
        PartitionView,
    )
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log._staging import Traffic
    from odradek.storage.log.partition import Partition

_EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_EXPECTED_OF_PRODUCE = _EXPECTED | {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
}
_EXPECTED_OF_FETCH = _EXPECTED | {
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}
"""Codes that ReplicaManager of Kafka 4.3 leaves out of its failed requests."""


class LedPartition:
    """A partition that this node leads, in one view of the cluster; from `Leadership.hold` perhaps one that
    it follows."""

    __slots__ = ("has_followers", "leader_epoch", "log", "view")

    def __init__(self, log: Partition, view: PartitionView) -> None:
        self.log = log
        self.view = view
        self.leader_epoch = view.leader_epoch
        self.has_followers = len(view.replicas) > 1
        """Without followers the ISR is this node, and all that is committed to the log is replicated."""

    def until(self, must_flush: bool, by_all: bool, timeout_ms: int | None = None) -> Until:
        """Conditions of the response to an append (`apis/turn.py`): `by_all` with acks=all, for `timeout_ms`
        if that is given. With one replica the high watermark is where the log ends after each commit.
        """
        if not by_all or not self.has_followers:
            return FLUSHED if must_flush else COMMITTED
        return Until(must_flush, replicated=True, patience_ms=0 if timeout_ms is None else max(timeout_ms, 1))


class Leadership:
    """Answers `lead(topic, index)` from a table that lives as long as one view of the cluster."""

    __slots__ = (
        "_followed",
        "_led",
        "_store",
        "_view",
        "current_view",
        "follower_fetches",
        "node_id",
        "replicas",
    )

    def __init__(self, current_view: Callable[[], ClusterView], store: LogStore, node_id: int) -> None:
        self.current_view = current_view
        self._store = store
        self.node_id = node_id
        self.replicas: Replicas | None = None
        """Set in a cluster."""
        self.follower_fetches: Counter[int] = Counter()
        """Answered Fetch requests of followers, by version."""
        self._view: ClusterView | None = None
        self._led: dict[tuple[str, int], LedPartition] = {}
        self._followed: dict[tuple[str, int], LedPartition] = {}

    @property
    def view(self) -> ClusterView:
        return self.current_view()

    def lead(self, topic: str, index: int) -> LedPartition:
        """The partition, if this node leads it now; else KafkaError."""
        view = self.current_view()
        if view is not self._view:
            self._view = view
            self._led = {}
            self._followed = {}
        led = self._led.get((topic, index))
        if led is None:
            led = self._find(view, topic, index)
            self._led[topic, index] = led
        return led

    def hold(self, topic: str, index: int) -> LedPartition:
        """Partition as from `lead`; also one that this node follows, where a consumer may read what is
        committed (KIP-392)."""
        try:
            return self.lead(topic, index)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            followed = self._followed.get((topic, index))
            if followed is None:
                followed = self._find_followed(topic, index, error)
                self._followed[topic, index] = followed
            return followed

    def unopened(self, partitions: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """The partitions among them that `lead` would have to open first."""
        is_unopened = self._store.places.is_unopened
        return [(topic, index) for topic, index in partitions if is_unopened(topic, index)]

    def note_refused_produce(self, topic: str | None, index: int, code: ErrorCode) -> None:
        """For the metrics; errors that Kafka expects from sound brokers and clients do not count."""
        traffic = None if code in _EXPECTED_OF_PRODUCE else self._traffic(topic, index)
        if traffic is not None:
            traffic.refused_produce()

    def note_refused_fetch(self, topic: str, index: int, code: ErrorCode) -> None:
        """Counts a refusal, as `note_refused_produce` does."""
        traffic = None if code in _EXPECTED_OF_FETCH else self._traffic(topic, index)
        if traffic is not None:
            traffic.refused_fetch()

    def _traffic(self, topic: str | None, index: int) -> Traffic | None:
        """None of a partition that is not here, or not open."""
        place = None if topic is None else self._store.places.by_key.get((topic, index))
        return None if place is None or place.partition is None else place.partition.traffic

    def has_taken_over(self, topic: str, view: PartitionView) -> bool:
        """Whether this node leads in that epoch already: its log may still be changed as the leader before it
        had it, until the end of a work."""
        if self.replicas is None or len(view.replicas) == 1:
            return True
        return self.replicas.leads((topic, view.index), view.leader_epoch)

    def _find(self, view: ClusterView, topic: str, index: int) -> LedPartition:
        topic_view = view.topics.get(topic)
        if topic_view is None or not 0 <= index < len(topic_view.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition_view = topic_view.partitions[index]
        if partition_view.leader != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._log_of(partition_view, topic)
        if not log.availability.is_broken and not self.has_taken_over(topic, partition_view):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log.follow_leader_epoch(partition_view.leader_epoch)
        return LedPartition(log, partition_view)

    def _find_followed(self, topic: str, index: int, refusal: KafkaError) -> LedPartition:
        partition_view = self.view.topics[topic].partitions[index]
        if self.node_id not in partition_view.replicas:
            raise refusal
        return LedPartition(self._log_of(partition_view, topic), partition_view)

    def _log_of(self, partition_view: PartitionView, topic: str) -> Partition:
        if self.node_id in partition_view.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        log = self._store.get(topic, partition_view.index)
        if log is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return log


def check_leader_epoch(led: LedPartition, current_leader_epoch: int) -> None:
    """Refuses a client whose leader epoch is older or newer than the current one (KIP-320); -1 is not
    checked.
    """
    if current_leader_epoch >= 0 and current_leader_epoch != led.leader_epoch:
        if current_leader_epoch < led.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)


def check_in_sync(leadership: Leadership, led: LedPartition) -> None:
    """Refuses with NOT_ENOUGH_REPLICAS if the ISR is smaller than `min.insync.replicas`."""
    if not led.has_followers:
        return
    if leadership.replicas is not None:
        leadership.replicas.check_append((led.log.topic, led.log.index))
        return
    replicas = led.view
    if len(replicas.isr) < min(led.log.config.min_insync_replicas, len(replicas.replicas)):
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


def end_offset_for_epoch(led: LedPartition, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest epoch that is not after `epoch`; (-1, -1) when there is none.

    An epoch begins for the leader with its election (KIP-101), in the log with its first record: an epoch
    without records ends at the log end.
    """
    log = led.log
    latest = log.log.leader_epochs.latest
    if latest < epoch <= led.leader_epoch:
        known = epoch if epoch == led.leader_epoch or latest < 0 else latest
        return known, log.log_end_offset
    return log.log.leader_epochs.end_offset_for(epoch, log.log_end_offset)


class LeaderHint(NamedTuple):
    """The current leader for the response; saves the client a Metadata request (KIP-951)."""

    leader_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Codes beside which a response may name the leader."""


def leader_hint(
    leadership: Leadership, topic: str | None, index: int, connection: ConnectionInfo
) -> LeaderHint | None:
    """The leader of a partition in the view; None if there is none or it lacks the client's listener."""
    view = leadership.view
    partition = None if topic is None else view.partition(topic, index)
    broker = None if partition is None else view.brokers.get(partition.leader)
    if partition is None or broker is None:
        return None
    address = address_of(broker, connection, leadership.node_id)
    if address is None:
        return None
    return LeaderHint(broker.node_id, partition.leader_epoch, *address, broker.rack)


def add_endpoint(endpoints: list[Any], node_endpoint: type[Any], hint: LeaderHint) -> None:
    """Adds the hint's broker to a response's `node_endpoints`, once."""
    if all(known.node_id != hint.leader_id for known in endpoints):
        endpoints.append(
            node_endpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
        )
