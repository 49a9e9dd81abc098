"""AlterPartitionReassignments (API 45)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class ReassignablePartition(Struct):
    partition_index: int = on_wire(INT32)
    replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ReassignableTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[ReassignablePartition] = on_wire(Array(ReassignablePartition))


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 1), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    allow_replication_factor_change: bool = on_wire(BOOL, since=1, default=True)
    topics: list[ReassignableTopic] = on_wire(Array(ReassignableTopic))


@dataclass(slots=True, kw_only=True)
class ReassignablePartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ReassignableTopicResponse(Struct):
    name: str = on_wire(STRING)
    partitions: list[ReassignablePartitionResponse] = on_wire(Array(ReassignablePartitionResponse))


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    allow_replication_factor_change: bool = on_wire(BOOL, since=1, default=True, ignorable=True)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    responses: list[ReassignableTopicResponse] = on_wire(Array(ReassignableTopicResponse))
