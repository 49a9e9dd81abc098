"""OffsetForLeaderEpoch: where a leader epoch ended, to find out where two logs part."""

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
    """Partition number."""
    current_leader_epoch: int = on_wire(INT32, since=2, default=-1, ignorable=True)
    """Leader epoch that the client believes in, -1 for none; fences clients and brokers with old metadata."""
    leader_epoch: int = on_wire(INT32)
    """The epoch whose end is wanted."""


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopic(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetForLeaderPartition] = on_wire(Array(OffsetForLeaderPartition))
    """Partitions to look into."""


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest(Message, api_key=23, versions=(0, 4), flexible_since=4):
    replica_id: int = on_wire(INT32, since=3, default=-2, ignorable=True)
    """Broker that asks, -1 for a consumer."""
    topics: list[OffsetForLeaderTopic] = on_wire(Array(OffsetForLeaderTopic))
    """Topics with the partitions to look into."""


@dataclass(slots=True, kw_only=True)
class EpochEndOffset(Struct):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    partition: int = on_wire(INT32)
    """Partition number."""
    leader_epoch: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """The wanted epoch, or the greatest one before it that the log knows."""
    end_offset: int = on_wire(INT64, default=-1)
    """Offset after the last record of the epoch, -1 if not known."""


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderTopicResult(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[EpochEndOffset] = on_wire(Array(EpochEndOffset))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    topics: list[OffsetForLeaderTopicResult] = on_wire(Array(OffsetForLeaderTopicResult))
    """One answer for each topic."""
