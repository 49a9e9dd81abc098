"""DeleteShareGroupState: a group coordinator has share partitions forgotten (KIP-932)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PartitionData(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class DeleteStateData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions of the topic."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class DeleteShareGroupStateRequest(Message, api_key=86, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topics: list[DeleteStateData] = on_wire(Array(DeleteStateData))
    """Topics with their partitions."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class PartitionResult(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class DeleteStateResult(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class DeleteShareGroupStateResponse(Message, api_key=86, versions=(0, 0), flexible_since=0):
    results: list[DeleteStateResult] = on_wire(Array(DeleteStateResult))
    """One result for each topic."""
