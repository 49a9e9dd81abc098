"""StreamsGroupHeartbeat (API 88)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class KeyValue(Struct):
    key: str = on_wire(STRING)
    value: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class TopicInfo(Struct):
    name: str = on_wire(STRING)
    partitions: int = on_wire(INT32)
    replication_factor: int = on_wire(INT16)
    topic_configs: list[KeyValue] = on_wire(Array(KeyValue))


@dataclass(slots=True, kw_only=True)
class CopartitionGroup(Struct):
    source_topics: list[int] = on_wire(Array(INT16))
    source_topic_regex: list[int] = on_wire(Array(INT16))
    repartition_source_topics: list[int] = on_wire(Array(INT16))


@dataclass(slots=True, kw_only=True)
class Subtopology(Struct):
    subtopology_id: str = on_wire(STRING)
    source_topics: list[str] = on_wire(Array(STRING))
    source_topic_regex: list[str] = on_wire(Array(STRING))
    state_changelog_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    repartition_sink_topics: list[str] = on_wire(Array(STRING))
    repartition_source_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    copartition_groups: list[CopartitionGroup] = on_wire(Array(CopartitionGroup))


@dataclass(slots=True, kw_only=True)
class Topology(Struct):
    epoch: int = on_wire(INT32)
    subtopologies: list[Subtopology] = on_wire(Array(Subtopology))


@dataclass(slots=True, kw_only=True)
class TaskIds(Struct):
    subtopology_id: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class Endpoint(Struct):
    host: str = on_wire(STRING)
    port: int = on_wire(UINT16)


@dataclass(slots=True, kw_only=True)
class TaskOffset(Struct):
    subtopology_id: str = on_wire(STRING)
    partition: int = on_wire(INT32)
    offset: int = on_wire(INT64)


@dataclass(slots=True, kw_only=True)
class StreamsGroupHeartbeatRequest(Message, api_key=88, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    member_id: str = on_wire(STRING)
    member_epoch: int = on_wire(INT32)
    endpoint_information_epoch: int = on_wire(INT32)
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    rebalance_timeout_ms: int = on_wire(INT32, default=-1)
    topology: Topology | None = on_wire(Topology, default=None, nullable=ALL)
    active_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    standby_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    warmup_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    process_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    user_endpoint: Endpoint | None = on_wire(Endpoint, default=None, nullable=ALL)
    client_tags: list[KeyValue] | None = on_wire(Array(KeyValue), default=None, nullable=ALL)
    task_offsets: list[TaskOffset] | None = on_wire(Array(TaskOffset), default=None, nullable=ALL)
    task_end_offsets: list[TaskOffset] | None = on_wire(Array(TaskOffset), default=None, nullable=ALL)
    shutdown_application: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class Status(Struct):
    status_code: int = on_wire(INT8)
    status_detail: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class TopicPartition(Struct):
    topic: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = on_wire(Endpoint)
    active_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))
    standby_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))


@dataclass(slots=True, kw_only=True)
class StreamsGroupHeartbeatResponse(Message, api_key=88, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    member_id: str = on_wire(STRING)
    member_epoch: int = on_wire(INT32)
    heartbeat_interval_ms: int = on_wire(INT32)
    acceptable_recovery_lag: int = on_wire(INT32)
    task_offset_interval_ms: int = on_wire(INT32)
    status: list[Status] | None = on_wire(Array(Status), nullable=ALL)
    active_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    standby_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    warmup_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    endpoint_information_epoch: int = on_wire(INT32)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = on_wire(
        Array(EndpointToPartitions), default=None, nullable=ALL
    )
