"""AlterShareGroupOffsets (API 91)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    start_offset: int = on_wire(INT64)


@dataclass(slots=True, kw_only=True)
class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = on_wire(STRING)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = on_wire(
        Array(AlterShareGroupOffsetsRequestPartition)
    )


@dataclass(slots=True, kw_only=True)
class AlterShareGroupOffsetsRequest(Message, api_key=91, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    topics: list[AlterShareGroupOffsetsRequestTopic] = on_wire(Array(AlterShareGroupOffsetsRequestTopic))


@dataclass(slots=True, kw_only=True)
class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = on_wire(STRING)
    topic_id: bytes = on_wire(UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = on_wire(
        Array(AlterShareGroupOffsetsResponsePartition)
    )


@dataclass(slots=True, kw_only=True)
class AlterShareGroupOffsetsResponse(Message, api_key=91, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    responses: list[AlterShareGroupOffsetsResponseTopic] = on_wire(Array(AlterShareGroupOffsetsResponseTopic))
