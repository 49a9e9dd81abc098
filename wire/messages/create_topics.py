"""CreateTopics (API 19)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
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
class CreatableReplicaAssignment(Struct):
    partition_index: int = on_wire(INT32)
    broker_ids: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfig(Struct):
    name: str = on_wire(STRING)
    value: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class CreatableTopic(Struct):
    name: str = on_wire(STRING)
    num_partitions: int = on_wire(INT32)
    replication_factor: int = on_wire(INT16)
    assignments: list[CreatableReplicaAssignment] = on_wire(Array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = on_wire(Array(CreatableTopicConfig))


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest(Message, api_key=19, versions=(0, 7), flexible_since=5):
    topics: list[CreatableTopic] = on_wire(Array(CreatableTopic))
    timeout_ms: int = on_wire(INT32, default=60000)
    validate_only: bool = on_wire(BOOL, since=1)


@dataclass(slots=True, kw_only=True)
class CreatableTopicConfigs(Struct):
    name: str = on_wire(STRING)
    value: str | None = on_wire(STRING, nullable=ALL)
    read_only: bool = on_wire(BOOL)
    config_source: int = on_wire(INT8, default=-1, ignorable=True)
    is_sensitive: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class CreatableTopicResult(Struct):
    name: str = on_wire(STRING)
    topic_id: bytes = on_wire(UUID, since=7, ignorable=True)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, since=1, nullable=ALL, ignorable=True)
    topic_config_error_code: int = on_wire(INT16, since=5, tag=0, ignorable=True)
    num_partitions: int = on_wire(INT32, since=5, default=-1, ignorable=True)
    replication_factor: int = on_wire(INT16, since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = on_wire(
        Array(CreatableTopicConfigs), since=5, nullable=ALL, ignorable=True
    )


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse(Message, api_key=19, versions=(0, 7), flexible_since=5):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    topics: list[CreatableTopicResult] = on_wire(Array(CreatableTopicResult))
