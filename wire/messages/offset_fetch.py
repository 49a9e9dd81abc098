"""OffsetFetch (API 9)."""

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
    partition_indexes: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestTopics(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    partition_indexes: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequestGroup(Struct):
    group_id: str = on_wire(STRING)
    member_id: str | None = on_wire(STRING, since=9, default=None, nullable=ALL, ignorable=True)
    member_epoch: int = on_wire(INT32, since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = on_wire(Array(OffsetFetchRequestTopics), nullable=ALL)


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest(Message, api_key=9, versions=(0, 10), flexible_since=6):
    group_id: str = on_wire(STRING, until=7)
    topics: list[OffsetFetchRequestTopic] | None = on_wire(
        Array(OffsetFetchRequestTopic), until=7, nullable=2
    )
    groups: list[OffsetFetchRequestGroup] = on_wire(Array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = on_wire(BOOL, since=7)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    committed_offset: int = on_wire(INT64)
    committed_leader_epoch: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    metadata: str | None = on_wire(STRING, nullable=ALL)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopic(Struct):
    name: str = on_wire(STRING)
    partitions: list[OffsetFetchResponsePartition] = on_wire(Array(OffsetFetchResponsePartition))


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponsePartitions(Struct):
    partition_index: int = on_wire(INT32)
    committed_offset: int = on_wire(INT64)
    committed_leader_epoch: int = on_wire(INT32, default=-1, ignorable=True)
    metadata: str | None = on_wire(STRING, nullable=ALL)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseTopics(Struct):
    name: str = on_wire(STRING, until=9, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = on_wire(Array(OffsetFetchResponsePartitions))


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponseGroup(Struct):
    group_id: str = on_wire(STRING)
    topics: list[OffsetFetchResponseTopics] = on_wire(Array(OffsetFetchResponseTopics))
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse(Message, api_key=9, versions=(0, 10), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = on_wire(Array(OffsetFetchResponseTopic), until=7)
    error_code: int = on_wire(INT16, since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = on_wire(Array(OffsetFetchResponseGroup), since=8)
