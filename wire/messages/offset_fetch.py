"""OffsetFetch: the committed offsets of groups.

Version 2 can request all topics, 8 several groups at once, 9 has the member, 10 has topic ids in place
of names.
"""

from odradek.wire.schema import (
    ALL,
    BOOL,
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


class OffsetFetchRequestTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class OffsetFetchRequestTopics(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    """Name of the topic; from version 10 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class OffsetFetchRequestGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str | None = on_wire(STRING, since=9, default=None, nullable=ALL, ignorable=True)
    """Id of the requesting member, which is checked; null for none."""
    member_epoch: int = on_wire(INT32, since=9, default=-1, ignorable=True)
    """Epoch of the requesting member, -1 for none."""
    topics: list[OffsetFetchRequestTopics] | None = on_wire(Array(OffsetFetchRequestTopics), nullable=ALL)
    """Null requests all offsets of the group."""


class OffsetFetchRequest(Message, api_key=9, versions=(0, 10), flexible_since=6):
    group_id: str = on_wire(STRING, until=7)
    """Id of the group."""
    topics: list[OffsetFetchRequestTopic] | None = on_wire(
        Array(OffsetFetchRequestTopic), until=7, nullable=2
    )
    """Null requests all offsets of the group."""
    groups: list[OffsetFetchRequestGroup] = on_wire(Array(OffsetFetchRequestGroup), since=8)
    """Groups to describe."""
    require_stable: bool = on_wire(BOOL, since=7)
    """Whether to refuse offsets of open transactions, which may change them."""


class OffsetFetchResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    committed_offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    committed_leader_epoch: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    metadata: str | None = on_wire(STRING, nullable=ALL)
    """The metadata text of the commit."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class OffsetFetchResponseTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetFetchResponsePartition] = on_wire(Array(OffsetFetchResponsePartition))
    """One result for each partition."""


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    committed_offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    committed_leader_epoch: int = on_wire(INT32, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    metadata: str | None = on_wire(STRING, nullable=ALL)
    """The metadata text of the commit."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class OffsetFetchResponseTopics(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    """Name of the topic; from version 10 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[OffsetFetchResponsePartitions] = on_wire(Array(OffsetFetchResponsePartitions))
    """One result for each partition."""


class OffsetFetchResponseGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[OffsetFetchResponseTopics] = on_wire(Array(OffsetFetchResponseTopics))
    """One result for each topic."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class OffsetFetchResponse(Message, api_key=9, versions=(0, 10), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[OffsetFetchResponseTopic] = on_wire(Array(OffsetFetchResponseTopic), until=7)
    """One result for each topic."""
    error_code: int = on_wire(INT16, since=2, until=7, ignorable=True)
    """An error of the whole group."""
    groups: list[OffsetFetchResponseGroup] = on_wire(Array(OffsetFetchResponseGroup), since=8)
    """One result for each group."""
