"""WriteTxnMarkers: a transaction coordinator ends transactions in the partitions of a broker."""

from odradek.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class WritableTxnMarkerTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class WritableTxnMarker(Struct):
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    transaction_result: bool = on_wire(BOOL)
    """True to commit, false to abort."""
    topics: list[WritableTxnMarkerTopic] = on_wire(Array(WritableTxnMarkerTopic))
    """Topics with the partitions to end the transaction in."""
    coordinator_epoch: int = on_wire(INT32)
    """Epoch of the transaction coordinator."""
    transaction_version: int = on_wire(INT8, since=2, ignorable=True)
    """Transaction version."""


class WriteTxnMarkersRequest(Message, api_key=27, versions=(0, 2), flexible_since=1):
    markers: list[WritableTxnMarker] = on_wire(Array(WritableTxnMarker))
    """Markers to write, or written."""


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class WritableTxnMarkerTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[WritableTxnMarkerPartitionResult] = on_wire(Array(WritableTxnMarkerPartitionResult))
    """One result for each partition."""


class WritableTxnMarkerResult(Struct):
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    topics: list[WritableTxnMarkerTopicResult] = on_wire(Array(WritableTxnMarkerTopicResult))
    """One result for each topic."""


class WriteTxnMarkersResponse(Message, api_key=27, versions=(0, 2), flexible_since=1):
    markers: list[WritableTxnMarkerResult] = on_wire(Array(WritableTxnMarkerResult))
    """Markers to write, or written."""
