"""OffsetDelete (API 47)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[OffsetDeleteRequestPartition] = on_wire(Array(OffsetDeleteRequestPartition))


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest(Message, api_key=47, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    topics: list[OffsetDeleteRequestTopic] = on_wire(Array(OffsetDeleteRequestTopic))


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponseTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[OffsetDeleteResponsePartition] = on_wire(Array(OffsetDeleteResponsePartition))


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse(Message, api_key=47, versions=(0, 0)):
    error_code: int = on_wire(INT16)
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = on_wire(Array(OffsetDeleteResponseTopic))
