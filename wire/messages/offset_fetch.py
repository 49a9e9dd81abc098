"""OffsetFetch: how far groups have consumed.

Version 2 can ask for all topics, 8 for several groups at once, 9 says who asks, 10 has topic ids in place
of names.
"""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopics(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    """Name of the topic; from version 10 on the id stands for it."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str | None = on_wire(STRING, since=9, default=None, nullable=ALL, ignorable=True)
    """Id of the asking member, which is checked; null for none."""
    member_epoch: int = on_wire(INT32, since=9, default=-1, ignorable=True)
    """Epoch of the asking member, -1 for none."""
    topics: list[OffsetFetchRequestTopics] | None = on_wire(Array(OffsetFetchRequestTopics), nullable=ALL)
    """Null asks for all offsets of the group."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest(Message, api_key=9, versions=(0, 10), flexible_since=6):
    group_id: str = on_wire(STRING, until=7)
    """Id of the group."""
    topics: list[OffsetFetchRequestTopic] | None = on_wire(
        Array(OffsetFetchRequestTopic), until=7, nullable=2
    )
    """Null asks for all offsets of the group."""
    groups: list[OffsetFetchRequestGroup] = on_wire(Array(OffsetFetchRequestGroup), since=8)
    """Groups to tell of."""
    require_stable: bool = on_wire(BOOL, since=7)
    """Whether to wait for open transactions instead of answering with offsets that they may change."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    committed_offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    committed_leader_epoch: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    metadata: str | None = on_wire(STRING, nullable=ALL)
    """The text that was committed with the offset."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetFetchResponsePartition] = on_wire(Array(OffsetFetchResponsePartition))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartitions(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    committed_offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    committed_leader_epoch: int = on_wire(INT32, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    metadata: str | None = on_wire(STRING, nullable=ALL)
    """The text that was committed with the offset."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopics(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    """Name of the topic; from version 10 on the id stands for it."""
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[OffsetFetchResponsePartitions] = on_wire(Array(OffsetFetchResponsePartitions))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[OffsetFetchResponseTopics] = on_wire(Array(OffsetFetchResponseTopics))
    """One answer for each topic."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse(Message, api_key=9, versions=(0, 10), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    topics: list[OffsetFetchResponseTopic] = on_wire(Array(OffsetFetchResponseTopic), until=7)
    """One answer for each topic."""
    error_code: int = on_wire(INT16, since=2, until=7, ignorable=True)
    """An error of the whole group."""
    groups: list[OffsetFetchResponseGroup] = on_wire(Array(OffsetFetchResponseGroup), since=8)
    """One answer for each group."""
