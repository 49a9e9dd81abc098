"""Records of one decision, and the partitions as they will be once the records are replayed.

A partition may change twice in one decision: a broker that comes back may report a failed directory in the
same heartbeat, a request may name a partition twice. The second change sees the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION, METADATA_VERSION
from odradek.coordinator.cluster.image_topics import changed_partition
from odradek.coordinator.cluster.view import UNASSIGNED, Broker, ClusterView, PartitionView, TopicView
from odradek.coordinator.controller.partition_change import (
    MayLead,
    PartitionChangeBuilder,
    TopicRules,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import MetadataRecord, PartitionChangeRecord

Response = TypeVar("Response", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDefaults:
    """Options of the controller's own file, for topics that neither have their own nor the cluster's."""

    node_id: int
    """The controller's, whose dynamic settings count too."""
    min_insync_replicas: int = 1
    """`min.insync.replicas`"""
    unclean_leader_election: bool = False
    """`unclean.leader.election.enable`"""


class Decision(NamedTuple, Generic[Response]):
    """Records to be appended as one batch, and the response once they are durable."""

    records: list[MetadataRecord]
    response: Response


class Place(NamedTuple):
    """A partition, and its topic."""

    topic: TopicView
    partition: PartitionView


class _Change(NamedTuple):
    """A change of a partition, which few decisions look at again."""

    before: PartitionView
    record: PartitionChangeRecord

    @property
    def after(self) -> PartitionView:
        return changed_partition(self.before, self.record)


class Batch:
    def __init__(self, view: ClusterView, defaults: PartitionDefaults) -> None:
        self.view = view
        self.records: list[MetadataRecord] = []
        self._defaults = defaults
        self._changed: dict[tuple[bytes, int], _Change] = {}
        self._rules: dict[bytes, TopicRules] = {}

    @property
    def metadata_version(self) -> int:
        return self.view.features.get(METADATA_VERSION, 0)

    @property
    def has_elr(self) -> bool:
        """Whether the cluster has eligible leader replicas."""
        return self.view.features.get(ELIGIBLE_LEADERS_VERSION, 0) > 0

    def add(self, record: MetadataRecord) -> None:
        self.records.append(record)

    # Brokers

    def broker(self, broker_id: int, broker_epoch: int) -> Broker:
        """The registration of the sender of a request. Refuses with STALE_BROKER_EPOCH."""
        broker = self.view.registrations.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} is not registered.")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Broker {broker_id} has the epoch {broker.epoch}, not {broker_epoch}.",
            )
        return broker

    def may_lead(self, broker_id: int, directory: bytes) -> bool:
        """Whether a broker is active, and its directory online."""
        broker = self.view.registrations.get(broker_id)
        return broker is not None and broker.is_active and broker.is_online(directory)

    # Partitions

    def partition(self, topic: TopicView, index: int) -> PartitionView | None:
        if not 0 <= index < len(topic.partitions):
            return None
        change = self._changed.get((topic.topic_id, index))
        return topic.partitions[index] if change is None else change.after

    def places(self, is_wanted: Callable[[PartitionView], bool]) -> Iterator[Place]:
        """All partitions that are so. A partition may change before the next one is taken."""
        changed = self._changed
        for topic in self.view.topics.values():
            for partition in topic.partitions:
                if changed and (topic.topic_id, partition.index) in changed:
                    partition = changed[topic.topic_id, partition.index].after
                if is_wanted(partition):
                    yield Place(topic, partition)

    def builder(self, place: Place, may_lead: MayLead | None = None) -> PartitionChangeBuilder:
        """A change of this partition."""
        rules = self.rules(place.topic)
        return PartitionChangeBuilder(
            place.partition, rules, may_lead or self.may_lead, self._default_directory
        )

    def change(self, builder: PartitionChangeBuilder) -> bool:
        """Add the record of the change; whether anything changes."""
        record = builder.build()
        if record is None:
            return False
        self.records.append(record)
        self._changed[record.topic_id, record.partition_id] = _Change(builder.partition, record)
        return True

    def rules(self, topic: TopicView) -> TopicRules:
        rules = self._rules.get(topic.topic_id)
        if rules is None:
            rules = self._rules[topic.topic_id] = TopicRules(
                topic.topic_id,
                min(self._min_insync_replicas(topic), topic.replication_factor),
                self._is_unclean(topic),
                self.has_elr,
                self.metadata_version,
            )
        return rules

    def _min_insync_replicas(self, topic: TopicView) -> int:
        value = self._setting(topic, "min.insync.replicas")
        return self._defaults.min_insync_replicas if value is None else int(value)

    def _is_unclean(self, topic: TopicView) -> bool:
        value = self._setting(topic, "unclean.leader.election.enable")
        return self._defaults.unclean_leader_election if value is None else value.lower() == "true"

    def _setting(self, topic: TopicView, name: str) -> str | None:
        """The topic's own, this controller's dynamic one, or the cluster's; None: there is none."""
        configs = self.view.broker_configs
        owners = (topic.configs, configs.get(self._defaults.node_id), configs.get(None))
        return next((owner[name] for owner in owners if owner and name in owner), None)

    def _default_directory(self, broker_id: int) -> bytes:
        broker = self.view.registrations.get(broker_id)
        return UNASSIGNED if broker is None else broker.default_directory
