"""DescribeTopicPartitions (API 75)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class TopicRequest(Struct):
    name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class Cursor(Struct):
    topic_name: str = on_wire(STRING)
    partition_index: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsRequest(Message, api_key=75, versions=(0, 0), flexible_since=0):
    topics: list[TopicRequest] = on_wire(Array(TopicRequest))
    response_partition_limit: int = on_wire(INT32, default=2000)
    cursor: Cursor | None = on_wire(Cursor, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = on_wire(INT16)
    partition_index: int = on_wire(INT32)
    leader_id: int = on_wire(INT32)
    leader_epoch: int = on_wire(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = on_wire(Array(INT32))
    isr_nodes: list[int] = on_wire(Array(INT32))
    eligible_leader_replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)
    last_known_elr: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)
    offline_replicas: list[int] = on_wire(Array(INT32), ignorable=True)


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = on_wire(INT16)
    name: str | None = on_wire(STRING, nullable=ALL)
    topic_id: bytes = on_wire(UUID, ignorable=True)
    is_internal: bool = on_wire(BOOL, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = on_wire(
        Array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = on_wire(INT32, default=-(2**31))


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponse(Message, api_key=75, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = on_wire(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = on_wire(Cursor, default=None, nullable=ALL)
