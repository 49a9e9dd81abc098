"""DescribeLogDirs: what lies in the log directories of a broker, and how big it is."""

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
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest(Message, api_key=35, versions=(0, 5), flexible_since=2):
    topics: list[DescribableLogDirTopic] | None = on_wire(Array(DescribableLogDirTopic), nullable=ALL)
    """Partitions to tell of, null for all."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    partition_size: int = on_wire(INT64)
    """Bytes on disk."""
    offset_lag: int = on_wire(INT64)
    """How far the replica is behind; for a future one, behind the present one."""
    is_future_key: bool = on_wire(BOOL)
    """True for a replica that is being moved here from another directory."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[DescribeLogDirsPartition] = on_wire(Array(DescribeLogDirsPartition))
    """Partitions of the topic."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResult(Struct):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    log_dir: str = on_wire(STRING)
    """Absolute path of the directory."""
    topics: list[DescribeLogDirsTopic] = on_wire(Array(DescribeLogDirsTopic))
    """Topics with their partitions."""
    total_bytes: int = on_wire(INT64, since=4, default=-1, ignorable=True)
    """Size of the volume, -1 if not known."""
    usable_bytes: int = on_wire(INT64, since=4, default=-1, ignorable=True)
    """Space left on the volume, -1 if not known."""
    is_cordoned: bool = on_wire(BOOL, since=5, ignorable=True)
    """Whether the directory takes no new partitions."""


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse(Message, api_key=35, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16, since=3, ignorable=True)
    """0 or the code of the error."""
    results: list[DescribeLogDirsResult] = on_wire(Array(DescribeLogDirsResult))
    """One answer for each log directory."""
