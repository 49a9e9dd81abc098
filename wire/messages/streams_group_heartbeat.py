"""StreamsGroupHeartbeat: membership in a group of the streams protocol (KIP-1071)."""

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


class KeyValue(Struct):
    key: str = on_wire(STRING)
    """Name of the tag."""
    value: str = on_wire(STRING)
    """Value of the tag or setting."""


class TopicInfo(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: int = on_wire(INT32)
    """Partition numbers."""
    replication_factor: int = on_wire(INT16)
    """Number of replicas; -1 takes the broker's default."""
    topic_configs: list[KeyValue] = on_wire(Array(KeyValue))
    """Settings of the internal topic."""


class CopartitionGroup(Struct):
    source_topics: list[int] = on_wire(Array(INT16))
    """Topics to read from."""
    source_topic_regex: list[int] = on_wire(Array(INT16))
    """Patterns of the topics to read from."""
    repartition_source_topics: list[int] = on_wire(Array(INT16))
    """Internal topics that the subtopology reads from."""


class Subtopology(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    source_topics: list[str] = on_wire(Array(STRING))
    """Topics to read from."""
    source_topic_regex: list[str] = on_wire(Array(STRING))
    """Patterns of the topics to read from."""
    state_changelog_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    """Internal topics that hold the state."""
    repartition_sink_topics: list[str] = on_wire(Array(STRING))
    """Internal topics that the subtopology writes to."""
    repartition_source_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    """Internal topics that the subtopology reads from."""
    copartition_groups: list[CopartitionGroup] = on_wire(Array(CopartitionGroup))
    """Sets of source topics that must have equally many partitions."""


class Topology(Struct):
    epoch: int = on_wire(INT32)
    """Counts up when the topology changes."""
    subtopologies: list[Subtopology] = on_wire(Array(Subtopology))
    """The independent parts of the topology."""


class TaskIds(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class Endpoint(Struct):
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


class TaskOffset(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    partition: int = on_wire(INT32)
    """Partition number."""
    offset: int = on_wire(INT64)
    """The task's restored offset."""


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions=(0, 1), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    endpoint_information_epoch: int = on_wire(INT32)
    """Version of the endpoint information that the member knows."""
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Instance id of a static member; null for a dynamic member."""
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the client, to read from near replicas."""
    rebalance_timeout_ms: int = on_wire(INT32, default=-1)
    """Time-out of the member's revocations and joins in a rebalance, in ms."""
    topology: Topology | None = on_wire(Topology, default=None, nullable=ALL)
    """The topology of the application."""
    active_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    """Tasks that the member runs."""
    standby_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    """Tasks for which the member keeps a warm copy."""
    warmup_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    """Tasks whose state is being restored on the member."""
    process_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Id of the client process that the member lives in."""
    user_endpoint: Endpoint | None = on_wire(Endpoint, default=None, nullable=ALL)
    """Address of the member for interactive queries."""
    client_tags: list[KeyValue] | None = on_wire(Array(KeyValue), default=None, nullable=ALL)
    """Tags by which tasks are spread over racks or zones."""
    task_offsets: list[TaskOffset] | None = on_wire(Array(TaskOffset), default=None, nullable=ALL)
    """Restored offsets of the tasks."""
    task_end_offsets: list[TaskOffset] | None = on_wire(Array(TaskOffset), default=None, nullable=ALL)
    """End offsets of the changelogs, to judge how far a task is behind."""
    shutdown_application: bool = on_wire(BOOL)
    """Whether the application requests its shutdown."""


class Status(Struct):
    status_code: int = on_wire(INT8)
    """Number of the condition."""
    status_detail: str = on_wire(STRING)
    """The condition in words."""


class TopicPartition(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = on_wire(Endpoint)
    """Address of the member for interactive queries."""
    active_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))
    """Partitions of the active tasks at this endpoint."""
    standby_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))
    """Partitions of the standby tasks at this endpoint."""


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    heartbeat_interval_ms: int = on_wire(INT32)
    """Interval of the member's heartbeats in ms."""
    acceptable_recovery_lag_legacy: int = on_wire(INT32, until=0)
    """Always 0: what it said comes as `acceptable_recovery_lag`."""
    task_offset_interval_ms: int = on_wire(INT32)
    """Interval of the reports of task offsets in ms."""
    acceptable_recovery_lag: int = on_wire(INT64, since=1, default=-1, ignorable=True)
    """The lag in offsets up to which a task counts as caught up."""
    status: list[Status] | None = on_wire(Array(Status), nullable=ALL)
    """The conditions that stop the group, null for none."""
    active_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    """Tasks that the member runs."""
    standby_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    """Tasks for which the member keeps a warm copy."""
    warmup_tasks: list[TaskIds] | None = on_wire(Array(TaskIds), default=None, nullable=ALL)
    """Tasks whose state is being restored on the member."""
    topology_description_required: bool = on_wire(BOOL, since=1)
    """Whether the member is to send a description of its topology."""
    endpoint_information_epoch: int = on_wire(INT32)
    """Version of the endpoint information that the member knows."""
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = on_wire(
        Array(EndpointToPartitions), default=None, nullable=ALL
    )
    """Endpoints of the partitions, for interactive queries."""
