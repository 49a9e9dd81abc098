"""ReadShareGroupState: a leader asks what is kept of share partitions (KIP-932)."""

from odradek.wire.schema import (
    ALL,
    INT8,
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
    leader_epoch: int = on_wire(INT32)
    """Epoch of the partition's leader."""


class ReadStateData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions of the topic."""


class ReadShareGroupStateRequest(Message, api_key=84, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topics: list[ReadStateData] = on_wire(Array(ReadStateData))
    """Topics with their partitions."""


class StateBatch(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    delivery_state: int = on_wire(INT8)
    """0 available, 2 acknowledged, 4 archived."""
    delivery_count: int = on_wire(INT16)
    """How often the records were delivered."""


class PartitionResult(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    state_epoch: int = on_wire(INT32)
    """Counts how often the state was initialized or altered."""
    start_offset: int = on_wire(INT64)
    """All records before this offset are done; -1: not known yet."""
    state_batches: list[StateBatch] = on_wire(Array(StateBatch))
    """States of the records from the start offset on."""


class ReadStateResult(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


class ReadShareGroupStateResponse(Message, api_key=84, versions=(0, 0), flexible_since=0):
    results: list[ReadStateResult] = on_wire(Array(ReadStateResult))
    """One result for each topic."""
