"""OffsetForLeaderEpoch: the end offset of a leader epoch, to find where two logs diverge."""

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


class OffsetForLeaderPartition(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    current_leader_epoch: int = on_wire(INT32, since=2, default=-1, ignorable=True)
    """The client's leader epoch, -1 for none; fences clients and brokers with old metadata."""
    leader_epoch: int = on_wire(INT32)
    """The requested epoch."""


class OffsetForLeaderTopic(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetForLeaderPartition] = on_wire(Array(OffsetForLeaderPartition))
    """Partitions of the request."""


class OffsetForLeaderEpochRequest(Message, api_key=23, versions=(0, 4), flexible_since=4):
    replica_id: int = on_wire(INT32, since=3, default=-2, ignorable=True)
    """Id of the requesting broker, -1 for a consumer."""
    topics: list[OffsetForLeaderTopic] = on_wire(Array(OffsetForLeaderTopic))
    """Topics with the partitions of the request."""


class EpochEndOffset(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    partition: int = on_wire(INT32)
    """Partition number."""
    leader_epoch: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """The requested epoch, or the greatest one before it in the log."""
    end_offset: int = on_wire(INT64, default=-1)
    """Offset after the last record of the epoch, -1 if not known."""


class OffsetForLeaderTopicResult(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[EpochEndOffset] = on_wire(Array(EpochEndOffset))
    """One result for each partition."""


class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[OffsetForLeaderTopicResult] = on_wire(Array(OffsetForLeaderTopicResult))
    """One result for each topic."""
