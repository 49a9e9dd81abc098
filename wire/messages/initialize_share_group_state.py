"""InitializeShareGroupState: a group coordinator has share partitions begin (KIP-932)."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
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
    state_epoch: int = on_wire(INT32)
    """Counts how often the state was initialized or altered."""
    start_offset: int = on_wire(INT64)
    """All records before this offset are done; -1: not known yet."""


class InitializeStateData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions of the topic."""


class InitializeShareGroupStateRequest(Message, api_key=83, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topics: list[InitializeStateData] = on_wire(Array(InitializeStateData))
    """Topics with their partitions."""


class PartitionResult(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class InitializeStateResult(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


class InitializeShareGroupStateResponse(Message, api_key=83, versions=(0, 0), flexible_since=0):
    results: list[InitializeStateResult] = on_wire(Array(InitializeStateResult))
    """One result for each topic."""
