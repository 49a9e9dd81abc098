"""Metadata: brokers, topics, partitions and their leaders.

With version 4 a client can forbid auto-creation, 10 adds topic ids, 12 requests by id.
"""

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class MetadataRequestTopic(Struct):
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    name: str | None = on_wire(STRING, nullable=10)
    """Name of the topic; null when the id is given."""


class MetadataRequest(Message, api_key=3, versions=(0, 13), flexible_since=9):
    topics: list[MetadataRequestTopic] | None = on_wire(Array(MetadataRequestTopic), nullable=1)
    """Null requests all topics; an empty list all topics in version 0, later none."""
    allow_auto_topic_creation: bool = on_wire(BOOL, since=4, default=True)
    """Whether the request may create missing topics."""
    include_cluster_authorized_operations: bool = on_wire(BOOL, since=8, until=10)
    """Whether to return the caller's authorised operations on the cluster."""
    include_topic_authorized_operations: bool = on_wire(BOOL, since=8)
    """Whether to return the caller's authorised operations on each topic."""


class MetadataResponseBroker(Struct):
    node_id: int = on_wire(INT32)
    """Id of the broker."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(INT32)
    """Port number."""
    rack: str | None = on_wire(STRING, since=1, default=None, nullable=ALL, ignorable=True)
    """Rack of the broker, null if it has none."""


class MetadataResponsePartition(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    partition_index: int = on_wire(INT32)
    """Partition number."""
    leader_id: int = on_wire(INT32)
    """Broker that leads the partition, -1 for none."""
    leader_epoch: int = on_wire(INT32, since=7, default=-1, ignorable=True)
    """Epoch of the leader, -1 if not known."""
    replica_nodes: list[int] = on_wire(Array(INT32))
    """Brokers with a replica, the preferred leader first."""
    isr_nodes: list[int] = on_wire(Array(INT32))
    """Brokers whose replicas are in sync."""
    offline_replicas: list[int] = on_wire(Array(INT32), since=5, ignorable=True)
    """Brokers whose replicas are not available."""


class MetadataResponseTopic(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    name: str | None = on_wire(STRING, nullable=12)
    """Name of the topic; null for an id that is not known."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    is_internal: bool = on_wire(BOOL, since=1, ignorable=True)
    """Whether it is one of the broker's own topics."""
    partitions: list[MetadataResponsePartition] = on_wire(Array(MetadataResponsePartition))
    """Partitions of the topic."""
    topic_authorized_operations: int = on_wire(INT32, since=8, default=-(2**31))
    """Bit set of the caller's authorised operations on the topic; the lowest int32 if not requested."""


class MetadataResponse(Message, api_key=3, versions=(0, 13), flexible_since=9):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    brokers: list[MetadataResponseBroker] = on_wire(Array(MetadataResponseBroker))
    """Every live broker, with its address of the client's listener."""
    cluster_id: str | None = on_wire(STRING, since=2, default=None, nullable=ALL, ignorable=True)
    """Id of the cluster."""
    controller_id: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """Broker to which administrative requests go."""
    topics: list[MetadataResponseTopic] = on_wire(Array(MetadataResponseTopic))
    """Topics with their partitions."""
    cluster_authorized_operations: int = on_wire(INT32, since=8, until=10, default=-(2**31))
    """Bit set of the caller's authorised operations on the cluster; the lowest int32 if not requested."""
    error_code: int = on_wire(INT16, since=13, ignorable=True)
    """An error of the whole request."""
