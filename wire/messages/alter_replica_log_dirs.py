"""AlterReplicaLogDirs (API 34)."""

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
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDir(Struct):
    path: str = on_wire(STRING)
    topics: list[AlterReplicaLogDirTopic] = on_wire(Array(AlterReplicaLogDirTopic))


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsRequest(Message, api_key=34, versions=(0, 2), flexible_since=2):
    dirs: list[AlterReplicaLogDir] = on_wire(Array(AlterReplicaLogDir))


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = on_wire(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = on_wire(Array(AlterReplicaLogDirPartitionResult))


@dataclass(slots=True, kw_only=True)
class AlterReplicaLogDirsResponse(Message, api_key=34, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    results: list[AlterReplicaLogDirTopicResult] = on_wire(Array(AlterReplicaLogDirTopicResult))
