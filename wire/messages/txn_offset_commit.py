"""TxnOffsetCommit: commit offsets of a group within a transaction."""

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


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    committed_offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    committed_leader_epoch: int = on_wire(INT32, since=2, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    committed_metadata: str | None = on_wire(STRING, nullable=ALL)
    """The metadata text of the commit, for the client."""


class TxnOffsetCommitRequestTopic(Struct):
    name: str = on_wire(STRING, until=5, ignorable=True)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID, since=6, ignorable=True)
    """Id of the topic."""
    partitions: list[TxnOffsetCommitRequestPartition] = on_wire(Array(TxnOffsetCommitRequestPartition))
    """Partitions to commit."""


class TxnOffsetCommitRequest(Message, api_key=28, versions=(0, 6), flexible_since=3):
    transactional_id: str = on_wire(STRING)
    """Transactional id of the producer."""
    group_id: str = on_wire(STRING)
    """Id of the group."""
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT16)
    """Epoch of the producer."""
    generation_id_or_member_epoch: int = on_wire(INT32, since=3, default=-1)
    """The member's generation, or its epoch where the group has epochs; -1 for none."""
    member_id: str = on_wire(STRING, since=3)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    topics: list[TxnOffsetCommitRequestTopic] = on_wire(Array(TxnOffsetCommitRequestTopic))
    """Topics with the partitions to commit."""


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class TxnOffsetCommitResponseTopic(Struct):
    name: str = on_wire(STRING, until=5, ignorable=True)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID, since=6, ignorable=True)
    """Id of the topic."""
    partitions: list[TxnOffsetCommitResponsePartition] = on_wire(Array(TxnOffsetCommitResponsePartition))
    """One result for each partition."""


class TxnOffsetCommitResponse(Message, api_key=28, versions=(0, 6), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[TxnOffsetCommitResponseTopic] = on_wire(Array(TxnOffsetCommitResponseTopic))
    """One result for each topic."""
