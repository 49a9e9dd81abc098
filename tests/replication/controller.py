"""The controller of the product, with its log in memory: each decision is durable and replayed at once.

It is one object that nothing befalls; the way to it is unreliable.
"""

from dataclasses import dataclass

from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION, METADATA_VERSION
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import RECOVERING, PartitionView
from odradek.coordinator.controller.batch import PartitionDefaults
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.coordinator.controller.brokers import fence_expired, heartbeat, register_broker
from odradek.coordinator.controller.elections import elect_leaders, elect_unclean_leaders
from odradek.coordinator.controller.in_sync import alter_partition
from odradek.coordinator.controller.reassignment import alter_reassignments
from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.coordinator.replication.values import NO_LEADER, BrokerState
from odradek.wire.errors import ErrorCode, KafkaError, error_of
from odradek.wire.messages import alter_partition as altering
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

SESSION_MS = 900
NODE_ID = 100
CLUSTER = "cluster"
LEVEL = 33
FEATURES = [
    Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=LEVEL),
    Feature(name=ELIGIBLE_LEADERS_VERSION, min_supported_version=0, max_supported_version=1),
]
LISTENERS = [Listener(name="OUT", host="h", port=9092, security_protocol=0)]


def topic_id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"-")


@dataclass(frozen=True)
class Image:
    version: int
    brokers: dict[int, BrokerState]
    partitions: dict[tuple[str, int], PartitionView]


