"""DescribeShareGroupOffsets (API 90)."""

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
class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = on_wire(STRING)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = on_wire(
        Array(DescribeShareGroupOffsetsRequestTopic), nullable=ALL
    )


@dataclass(slots=True, kw_only=True)
class DescribeShareGroupOffsetsRequest(Message, api_key=90, versions=(0, 1), flexible_since=0):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = on_wire(
        Array(DescribeShareGroupOffsetsRequestGroup)
    )


@dataclass(slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    start_offset: int = on_wire(INT64)
    leader_epoch: int = on_wire(INT32)
    lag: int = on_wire(INT64, since=1, default=-1, ignorable=True)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = on_wire(STRING)
    topic_id: bytes = on_wire(UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = on_wire(
        Array(DescribeShareGroupOffsetsResponsePartition)
    )


@dataclass(slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = on_wire(STRING)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = on_wire(
        Array(DescribeShareGroupOffsetsResponseTopic)
    )
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DescribeShareGroupOffsetsResponse(Message, api_key=90, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = on_wire(
        Array(DescribeShareGroupOffsetsResponseGroup)
    )
