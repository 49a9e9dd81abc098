"""DeleteRecords (API 21)."""

from dataclasses import dataclass

from odradek.wire.schema import (
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
class DeleteRecordsPartition(Struct):
    partition_index: int = on_wire(INT32)
    offset: int = on_wire(INT64)


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[DeleteRecordsPartition] = on_wire(Array(DeleteRecordsPartition))


@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest(Message, api_key=21, versions=(0, 2), flexible_since=2):
    topics: list[DeleteRecordsTopic] = on_wire(Array(DeleteRecordsTopic))
    timeout_ms: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class DeleteRecordsPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    low_watermark: int = on_wire(INT64)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class DeleteRecordsTopicResult(Struct):
    name: str = on_wire(STRING)
    partitions: list[DeleteRecordsPartitionResult] = on_wire(Array(DeleteRecordsPartitionResult))


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse(Message, api_key=21, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    topics: list[DeleteRecordsTopicResult] = on_wire(Array(DeleteRecordsTopicResult))
