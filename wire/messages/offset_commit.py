"""OffsetCommit (API 8)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    committed_offset: int = on_wire(INT64)
    committed_leader_epoch: int = on_wire(INT32, since=6, default=-1, ignorable=True)
    commit_timestamp: int = on_wire(INT64, since=1, until=1, default=-1)
    committed_metadata: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = on_wire(Array(OffsetCommitRequestPartition))


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest(Message, api_key=8, versions=(0, 10), flexible_since=8):
    group_id: str = on_wire(STRING)
    generation_id_or_member_epoch: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = on_wire(STRING, since=1, ignorable=True)
    group_instance_id: str | None = on_wire(STRING, since=7, default=None, nullable=ALL)
    retention_time_ms: int = on_wire(INT64, since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = on_wire(Array(OffsetCommitRequestTopic))


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = on_wire(Array(OffsetCommitResponsePartition))


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse(Message, api_key=8, versions=(0, 10), flexible_since=8):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = on_wire(Array(OffsetCommitResponseTopic))
