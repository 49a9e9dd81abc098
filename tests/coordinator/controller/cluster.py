"""A cluster as a controller has it: an image, and decisions whose records are replayed at once."""

from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION, METADATA_VERSION
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.view import PartitionView
from odradek.coordinator.controller.batch import Batch, PartitionDefaults
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.coordinator.controller.brokers import heartbeat, register_broker
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from odradek.wire.messages.metadata_records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

NODE_ID = 100
LEVEL = 33
SESSION_MS = 9_000
T = b"t" * 16


def disk(node_id: int, number: int = 0) -> bytes:
    """Id of a log directory."""
    return (1_000 + 10 * node_id + number).to_bytes(16, "big")


class Cluster:
    """Brokers with one directory each, which are not fenced."""

    def __init__(self, *broker_ids: int, level: int = LEVEL, has_elr: bool = True, **defaults) -> None:
        self.image = MetadataImage(NODE_ID, "cluster")
        self.sessions = BrokerSessions(SESSION_MS)
        self.defaults = PartitionDefaults(node_id=NODE_ID, **defaults)
        self.now_ms = 0
        self.append(
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=level),
            FeatureLevelRecord(name=ELIGIBLE_LEADERS_VERSION, feature_level=int(has_elr)),
        )
        for broker_id in broker_ids:
            self.add_broker(broker_id)
        self.sessions.begin(self.view.registrations.values(), 0)

    # The metadata

    @property
    def view(self):
        return self.image.view

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def append(self, *records):
        """Replays the records, which are one batch; they come back."""
        for record in records:
            self.image.replay(record)
        self.image.end_batch(self.image.offset + len(records))
        self.image.publish()
        return list(records)

    def batch(self) -> Batch:
        return Batch(self.view, self.defaults)

    def add_broker(self, node_id: int, **fields) -> None:
        fields = {"fenced": False, "log_dirs": [disk(node_id)], **fields}
        record = RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=node_id.to_bytes(16, "big"),
            broker_epoch=self.next_offset,
            end_points=[],
            features=[],
            rack=None,
            **fields,
        )
        self.append(record)

    def broker(self, node_id: int):
        return self.view.registrations[node_id]

    def add_topic(self, *partitions: dict, name: str = "t", topic_id: bytes = T, **configs: str) -> None:
        """Each partition as the fields of its record; all brokers of the ISR are in sync at first."""
        self.append(TopicRecord(name=name, topic_id=topic_id))
        for index, fields in enumerate(partitions):
            replicas = fields["replicas"]
            isr = fields.get("isr", replicas)
            whole = {
                "isr": isr,
                "leader": isr[0] if isr else -1,
                "leader_epoch": 5,
                "partition_epoch": 50,
                "directories": [disk(one) for one in replicas],
                **fields,
            }
            self.append(PartitionRecord(partition_id=index, topic_id=topic_id, **whole))
        for key, value in configs.items():
            self.configure(TOPIC_RESOURCE, name, key.replace("_", "."), value)

    def configure(self, kind: int, owner: str, name: str, value: str) -> None:
        self.append(ConfigRecord(resource_type=kind, resource_name=owner, name=name, value=value))

    def configure_brokers(self, name: str, value: str, owner: str = "") -> None:
        self.configure(BROKER_RESOURCE, owner, name, value)

    def partition(self, index: int = 0, name: str = "t") -> PartitionView:
        return self.view.topics[name].partitions[index]

    # Brokers

    def register(self, node_id: int, **fields):
        """The decision, which is carried out."""
        decision = register_broker(
            self.view,
            self.defaults,
            self.sessions,
            registration(node_id, **fields),
            self.next_offset,
            self.now_ms,
        )
        self.append(*decision.records)
        return decision

    def beat(self, node_id: int, **fields):
        """The decision about a heartbeat, which is carried out."""
        fields = {
            "broker_epoch": self.broker(node_id).epoch,
            "current_metadata_offset": self.image.offset,
            "want_fence": False,
            "want_shut_down": False,
            **fields,
        }
        request = BrokerHeartbeatRequest(broker_id=node_id, **fields)
        decision = heartbeat(self.view, self.defaults, self.sessions, request, self.now_ms)
        self.append(*decision.records)
        if decision.shutting_down is not None:
            self.sessions.begin_shutdown(decision.shutting_down, self.image.offset)
        return decision


def registration(node_id: int, **fields) -> BrokerRegistrationRequest:
    whole = {
        "cluster_id": "cluster",
        "incarnation_id": b"new".ljust(16, b"."),
        "listeners": [Listener(name="OUT", host="h", port=9092, security_protocol=0)],
        "features": [feature(METADATA_VERSION, 7, LEVEL), feature(ELIGIBLE_LEADERS_VERSION, 0, 1)],
        "rack": "r",
        "log_dirs": [disk(node_id)],
        **fields,
    }
    return BrokerRegistrationRequest(broker_id=node_id, **whole)


def feature(name: str, lowest: int, highest: int) -> Feature:
    return Feature(name=name, min_supported_version=lowest, max_supported_version=highest)


def said(record) -> dict:
    """The fields of a record that are not as they are without a change."""
    plain = type(record)(
        **{
            name: getattr(record, name)
            for name in ("partition_id", "topic_id", "broker_id", "broker_epoch")
            if hasattr(record, name)
        }
    )
    return {
        name: getattr(record, name)
        for name in type(record).__dataclass_fields__
        if getattr(record, name) != getattr(plain, name)
    }
