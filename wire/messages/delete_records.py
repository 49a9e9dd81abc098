"""DeleteRecords: delete records before an offset."""

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


class DeleteRecordsPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    offset: int = on_wire(INT64)
    """Records before this offset are deleted; -1 means the high watermark."""


class DeleteRecordsTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[DeleteRecordsPartition] = on_wire(Array(DeleteRecordsPartition))
    """Partitions to cut."""


class DeleteRecordsRequest(Message, api_key=21, versions=(0, 2), flexible_since=2):
    topics: list[DeleteRecordsTopic] = on_wire(Array(DeleteRecordsTopic))
    """Topics with the partitions to cut."""
    timeout_ms: int = on_wire(INT32)
    """Time-out of the operation in ms."""


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    low_watermark: int = on_wire(INT64)
    """New log start offset, -1 after an error."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class DeleteRecordsTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[DeleteRecordsPartitionResult] = on_wire(Array(DeleteRecordsPartitionResult))
    """One result for each partition."""


class DeleteRecordsResponse(Message, api_key=21, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[DeleteRecordsTopicResult] = on_wire(Array(DeleteRecordsTopicResult))
    """One result for each topic."""
