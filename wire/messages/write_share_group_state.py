"""WriteShareGroupState: a leader has changes of share partitions kept (KIP-932)."""

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


class StateBatch(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    delivery_state: int = on_wire(INT8)
    """0 available, 2 acknowledged, 4 archived."""
    delivery_count: int = on_wire(INT16)
    """How often the records were delivered."""


class PartitionData(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    state_epoch: int = on_wire(INT32)
    """Counts how often the state was initialized or altered."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of the partition's leader."""
    start_offset: int = on_wire(INT64)
    """All records before this offset are done; -1: not known yet."""
    delivery_complete_count: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """Number of records from the start offset on that are acknowledged or archived, -1 if not
    known.
    """
    state_batches: list[StateBatch] = on_wire(Array(StateBatch))
    """States of the records from the start offset on."""


class WriteStateData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions of the topic."""


class WriteShareGroupStateRequest(Message, api_key=85, versions=(0, 1), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topics: list[WriteStateData] = on_wire(Array(WriteStateData))
    """Topics with their partitions."""


class PartitionResult(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class WriteStateResult(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


class WriteShareGroupStateResponse(Message, api_key=85, versions=(0, 1), flexible_since=0):
    results: list[WriteStateResult] = on_wire(Array(WriteStateResult))
    """One result for each topic."""
