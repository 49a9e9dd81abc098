"""DescribeLogDirs (API 35)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
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
class DescribableLogDirTopic(Struct):
    topic: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest(Message, api_key=35, versions=(0, 5), flexible_since=2):
    topics: list[DescribableLogDirTopic] | None = on_wire(Array(DescribableLogDirTopic), nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsPartition(Struct):
    partition_index: int = on_wire(INT32)
    partition_size: int = on_wire(INT64)
    offset_lag: int = on_wire(INT64)
    is_future_key: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[DescribeLogDirsPartition] = on_wire(Array(DescribeLogDirsPartition))


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResult(Struct):
    error_code: int = on_wire(INT16)
    log_dir: str = on_wire(STRING)
    topics: list[DescribeLogDirsTopic] = on_wire(Array(DescribeLogDirsTopic))
    total_bytes: int = on_wire(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = on_wire(INT64, since=4, default=-1, ignorable=True)
    is_cordoned: bool = on_wire(BOOL, since=5, ignorable=True)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse(Message, api_key=35, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16, since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = on_wire(Array(DescribeLogDirsResult))
