"""Metadata (API 3)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class MetadataRequestTopic(Struct):
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    name: str | None = on_wire(STRING, nullable=10)


@dataclass(slots=True, kw_only=True)
class MetadataRequest(Message, api_key=3, versions=(0, 13), flexible_since=9):
    topics: list[MetadataRequestTopic] | None = on_wire(Array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = on_wire(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = on_wire(BOOL, since=8, until=10)
    include_topic_authorized_operations: bool = on_wire(BOOL, since=8)


@dataclass(slots=True, kw_only=True)
class MetadataResponseBroker(Struct):
    node_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    rack: str | None = on_wire(STRING, since=1, default=None, nullable=ALL, ignorable=True)


@dataclass(slots=True, kw_only=True)
class MetadataResponsePartition(Struct):
    error_code: int = on_wire(INT16)
    partition_index: int = on_wire(INT32)
    leader_id: int = on_wire(INT32)
    leader_epoch: int = on_wire(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = on_wire(Array(INT32))
    isr_nodes: list[int] = on_wire(Array(INT32))
    offline_replicas: list[int] = on_wire(Array(INT32), since=5, ignorable=True)


@dataclass(slots=True, kw_only=True)
class MetadataResponseTopic(Struct):
    error_code: int = on_wire(INT16)
    name: str | None = on_wire(STRING, nullable=12)
    topic_id: bytes = on_wire(UUID, since=10, ignorable=True)
    is_internal: bool = on_wire(BOOL, since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = on_wire(Array(MetadataResponsePartition))
    topic_authorized_operations: int = on_wire(INT32, since=8, default=-(2**31))


@dataclass(slots=True, kw_only=True)
class MetadataResponse(Message, api_key=3, versions=(0, 13), flexible_since=9):
    throttle_time_ms: int = on_wire(INT32, since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = on_wire(Array(MetadataResponseBroker))
    cluster_id: str | None = on_wire(STRING, since=2, default=None, nullable=ALL, ignorable=True)
    controller_id: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = on_wire(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = on_wire(INT32, since=8, until=10, default=-(2**31))
    error_code: int = on_wire(INT16, since=13, ignorable=True)