class Controller:
    """`world` hears of elections (`elected`), of each change (`changed`), and of who is `fenced` for its
    silence, and has the time.

    The brokers have been registered in former lives, which were shut down in order.
    """

    def __init__(self, world, assignment: dict[tuple[str, int], list[int]], **settings) -> None:
        self.world = world
        self.sessions = BrokerSessions(SESSION_MS)
        self.heard_ms: dict[int, float] = {}
        """When each broker was heard of last, in the life that is registered."""
        self.metadata = MetadataImage(NODE_ID, CLUSTER)
        self.partitions: dict[tuple[str, int], PartitionView] = {}
        self.image = Image(-1, {}, {})
        self.append([FeatureLevelRecord(name=METADATA_VERSION, feature_level=LEVEL)])
        self.configure(**settings)
        for broker_id in sorted({one for replicas in assignment.values() for one in replicas}):
            former = RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=bytes(16),
                broker_epoch=self.version + 1,
                end_points=[],
                features=[],
                rack=None,
            )
            self.append([former])
        for name in sorted({name for name, _ in assignment}):
            self.append([TopicRecord(name=name, topic_id=topic_id_of(name))])
        for (name, index), replicas in assignment.items():
            record = PartitionRecord(
                partition_id=index,
                topic_id=topic_id_of(name),
                replicas=replicas,
                isr=replicas,
                leader=NO_LEADER,
                leader_epoch=0,
                partition_epoch=0,
            )
            self.append([record])

    def configure(self, *, min_isr: int, has_elr: bool, is_unclean: bool) -> None:
        self.is_unclean = is_unclean
        self.defaults = PartitionDefaults(
            node_id=NODE_ID, min_insync_replicas=min_isr, unclean_leader_election=is_unclean
        )
        self.append([FeatureLevelRecord(name=ELIGIBLE_LEADERS_VERSION, feature_level=int(has_elr))])

    @property
    def view(self):
        return self.metadata.view

    @property
    def version(self) -> int:
        """Offset of the last record."""
        return self.metadata.offset

    @property
    def brokers(self):
        return self.view.registrations

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def append(self, records) -> None:
        if not records:
            return
        for record in records:
            self.metadata.replay(record)
        self.metadata.end_batch(self.version + len(records))
        published = self.metadata.publish()
        changed = [] if published is None else published.change.changed
        for topic, _, after in changed:
            self.partitions[topic.name, after.index] = after
        for topic, before, after in changed:
            if before is not None:
                self._tell((topic.name, after.index), before, after)
        brokers = {
            broker_id: BrokerState(broker.epoch, broker.is_fenced, broker.in_controlled_shutdown)
            for broker_id, broker in self.brokers.items()
        }
        self.image = Image(self.version, brokers, dict(self.partitions))
        self.world.published()

    def _tell(self, key, before: PartitionView, after: PartitionView) -> None:
        if after.leader not in (before.leader, NO_LEADER):
            members = {*before.isr, *before.elr}
            # Who has come into the ISR and leads at once, by the end of a reassignment, has everything.
            is_unclean = after.leader not in members and after.leader_recovery_state == RECOVERING
            self.world.elected(key, after.leader, after.leader_epoch, is_unclean, members)
        self.world.changed(key, set(after.isr) - set(before.isr))

    # Brokers

    def register(self, broker_id: int, incarnation: bytes, previous_epoch: int) -> int | None:
        """The broker epoch; None while a former life has its session."""
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=incarnation,
            listeners=LISTENERS,
            features=FEATURES,
            rack=None,
            log_dirs=[(1_000 + broker_id).to_bytes(16, "big")],
            previous_broker_epoch=previous_epoch,
        )
        place = (self.view, self.defaults, self.sessions, request, self.version + 1, self.world.now_ms)
        try:
            decision = register_broker(*place)
        except KafkaError as error:
            if error.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise
            return None
        if decision.response.broker_epoch != self.brokers[broker_id].epoch:
            self.heard_ms.pop(broker_id, None)
        self.append(decision.records)
        return decision.response.broker_epoch

    def heartbeat(self, broker_id: int, epoch: int, offset: int, wants_shutdown: bool):
        """(may stop, is fenced), or None: another life of the broker has registered."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=offset,
            want_fence=False,
            want_shut_down=wants_shutdown,
        )
        try:
            found = heartbeat(self.view, self.defaults, self.sessions, request, self.world.now_ms)
        except KafkaError as error:
            if error.code is not ErrorCode.STALE_BROKER_EPOCH:
                raise
            return None
        self.heard_ms[broker_id] = self.world.now_ms
        self.append(found.records)
        if found.shutting_down is not None:
            self.sessions.begin_shutdown(found.shutting_down, self.version)
        return found.response.should_shut_down, found.response.is_fenced

    def tick(self) -> None:
        """Sessions, and every time the elections that nothing else brings about."""
        before = [one for one, broker in self.brokers.items() if not broker.is_fenced]
        self.append(fence_expired(self.view, self.defaults, self.sessions, self.world.now_ms))
        for broker_id in before:
            if self.brokers[broker_id].is_fenced:
                self.world.fenced(broker_id, self.world.now_ms - self.heard_ms[broker_id])
        self.append(elect_unclean_leaders(self.view, self.defaults).records)

    # Partitions

    def prefer(self, key) -> None:
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=key[0], partitions=[key[1]])]
        )
        self.append(elect_leaders(self.view, self.defaults, request).records)

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: tuple[AlterIsr, ...]):
        """Answers by partition, or an error for all of it."""
        topics = [
            altering.TopicData(
                topic_id=topic_id_of(change.key[0]),
                partitions=[
                    altering.PartitionData(
                        partition_index=change.key[1],
                        leader_epoch=change.leader_epoch,
                        new_isr_with_epochs=[
                            altering.BrokerState(broker_id=one, broker_epoch=epoch)
                            for one, epoch in change.new_isr
                        ],
                        partition_epoch=change.partition_epoch,
                    )
                ],
            )
            for change in changes
        ]
        request = altering.AlterPartitionRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, topics=topics
        )
        try:
            decision = alter_partition(self.view, self.defaults, request)
        except KafkaError as error:
            return error.code
        self.append(decision.records)
        found = [topic.partitions[0] for topic in decision.response.topics]
        return {change.key: _altered(one) for change, one in zip(changes, found, strict=True)}

    def reassign(self, key, replicas: list[int] | None) -> None:
        """Begin or replace a reassignment; None: cancel it."""
        wanted = ReassignablePartition(partition_index=key[1], replicas=replicas)
        topics = [ReassignableTopic(name=key[0], partitions=[wanted])]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        self.append(alter_reassignments(self.view, self.defaults, request).records)

    def begin_epoch(self, key, leader: int | None = None) -> None:
        """The same leader once more, or another one that is in sync."""
        partition = self.partitions[key]
        leader = partition.leader if leader is None else leader
        if leader != NO_LEADER:
            self.append(
                [PartitionChangeRecord(partition_id=key[1], topic_id=topic_id_of(key[0]), leader=leader)]
            )


def _altered(one: altering.AlteredPartition) -> AlteredIsr | ErrorCode:
    if one.error_code:
        return error_of(one.error_code)
    return AlteredIsr(one.leader_epoch, one.partition_epoch, tuple(one.isr))
