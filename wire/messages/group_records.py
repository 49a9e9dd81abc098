"""Keys and values of `__consumer_offsets` in Kafka's format.

Types 0 and 1 are committed offsets (0 is an old form of the key that is only read), 2 is a classic group,
3 to 8 and 16 are groups of the consumer protocol, 10 to 15 share groups, 17 and 19 to 23 groups of the
streams protocol (9 and 18 were never released). Kafka 4.3 writes version 4 of `OffsetCommitValue` (1 where a
commit has a retention time; below 4.1 it was 3) and 3 of `GroupMetadataValue`.
"""

from odradek.wire.messages.log_records import LogRecord, RecordTypes
from odradek.wire.schema import (
    ALL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Struct,
    on_wire,
)


class LegacyOffsetCommitKey(LogRecord, record_type=0, versions=(0, 0)):
    group: str = on_wire(STRING)
    """Id of the group."""
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partition: int = on_wire(INT32)
    """Partition number."""


class OffsetCommitKey(LogRecord, record_type=1, versions=(0, 0)):
    group: str = on_wire(STRING)
    """Id of the group."""
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partition: int = on_wire(INT32)
    """Partition number."""


class OffsetCommitValue(LogRecord, record_type=1, versions=(0, 4), flexible_since=4):
    offset: int = on_wire(INT64)
    """Offset of the next record to consume."""
    leader_epoch: int = on_wire(INT32, since=3, default=-1, ignorable=True)
    """Leader epoch of the last consumed record, -1 if not known."""
    metadata: str = on_wire(STRING)
    """The metadata text of the commit."""
    commit_timestamp: int = on_wire(INT64)
    """Time of the commit."""
    expire_timestamp: int = on_wire(INT64, since=1, until=1, default=-1, ignorable=True)
    """Expiry time of a commit with its own retention time; -1 for the broker's setting."""
    topic_id: bytes = on_wire(UUID, since=4, tag=0, ignorable=True)
    """Id of the topic, zero if not known."""


class GroupMetadataKey(LogRecord, record_type=2, versions=(0, 0)):
    group: str = on_wire(STRING)
    """Id of the group."""


class MemberMetadata(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL, ignorable=True)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    rebalance_timeout: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """Rebalance time-out of the member in ms; -1: the session time-out."""
    session_timeout: int = on_wire(INT32)
    """Session time-out in ms: without a heartbeat the member is removed."""
    subscription: bytes = on_wire(BYTES)
    """The member's metadata from its join, for the chosen strategy."""
    assignment: bytes = on_wire(BYTES)
    """The leader's assignment of the member."""


class GroupMetadataValue(LogRecord, record_type=2, versions=(0, 4), flexible_since=4):
    protocol_type: str = on_wire(STRING)
    """Kind of group, such as consumer or connect."""
    generation: int = on_wire(INT32)
    """Current generation."""
    protocol: str | None = on_wire(STRING, nullable=ALL)
    """The assignment strategy that the group chose, null while it has none."""
    leader: str | None = on_wire(STRING, nullable=ALL)
    """Member id of the leader, null while there is none."""
    current_state_timestamp: int = on_wire(INT64, since=2, default=-1, ignorable=True)
    """Time of the last change of the group's state, -1 if not known."""
    members: list[MemberMetadata] = on_wire(Array(MemberMetadata))
    """Members of the group."""


