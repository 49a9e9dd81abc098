"""ReadShareGroupStateSummary: what is kept of share partitions, without the batches (KIP-932)."""

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
    leader_epoch: int = on_wire(INT32)
    """Epoch of the partition's leader."""


class ReadStateSummaryData(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """Partitions of the topic."""


class ReadShareGroupStateSummaryRequest(Message, api_key=87, versions=(0, 1), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the share group."""
    topics: list[ReadStateSummaryData] = on_wire(Array(ReadStateSummaryData))
    """Topics with their partitions."""


class PartitionResult(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
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


class ReadStateSummaryResult(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    partitions: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


class ReadShareGroupStateSummaryResponse(Message, api_key=87, versions=(0, 1), flexible_since=0):
    results: list[ReadStateSummaryResult] = on_wire(Array(ReadStateSummaryResult))
    """One result for each topic."""
