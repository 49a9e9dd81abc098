"""ListOffsets (API 2)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartition(Struct):
    partition_index: int = on_wire(INT32)
    current_leader_epoch: int = on_wire(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = on_wire(INT64)
    max_num_offsets: int = on_wire(INT32, until=0, default=1)


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[ListOffsetsPartition] = on_wire(Array(ListOffsetsPartition))


@dataclass(slots=True, kw_only=True)
class ListOffsetsRequest(Message, api_key=2, versions=(0, 11), flexible_since=6):
    replica_id: int = on_wire(INT32)
    isolation_level: int = on_wire(INT8, since=2)
    topics: list[ListOffsetsTopic] = on_wire(Array(ListOffsetsTopic))
    timeout_ms: int = on_wire(INT32, since=10, ignorable=True)


@dataclass(slots=True, kw_only=True)
class ListOffsetsPartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    old_style_offsets: list[int] = on_wire(Array(INT64), until=0)
    timestamp: int = on_wire(INT64, since=1, default=-1)
    offset: int = on_wire(INT64, since=1, default=-1)
    leader_epoch: int = on_wire(INT32, since=4, default=-1)


@dataclass(slots=True, kw_only=True)
class ListOffsetsTopicResponse(Struct):
    name: str = on_wire(STRING)
    partitions: list[ListOffsetsPartitionResponse] = on_wire(Array(ListOffsetsPartitionResponse))


@dataclass(slots=True, kw_only=True)
class ListOffsetsResponse(Message, api_key=2, versions=(0, 11), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = on_wire(Array(ListOffsetsTopicResponse))
