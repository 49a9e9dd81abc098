"""WriteTxnMarkers (API 27)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopic(Struct):
    name: str = on_wire(STRING)
    partition_indexes: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class WritableTxnMarker(Struct):
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT16)
    transaction_result: bool = on_wire(BOOL)
    topics: list[WritableTxnMarkerTopic] = on_wire(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = on_wire(INT32)
    transaction_version: int = on_wire(INT8, since=2, ignorable=True)


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersRequest(Message, api_key=27, versions=(0, 2), flexible_since=1):
    markers: list[WritableTxnMarker] = on_wire(Array(WritableTxnMarker))


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerTopicResult(Struct):
    name: str = on_wire(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = on_wire(Array(WritableTxnMarkerPartitionResult))


@dataclass(slots=True, kw_only=True)
class WritableTxnMarkerResult(Struct):
    producer_id: int = on_wire(INT64)
    topics: list[WritableTxnMarkerTopicResult] = on_wire(Array(WritableTxnMarkerTopicResult))


@dataclass(slots=True, kw_only=True)
class WriteTxnMarkersResponse(Message, api_key=27, versions=(0, 2), flexible_since=1):
    markers: list[WritableTxnMarkerResult] = on_wire(Array(WritableTxnMarkerResult))
