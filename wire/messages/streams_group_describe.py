"""StreamsGroupDescribe (API 89)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
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
class StreamsGroupDescribeRequest(Message, api_key=89, versions=(0, 0), flexible_since=0):
    group_ids: list[str] = on_wire(Array(STRING))
    include_authorized_operations: bool = on_wire(BOOL)


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
class Subtopology(Struct):
    subtopology_id: str = on_wire(STRING)
    source_topics: list[str] = on_wire(Array(STRING))
    repartition_sink_topics: list[str] = on_wire(Array(STRING))
    state_changelog_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    repartition_source_topics: list[TopicInfo] = on_wire(Array(TopicInfo))


@dataclass(slots=True, kw_only=True)
class Topology(Struct):
    epoch: int = on_wire(INT32)
    subtopologies: list[Subtopology] | None = on_wire(Array(Subtopology), default=None, nullable=ALL)


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
class TaskIds(Struct):
    subtopology_id: str = on_wire(STRING)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class Assignment(Struct):
    active_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    standby_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    warmup_tasks: list[TaskIds] = on_wire(Array(TaskIds))


@dataclass(slots=True, kw_only=True)
class Member(Struct):
    member_id: str = on_wire(STRING)
    member_epoch: int = on_wire(INT32)
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    client_id: str = on_wire(STRING)
    client_host: str = on_wire(STRING)
    topology_epoch: int = on_wire(INT32)
    process_id: str = on_wire(STRING)
    user_endpoint: Endpoint | None = on_wire(Endpoint, default=None, nullable=ALL)
    client_tags: list[KeyValue] = on_wire(Array(KeyValue))
    task_offsets: list[TaskOffset] = on_wire(Array(TaskOffset))
    task_end_offsets: list[TaskOffset] = on_wire(Array(TaskOffset))
    assignment: Assignment = on_wire(Assignment)
    target_assignment: Assignment = on_wire(Assignment)
    is_classic: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    group_id: str = on_wire(STRING)
    group_state: str = on_wire(STRING)
    group_epoch: int = on_wire(INT32)
    assignment_epoch: int = on_wire(INT32)
    topology: Topology | None = on_wire(Topology, default=None, nullable=ALL)
    members: list[Member] = on_wire(Array(Member))
    authorized_operations: int = on_wire(INT32, default=-(2**31))


@dataclass(slots=True, kw_only=True)
class StreamsGroupDescribeResponse(Message, api_key=89, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
