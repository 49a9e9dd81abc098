"""OffsetForLeaderEpoch (API 23)."""

from dataclasses import dataclass

from odradek.wire.schema import (
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
class OffsetForLeaderPartition(Struct):
    partition: int = on_wire(INT32)
    current_leader_epoch: int = on_wire(INT32, since=2, default=-1, ignorable=True)
    leader_epoch: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic(Struct):
    topic: str = on_wire(STRING)
    partitions: list[OffsetForLeaderPartition] = on_wire(Array(OffsetForLeaderPartition))


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest(Message, api_key=23, versions=(0, 4), flexible_since=4):
    replica_id: int = on_wire(INT32, since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = on_wire(Array(OffsetForLeaderTopic))


@dataclass(slots=True, kw_only=True)
class EpochEndOffset(Struct):
    error_code: int = on_wire(INT16)
    partition: int = on_wire(INT32)
    leader_epoch: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    end_offset: int = on_wire(INT64, default=-1)


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult(Struct):
    topic: str = on_wire(STRING)
    partitions: list[EpochEndOffset] = on_wire(Array(EpochEndOffset))


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = on_wire(Array(OffsetForLeaderTopicResult))