class ConsumerGroupMetadataKey(LogRecord, record_type=3, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class ConsumerGroupMetadataValue(LogRecord, record_type=3, versions=(0, 0), flexible_since=0):
    epoch: int = on_wire(INT32)
    """Counts up when members or their subscriptions change."""
    metadata_hash: int = on_wire(INT64, tag=0)
    """Hash over the topics that the group subscribes to, 0 if not known."""


class ConsumerGroupPartitionMetadataKey(LogRecord, record_type=4, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class PartitionMetadata(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    racks: list[str] = on_wire(Array(STRING))
    """Racks with a replica of the partition."""


class TopicMetadata(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    num_partitions: int = on_wire(INT32)
    """Number of partitions; -1 takes the broker's default."""
    partition_metadata: list[PartitionMetadata] = on_wire(Array(PartitionMetadata))
    """Racks by partition."""


class ConsumerGroupPartitionMetadataValue(LogRecord, record_type=4, versions=(0, 0), flexible_since=0):
    topics: list[TopicMetadata] = on_wire(Array(TopicMetadata))
    """The topics of the group's metadata."""


class ConsumerGroupMemberMetadataKey(LogRecord, record_type=5, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class ClassicProtocol(Struct):
    name: str = on_wire(STRING)
    """Name of the assignment strategy."""
    metadata: bytes = on_wire(BYTES)
    """Metadata of the member for the strategy."""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = on_wire(INT32)
    """Session time-out in ms: without a heartbeat the member is removed."""
    supported_protocols: list[ClassicProtocol] = on_wire(Array(ClassicProtocol))
    """The member's assignment strategies, most wanted first."""


class ConsumerGroupMemberMetadataValue(LogRecord, record_type=5, versions=(0, 0), flexible_since=0):
    instance_id: str | None = on_wire(STRING, nullable=ALL)
    """Instance id of a static member; null for a dynamic member."""
    rack_id: str | None = on_wire(STRING, nullable=ALL)
    """Rack of the client, to read from near replicas."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    subscribed_topic_names: list[str] = on_wire(Array(STRING))
    """Topics of the subscription by name; null in a heartbeat: no change."""
    subscribed_topic_regex: str | None = on_wire(STRING, nullable=ALL)
    """Pattern of the subscribed topics; null in a heartbeat: no change."""
    rebalance_timeout_ms: int = on_wire(INT32, default=-1)
    """Rebalance time-out of the member in ms, -1 if not known."""
    server_assignor: str | None = on_wire(STRING, nullable=ALL)
    """The member's preferred assignor; null for the broker's choice."""
    classic_member_metadata: ClassicMemberMetadata | None = on_wire(
        ClassicMemberMetadata, nullable=ALL, tag=0
    )
    """Additional fields of a member with the classic protocol; null for others."""


class ConsumerGroupTargetAssignmentMetadataKey(LogRecord, record_type=6, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class ConsumerGroupTargetAssignmentMetadataValue(LogRecord, record_type=6, versions=(0, 0), flexible_since=0):
    assignment_epoch: int = on_wire(INT32)
    """The epoch of the target assignment."""
    assignment_timestamp: int = on_wire(INT64, tag=0, ignorable=True)
    """Time of the assignment, 0 if not known."""


class ConsumerGroupTargetAssignmentMemberKey(LogRecord, record_type=7, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class TopicPartition(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ConsumerGroupTargetAssignmentMemberValue(LogRecord, record_type=7, versions=(0, 0), flexible_since=0):
    topic_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))
    """Partitions by topic."""


class ConsumerGroupCurrentMemberAssignmentKey(LogRecord, record_type=8, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""
    assignment_epochs: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=0)
    """The member epoch at which each partition was assigned, null if not known."""


class ConsumerGroupCurrentMemberAssignmentValue(LogRecord, record_type=8, versions=(0, 0), flexible_since=0):
    member_epoch: int = on_wire(INT32)
    """Epoch of the member: 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    previous_member_epoch: int = on_wire(INT32)
    """Epoch before the last change of the assignment."""
    state: int = on_wire(INT8)
    """0 stable, 1 has to give up partitions, 2 waits for partitions that others have, 127 not known."""
    assigned_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))
    """Partitions that the member has."""
    partitions_pending_revocation: list[TopicPartitions] = on_wire(Array(TopicPartitions))
    """Partitions that the member has to give up."""


class ShareGroupMemberMetadataKey(LogRecord, record_type=10, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class ShareGroupMemberMetadataValue(LogRecord, record_type=10, versions=(0, 0), flexible_since=0):
    rack_id: str | None = on_wire(STRING, nullable=ALL)
    """Rack of the client."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    subscribed_topic_names: list[str] = on_wire(Array(STRING))
    """Topics of the subscription by name."""


class ShareGroupMetadataKey(LogRecord, record_type=11, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class ShareGroupMetadataValue(LogRecord, record_type=11, versions=(0, 0), flexible_since=0):
    epoch: int = on_wire(INT32)
    """Counts up when members, their subscriptions or the topics change."""
    metadata_hash: int = on_wire(INT64)
    """Hash over the subscribed topics."""


class ShareGroupTargetAssignmentMetadataKey(LogRecord, record_type=12, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class ShareGroupTargetAssignmentMetadataValue(LogRecord, record_type=12, versions=(0, 0), flexible_since=0):
    assignment_epoch: int = on_wire(INT32)
    """The epoch of the target assignment."""
    assignment_timestamp: int = on_wire(INT64, tag=0, ignorable=True)
    """Time of the assignment, 0 if not known."""


class ShareGroupTargetAssignmentMemberKey(LogRecord, record_type=13, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class ShareGroupTargetAssignmentMemberValue(LogRecord, record_type=13, versions=(0, 0), flexible_since=0):
    topic_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))
    """Partitions by topic."""


class ShareGroupCurrentMemberAssignmentKey(LogRecord, record_type=14, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class ShareGroupCurrentMemberAssignmentValue(LogRecord, record_type=14, versions=(0, 0), flexible_since=0):
    member_epoch: int = on_wire(INT32)
    """Epoch of the member."""
    previous_member_epoch: int = on_wire(INT32)
    """Epoch before the last change of the assignment."""
    state: int = on_wire(INT8)
    """0 stable; nothing else is written."""
    assigned_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))
    """Partitions that the member has."""


class ShareGroupStatePartitionMetadataKey(LogRecord, record_type=15, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class TopicPartitionsInfo(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class DeletingTopicInfo(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    topic_name: str = on_wire(STRING)
    """Name of the topic."""


class ShareGroupStatePartitionMetadataValue(LogRecord, record_type=15, versions=(0, 0), flexible_since=0):
    initializing_topics: list[TopicPartitionsInfo] = on_wire(Array(TopicPartitionsInfo))
    """Share partitions whose state is being set up."""
    initialized_topics: list[TopicPartitionsInfo] = on_wire(Array(TopicPartitionsInfo))
    """Share partitions that have a state, and may be assigned."""
    deleting_topics: list[DeletingTopicInfo] = on_wire(Array(DeletingTopicInfo))
    """Topics whose states are being deleted."""


class ConsumerGroupRegularExpressionKey(LogRecord, record_type=16, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    regular_expression: str = on_wire(STRING)
    """The pattern that the members subscribe to."""


class ConsumerGroupRegularExpressionValue(LogRecord, record_type=16, versions=(0, 0), flexible_since=0):
    topics: list[str] = on_wire(Array(STRING))
    """Names of the topics that match the pattern."""
    version: int = on_wire(INT64)
    """Version of the cluster's metadata when the pattern was resolved."""
    timestamp: int = on_wire(INT64)
    """Time of the resolution of the pattern."""


class KeyValue(Struct):
    key: str = on_wire(STRING)
    """Name of the tag or setting."""
    value: str = on_wire(STRING)
    """Value of the tag or setting."""


class StreamsGroupMetadataKey(LogRecord, record_type=17, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class StreamsGroupMetadataValue(LogRecord, record_type=17, versions=(0, 0), flexible_since=0):
    epoch: int = on_wire(INT32)
    """Counts up when members, the topology or its topics change."""
    metadata_hash: int = on_wire(INT64)
    """Hash over the topics of the topology."""
    validated_topology_epoch: int = on_wire(INT32, tag=0, default=-1)
    """Epoch of the last topology with valid topics, -1 for none."""
    last_assignment_configs: list[KeyValue] | None = on_wire(
        Array(KeyValue), default=None, nullable=ALL, tag=1
    )
    """The settings by which tasks were assigned last; null if not known."""
    stored_description_topology_epoch: int = on_wire(INT32, tag=2, default=-1)
    """Epoch of the topology whose description is stored; -1: none, -2: not known, after an interruption."""
    failed_description_topology_epoch: int = on_wire(INT32, tag=3, default=-1)
    """Epoch of the topology whose description the store has refused for good, -1 for none."""


class StreamsGroupMemberMetadataKey(LogRecord, record_type=19, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class Endpoint(Struct):
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


class StreamsGroupMemberMetadataValue(LogRecord, record_type=19, versions=(0, 0), flexible_since=0):
    instance_id: str | None = on_wire(STRING, nullable=ALL)
    """Instance id of a static member; null for a dynamic member."""
    rack_id: str | None = on_wire(STRING, nullable=ALL)
    """Rack of the client."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    rebalance_timeout_ms: int = on_wire(INT32, default=-1)
    """Rebalance time-out of the member in ms, -1 if not known."""
    topology_epoch: int = on_wire(INT32)
    """Epoch of the topology that the member runs."""
    process_id: str = on_wire(STRING)
    """Id of the client process that the member lives in."""
    user_endpoint: Endpoint | None = on_wire(Endpoint, default=None, nullable=ALL)
    """Address of the member for interactive queries."""
    client_tags: list[KeyValue] = on_wire(Array(KeyValue))
    """Tags by which tasks are spread over racks or zones."""


class StreamsGroupTargetAssignmentMetadataKey(LogRecord, record_type=20, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class StreamsGroupTargetAssignmentMetadataValue(LogRecord, record_type=20, versions=(0, 0), flexible_since=0):
    assignment_epoch: int = on_wire(INT32)
    """The epoch of the target assignment."""
    assignment_timestamp: int = on_wire(INT64, tag=0, ignorable=True)
    """Time of the assignment, 0 if not known."""


class StreamsGroupTargetAssignmentMemberKey(LogRecord, record_type=21, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class TaskIds(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class StreamsGroupTargetAssignmentMemberValue(LogRecord, record_type=21, versions=(0, 0), flexible_since=0):
    active_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    """Tasks that the member shall run."""
    standby_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    """Tasks for which the member shall keep a warm copy."""
    warmup_tasks: list[TaskIds] = on_wire(Array(TaskIds))
    """Tasks whose state the member shall restore."""


class StreamsGroupCurrentMemberAssignmentKey(LogRecord, record_type=22, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING)
    """Id of the member."""


class AssignedTaskIds(Struct):
    subtopology_id: str = on_wire(STRING)
    """Name of the subtopology."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""
    assignment_epochs: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=0)
    """The member epoch at which each task was assigned, null if not known."""


class StreamsGroupCurrentMemberAssignmentValue(LogRecord, record_type=22, versions=(0, 0), flexible_since=0):
    member_epoch: int = on_wire(INT32)
    """Epoch of the member."""
    previous_member_epoch: int = on_wire(INT32)
    """Epoch before the last change of the assignment."""
    state: int = on_wire(INT8)
    """0 stable, 1 has to give up tasks, 2 waits for tasks that others have, 127 not known."""
    active_tasks: list[AssignedTaskIds] = on_wire(Array(AssignedTaskIds))
    """Tasks that the member runs."""
    standby_tasks: list[AssignedTaskIds] = on_wire(Array(AssignedTaskIds))
    """Tasks for which the member keeps a warm copy."""
    warmup_tasks: list[AssignedTaskIds] = on_wire(Array(AssignedTaskIds))
    """Tasks whose state is being restored on the member."""
    active_tasks_pending_revocation: list[AssignedTaskIds] = on_wire(Array(AssignedTaskIds))
    """Active tasks that the member has to give up."""
    standby_tasks_pending_revocation: list[AssignedTaskIds] = on_wire(Array(AssignedTaskIds))
    """Standby tasks that the member has to give up."""
    warmup_tasks_pending_revocation: list[AssignedTaskIds] = on_wire(Array(AssignedTaskIds))
    """Warm-up tasks that the member has to give up."""


class StreamsGroupTopologyKey(LogRecord, record_type=23, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""


class TopicInfo(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: int = on_wire(INT32)
    """Number of partitions; 0: the coordinator decides."""
    replication_factor: int = on_wire(INT16)
    """Number of replicas; 0 takes the broker's default."""
    topic_configs: list[KeyValue] = on_wire(Array(KeyValue))
    """Settings of the internal topic."""


class CopartitionGroup(Struct):
    source_topics: list[int] = on_wire(Array(INT16))
    """Indexes into the subtopology's source topics."""
    source_topic_regex: list[int] = on_wire(Array(INT16))
    """Indexes into its patterns of source topics."""
    repartition_source_topics: list[int] = on_wire(Array(INT16))
    """Indexes into its repartition source topics."""


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


class StreamsGroupTopologyValue(LogRecord, record_type=23, versions=(0, 0), flexible_since=0):
    epoch: int = on_wire(INT32)
    """Counts up when the topology changes."""
    subtopologies: list[Subtopology] = on_wire(Array(Subtopology))
    """The independent parts of the topology."""


OFFSETS = RecordTypes(
    keys=(LegacyOffsetCommitKey, OffsetCommitKey),
    values=(OffsetCommitValue,),
    older_values={0: OffsetCommitValue},
)
CLASSIC = RecordTypes(keys=(GroupMetadataKey,), values=(GroupMetadataValue,))
CONSUMER = RecordTypes(
    keys=(
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    ),
    values=(
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionValue,
    ),
)
SHARE = RecordTypes(
    keys=(
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
    ),
    values=(
        ShareGroupMemberMetadataValue,
        ShareGroupMetadataValue,
        ShareGroupTargetAssignmentMetadataValue,
        ShareGroupTargetAssignmentMemberValue,
        ShareGroupCurrentMemberAssignmentValue,
        ShareGroupStatePartitionMetadataValue,
    ),
)
STREAMS = RecordTypes(
    keys=(
        StreamsGroupMetadataKey,
        StreamsGroupMemberMetadataKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupTopologyKey,
    ),
    values=(
        StreamsGroupMetadataValue,
        StreamsGroupMemberMetadataValue,
        StreamsGroupTargetAssignmentMetadataValue,
        StreamsGroupTargetAssignmentMemberValue,
        StreamsGroupCurrentMemberAssignmentValue,
        StreamsGroupTopologyValue,
    ),
)
RECORDS = OFFSETS | CLASSIC | CONSUMER | SHARE | STREAMS
"""All declared record types."""
encode_key = RECORDS.encode_key
decode_key = RECORDS.decode_key
encode_value = RECORDS.encode_value
decode_value = RECORDS.decode_value
