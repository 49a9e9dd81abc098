"""OffsetCommit: commit offsets of a group.

Version 1 alone has a commit time, 2 to 4 a retention time for the request, 10 topic ids in place of
names.
"""

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


class OffsetCommitRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    committed_offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    committed_leader_epoch: int = on_wire(INT32, since=6, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    commit_timestamp: int = on_wire(INT64, since=1, until=1, default=-1)
    """Time of the commit, for its expiry; only in version 1, -1 means now."""
    committed_metadata: str | None = on_wire(STRING, nullable=ALL)
    """The metadata text of the commit, for the client."""


class OffsetCommitRequestTopic(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    """Name of the topic; from version 10 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[OffsetCommitRequestPartition] = on_wire(Array(OffsetCommitRequestPartition))
    """Partitions to commit."""


class OffsetCommitRequest(Message, api_key=8, versions=(0, 10), flexible_since=8):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    generation_id_or_member_epoch: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """The member's generation or epoch; -1 for a commit without a membership."""
    member_id: str = on_wire(STRING, since=1, ignorable=True)
    """Id of the member; empty for a commit from outside of a group."""
    group_instance_id: str | None = on_wire(STRING, since=7, default=None, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    retention_time_ms: int = on_wire(INT64, since=2, until=4, default=-1, ignorable=True)
    """Retention time of the offsets in ms; -1 for the broker's offsets.retention.minutes."""
    topics: list[OffsetCommitRequestTopic] = on_wire(Array(OffsetCommitRequestTopic))
    """Topics with the partitions to commit."""


class OffsetCommitResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class OffsetCommitResponseTopic(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    """Name of the topic; from version 10 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[OffsetCommitResponsePartition] = on_wire(Array(OffsetCommitResponsePartition))
    """One result for each partition."""


class OffsetCommitResponse(Message, api_key=8, versions=(0, 10), flexible_since=8):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[OffsetCommitResponseTopic] = on_wire(Array(OffsetCommitResponseTopic))
    """One result for each topic."""
