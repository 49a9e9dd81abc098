"""DescribeProducers (API 61)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
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
class TopicRequest(Struct):
    name: str = on_wire(STRING)
    partition_indexes: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class DescribeProducersRequest(Message, api_key=61, versions=(0, 0), flexible_since=0):
    topics: list[TopicRequest] = on_wire(Array(TopicRequest))


@dataclass(slots=True, kw_only=True)
class ProducerState(Struct):
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT32)
    last_sequence: int = on_wire(INT32, default=-1)
    last_timestamp: int = on_wire(INT64, default=-1)
    coordinator_epoch: int = on_wire(INT32)
    current_txn_start_offset: int = on_wire(INT64, default=-1)


@dataclass(slots=True, kw_only=True)
class PartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    active_producers: list[ProducerState] = on_wire(Array(ProducerState))


@dataclass(slots=True, kw_only=True)
class TopicResponse(Struct):
    name: str = on_wire(STRING)
    partitions: list[PartitionResponse] = on_wire(Array(PartitionResponse))


@dataclass(slots=True, kw_only=True)
class DescribeProducersResponse(Message, api_key=61, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    topics: list[TopicResponse] = on_wire(Array(TopicResponse))
