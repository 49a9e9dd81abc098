"""DeleteShareGroupState: a group coordinator has share partitions forgotten (KIP-932)."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class PartitionData(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""


class DeleteStateData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions of the topic."""


class DeleteShareGroupStateRequest(Message, api_key=86, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topics: list[DeleteStateData] = on_wire(Array(DeleteStateData))
    """Topics with their partitions."""


class PartitionResult(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class DeleteStateResult(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


class DeleteShareGroupStateResponse(Message, api_key=86, versions=(0, 0), flexible_since=0):
    results: list[DeleteStateResult] = on_wire(Array(DeleteStateResult))
    """One result for each topic."""
