"""StreamsGroupDescribe: state, topology and members of groups of the streams protocol (KIP-1071)."""

from odradek.wire.messages.streams_group_topology_description_update import TopologyDescription
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


class StreamsGroupDescribeRequest(Message, api_key=89, versions=(0, 1), flexible_since=0):
    group_ids: list[str] = on_wire(Array(STRING))
    """Ids of the groups to describe."""
    include_authorized_operations: bool = on_wire(BOOL)
    """Whether to return the operations for which the caller is authorised."""
    include_topology_description: bool = on_wire(BOOL, since=1)
    """Whether to return the description of the topology."""


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


class Subtopology(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    source_topics: list[str] = on_wire(Array(STRING))
    """Topics to read from."""
    repartition_sink_topics: list[str] = on_wire(Array(STRING))
    """Internal topics that the subtopology writes to."""
    state_changelog_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    """Internal topics that hold the state."""
    repartition_source_topics: list[TopicInfo] = on_wire(Array(TopicInfo))
    """Internal topics that the subtopology reads from."""


class Topology(Struct):
    epoch: int = on_wire(INT32)
    """Counts up when the topology changes."""
    subtopologies: list[Subtopology] | None = on_wire(Array(Subtopology), default=None, nullable=ALL)
    """The independent parts of the topology."""


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


class TaskIds(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class Assignment(Struct):
    active_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    """Tasks that the member runs."""
    standby_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    """Tasks for which the member keeps a warm copy."""
    warmup_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    """Tasks whose state is being restored on the member."""


class Member(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Instance id of a static member; null for a dynamic member."""
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the client, to read from near replicas."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    topology_epoch: int = on_wire(INT32)
    """Version of the topology."""
    process_id: str = on_wire(STRING)
    """Id of the client process that the member lives in."""
    user_endpoint: Endpoint | None = on_wire(Endpoint, default=None, nullable=ALL)
    """Address of the member for interactive queries."""
    client_tags: list[KeyValue] = on_wire(Array(KeyValue))
    """Tags by which tasks are spread over racks or zones."""
    task_offsets: list[TaskOffset] = on_wire(Array(TaskOffset))
    """Restored offsets of the tasks."""
    task_end_offsets: list[TaskOffset] = on_wire(Array(TaskOffset))
    """End offsets of the changelogs, to judge how far a task is behind."""
    assignment: Assignment = on_wire(Assignment)
    """The current assignment of the member."""
    target_assignment: Assignment = on_wire(Assignment)
    """The target assignment of the member."""
    is_classic: bool = on_wire(BOOL)
    """Whether the member still uses the classic protocol."""


class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    group_id: str = on_wire(STRING)
    """Id of the group."""
    group_state: str = on_wire(STRING)
    """State by name, such as Stable; Dead for a group that does not exist."""
    group_epoch: int = on_wire(INT32)
    """Counts up when members or their subscriptions change."""
    assignment_epoch: int = on_wire(INT32)
    """The epoch of the target assignment."""
    topology: Topology | None = on_wire(Topology, default=None, nullable=ALL)
    """The topology of the application."""
    members: list[Member] = on_wire(Array(Member))
    """Members of the group."""
    authorized_operations: int = on_wire(INT32, default=-(2**31))
    """Bit set of the caller's authorised operations; the lowest int32 if not requested."""
    topology_description: TopologyDescription | None = on_wire(
        TopologyDescription, since=1, default=None, nullable=ALL
    )
    """The description of the topology, null if not requested or not available."""
    topology_description_status: int = on_wire(INT8, since=1)
    """0: not requested, 1: not stored, 2: the store failed, 3: available."""
    assignor_name: str | None = on_wire(STRING, since=1, default=None, nullable=ALL, ignorable=True)
    """The assignor of the next assignment."""


class StreamsGroupDescribeResponse(Message, api_key=89, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
    """One description for each group."""
