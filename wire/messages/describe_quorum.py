"""DescribeQuorum: leader, voters and observers of the metadata quorum."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""


class TopicData(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions to describe."""


class DescribeQuorumRequest(Message, api_key=55, versions=(0, 2), flexible_since=0):
    topics: list[TopicData] = on_wire(Array(TopicData))
    """Topics with the partitions to describe."""


class ReplicaState(Struct):
    replica_id: int = on_wire(INT32)
    """Id of the requesting broker, -1 for a consumer."""
    replica_directory_id: bytes = on_wire(UUID, since=2)
    """Id of the log directory of the replica."""
    log_end_offset: int = on_wire(INT64)
    """Offset after the last record that the replica has."""
    last_fetch_timestamp: int = on_wire(INT64, since=1, default=-1, ignorable=True)
    """Time of the replica's last fetch, -1 if not known."""
    last_caught_up_timestamp: int = on_wire(INT64, since=1, default=-1, ignorable=True)
    """Time at which the replica had last caught up, -1 if not known."""


class PartitionQuorumData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=2, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""
    leader_id: int = on_wire(INT32)
    """Broker that leads, -1 for none."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of the leader, -1 if not known."""
    high_watermark: int = on_wire(INT64)
    """Offset after the last record that all in-sync replicas have."""
    current_voters: list[ReplicaState] = on_wire(Array(ReplicaState))
    """State of each voter."""
    observers: list[ReplicaState] = on_wire(Array(ReplicaState))
    """State of each replica that does not vote."""


class TopicQuorumData(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[PartitionQuorumData] = on_wire(Array(PartitionQuorumData))
    """Partitions of the topic."""


class Listener(Struct):
    name: str = on_wire(STRING)
    """Name of the listener."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


class Node(Struct):
    node_id: int = on_wire(INT32)
    """Id of the broker."""
    listeners: list[Listener] = on_wire(Array(Listener))
    """Addresses of the node."""


class DescribeQuorumResponse(Message, api_key=55, versions=(0, 2), flexible_since=0):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=2, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""
    topics: list[TopicQuorumData] = on_wire(Array(TopicQuorumData))
    """Topics with their partitions."""
    nodes: list[Node] = on_wire(Array(Node), since=2)
    """Nodes of the quorum, with their addresses."""
