"""DescribeLogDirs: the partitions in the log directories of a broker, with their sizes."""

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


class DescribableLogDirTopic(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class DescribeLogDirsRequest(Message, api_key=35, versions=(0, 5), flexible_since=2):
    topics: list[DescribableLogDirTopic] | None = on_wire(Array(DescribableLogDirTopic), nullable=ALL)
    """Partitions to describe, null for all."""


class DescribeLogDirsPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    partition_size: int = on_wire(INT64)
    """Bytes on disk."""
    offset_lag: int = on_wire(INT64)
    """Lag of the replica in offsets; of a future replica, behind the current one."""
    is_future_key: bool = on_wire(BOOL)
    """True for a replica that is being moved here from another directory."""


class DescribeLogDirsTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[DescribeLogDirsPartition] = on_wire(Array(DescribeLogDirsPartition))
    """Partitions of the topic."""


class DescribeLogDirsResult(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
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


class DescribeLogDirsResponse(Message, api_key=35, versions=(0, 5), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16, since=3, ignorable=True)
    """Error code, 0 for none."""
    results: list[DescribeLogDirsResult] = on_wire(Array(DescribeLogDirsResult))
    """One result for each log directory."""
