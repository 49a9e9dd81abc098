"""AlterReplicaLogDirs: move replicas between the log directories of a broker."""

from odradek.wire.schema import (
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class AlterReplicaLogDirTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class AlterReplicaLogDir(Struct):
    path: str = on_wire(STRING)
    """Absolute path of the directory."""
    topics: list[AlterReplicaLogDirTopic] = on_wire(Array(AlterReplicaLogDirTopic))
    """Topics with the partitions to move into the directory."""


class AlterReplicaLogDirsRequest(Message, api_key=34, versions=(0, 2), flexible_since=2):
    dirs: list[AlterReplicaLogDir] = on_wire(Array(AlterReplicaLogDir))
    """Target log directories, with the partitions to move."""


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[AlterReplicaLogDirPartitionResult] = on_wire(Array(AlterReplicaLogDirPartitionResult))
    """One result for each partition."""


class AlterReplicaLogDirsResponse(Message, api_key=34, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    results: list[AlterReplicaLogDirTopicResult] = on_wire(Array(AlterReplicaLogDirTopicResult))
    """One result for each item of the request."""
