"""TxnOffsetCommit (API 28)."""

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
class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    committed_offset: int = on_wire(INT64)
    committed_leader_epoch: int = on_wire(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = on_wire(Array(TxnOffsetCommitRequestPartition))


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequest(Message, api_key=28, versions=(0, 5), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    group_id: str = on_wire(STRING)
    producer_id: int = on_wire(INT64)
    producer_epoch: int = on_wire(INT16)
    generation_id: int = on_wire(INT32, since=3, default=-1)
    member_id: str = on_wire(STRING, since=3)
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    topics: list[TxnOffsetCommitRequestTopic] = on_wire(Array(TxnOffsetCommitRequestTopic))


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = on_wire(Array(TxnOffsetCommitResponsePartition))


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponse(Message, api_key=28, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = on_wire(Array(TxnOffsetCommitResponseTopic))
