"""AlterReplicaLogDirs: move replicas between the log directories of a broker."""

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
class AlterReplicaLogDirTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDir(Struct):
    path: str = on_wire(STRING)
    """Absolute path of the directory."""
    topics: list[AlterReplicaLogDirTopic] = on_wire(Array(AlterReplicaLogDirTopic))
    """Topics with the partitions to move into the directory."""


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsRequest(Message, api_key=34, versions=(0, 2), flexible_since=2):
    dirs: list[AlterReplicaLogDir] = on_wire(Array(AlterReplicaLogDir))
    """Log directories with what shall move into them."""


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[AlterReplicaLogDirPartitionResult] = on_wire(Array(AlterReplicaLogDirPartitionResult))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsResponse(Message, api_key=34, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    results: list[AlterReplicaLogDirTopicResult] = on_wire(Array(AlterReplicaLogDirTopicResult))
    """One answer for each item of the request."""
