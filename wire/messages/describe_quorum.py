"""DescribeQuorum (API 55)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class TopicData(Struct):
    topic_name: str = on_wire(STRING)
    partitions: list[PartitionData] = on_wire(Array(PartitionData))


@dataclass(slots=True, kw_only=True)
class DescribeQuorumRequest(Message, api_key=55, versions=(0, 2), flexible_since=0):
    topics: list[TopicData] = on_wire(Array(TopicData))


@dataclass(slots=True, kw_only=True)
class ReplicaState(Struct):
    replica_id: int = on_wire(INT32)
    replica_directory_id: bytes = on_wire(UUID, since=2)
    log_end_offset: int = on_wire(INT64)
    last_fetch_timestamp: int = on_wire(INT64, since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = on_wire(INT64, since=1, default=-1, ignorable=True)


@dataclass(slots=True, kw_only=True)
class PartitionQuorumData(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, since=2, nullable=ALL, ignorable=True)
    leader_id: int = on_wire(INT32)
    leader_epoch: int = on_wire(INT32)
    high_watermark: int = on_wire(INT64)
    current_voters: list[ReplicaState] = on_wire(Array(ReplicaState))
    observers: list[ReplicaState] = on_wire(Array(ReplicaState))


@dataclass(slots=True, kw_only=True)
class TopicQuorumData(Struct):
    topic_name: str = on_wire(STRING)
    partitions: list[PartitionQuorumData] = on_wire(Array(PartitionQuorumData))


@dataclass(slots=True, kw_only=True)
class Listener(Struct):
    name: str = on_wire(STRING)
    host: str = on_wire(STRING)
    port: int = on_wire(UINT16)


@dataclass(slots=True, kw_only=True)
class Node(Struct):
    node_id: int = on_wire(INT32)
    listeners: list[Listener] = on_wire(Array(Listener))


@dataclass(slots=True, kw_only=True)
class DescribeQuorumResponse(Message, api_key=55, versions=(0, 2), flexible_since=0):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, since=2, nullable=ALL, ignorable=True)
    topics: list[TopicQuorumData] = on_wire(Array(TopicQuorumData))
    nodes: list[Node] = on_wire(Array(Node), since=2)
