"""Produce (API 0)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    Message,
    Records,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class PartitionProduceData(Struct):
    index: int = on_wire(INT32)
    records: Records | None = on_wire(RECORDS, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class TopicProduceData(Struct):
    name: str = on_wire(STRING, until=12, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = on_wire(Array(PartitionProduceData))


@dataclass(slots=True, kw_only=True)
class ProduceRequest(Message, api_key=0, versions=(0, 13), flexible_since=9):
    transactional_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    acks: int = on_wire(INT16)
    timeout_ms: int = on_wire(INT32)
    topic_data: list[TopicProduceData] = on_wire(Array(TopicProduceData))


@dataclass(slots=True, kw_only=True)
class BatchIndexAndErrorMessage(Struct):
    batch_index: int = on_wire(INT32)
    batch_index_error_message: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32, default=-1)
    leader_epoch: int = on_wire(INT32, default=-1)


@dataclass(slots=True, kw_only=True)
class PartitionProduceResponse(Struct):
    index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    base_offset: int = on_wire(INT64)
    log_append_time_ms: int = on_wire(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = on_wire(
        Array(BatchIndexAndErrorMessage), since=8, ignorable=True
    )
    error_message: str | None = on_wire(STRING, since=8, default=None, nullable=ALL, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = on_wire(LeaderIdAndEpoch, since=10, tag=0)


@dataclass(slots=True, kw_only=True)
class TopicProduceResponse(Struct):
    name: str = on_wire(STRING, until=12, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = on_wire(Array(PartitionProduceResponse))


@dataclass(slots=True, kw_only=True)
class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ProduceResponse(Message, api_key=0, versions=(0, 13), flexible_since=9):
    responses: list[TopicProduceResponse] = on_wire(Array(TopicProduceResponse))
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint), since=10, tag=0)
