"""group_records (API group_records)."""

from dataclasses import dataclass

from odradek.wire.messages.log_records import LogRecord, RecordTypes
from odradek.wire.schema import (
    ALL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class LegacyOffsetCommitKey(LogRecord, record_type=0, versions=(0, 0)):
    group: str = on_wire(STRING)
    topic: str = on_wire(STRING)
    partition: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class OffsetCommitKey(LogRecord, record_type=1, versions=(0, 0)):
    group: str = on_wire(STRING)
    topic: str = on_wire(STRING)
    partition: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class OffsetCommitValue(LogRecord, record_type=1, versions=(0, 4), flexible_since=4):
    offset: int = on_wire(INT64)
    leader_epoch: int = on_wire(INT32, since=3, default=-1, ignorable=True)
    metadata: str = on_wire(STRING)
    commit_timestamp: int = on_wire(INT64)
    expire_timestamp: int = on_wire(INT64, since=1, until=1, default=-1, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=4, tag=0, ignorable=True)


@dataclass(slots=True, kw_only=True)
class GroupMetadataKey(LogRecord, record_type=2, versions=(0, 0)):
    group: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class MemberMetadata(Struct):
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL, ignorable=True)
    client_id: str = on_wire(STRING)
    client_host: str = on_wire(STRING)
    rebalance_timeout: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    session_timeout: int = on_wire(INT32)
    subscription: bytes = on_wire(BYTES)
    assignment: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class GroupMetadataValue(LogRecord, record_type=2, versions=(0, 4), flexible_since=4):
    protocol_type: str = on_wire(STRING)
    generation: int = on_wire(INT32)
    protocol: str | None = on_wire(STRING, nullable=ALL)
    leader: str | None = on_wire(STRING, nullable=ALL)
    current_state_timestamp: int = on_wire(INT64, since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = on_wire(Array(MemberMetadata))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupMetadataKey(LogRecord, record_type=3, versions=(0, 0)):
    group_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupMetadataValue(LogRecord, record_type=3, versions=(0, 0), flexible_since=0):
    epoch: int = on_wire(INT32)
    metadata_hash: int = on_wire(INT64, tag=0)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataKey(LogRecord, record_type=4, versions=(0, 0)):
    group_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class PartitionMetadata(Struct):
    partition: int = on_wire(INT32)
    racks: list[str] = on_wire(Array(STRING))


@dataclass(slots=True, kw_only=True)
class TopicMetadata(Struct):
    topic_id: bytes = on_wire(UUID)
    topic_name: str = on_wire(STRING)
    num_partitions: int = on_wire(INT32)
    partition_metadata: list[PartitionMetadata] = on_wire(Array(PartitionMetadata))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataValue(LogRecord, record_type=4, versions=(0, 0), flexible_since=0):
    topics: list[TopicMetadata] = on_wire(Array(TopicMetadata))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey(LogRecord, record_type=5, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    member_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class ClassicProtocol(Struct):
    name: str = on_wire(STRING)
    metadata: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = on_wire(INT32)
    supported_protocols: list[ClassicProtocol] = on_wire(Array(ClassicProtocol))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue(LogRecord, record_type=5, versions=(0, 0), flexible_since=0):
    instance_id: str | None = on_wire(STRING, nullable=ALL)
    rack_id: str | None = on_wire(STRING, nullable=ALL)
    client_id: str = on_wire(STRING)
    client_host: str = on_wire(STRING)
    subscribed_topic_names: list[str] = on_wire(Array(STRING))
    subscribed_topic_regex: str | None = on_wire(STRING, nullable=ALL)
    rebalance_timeout_ms: int = on_wire(INT32, default=-1)
    server_assignor: str | None = on_wire(STRING, nullable=ALL)
    classic_member_metadata: ClassicMemberMetadata | None = on_wire(
        ClassicMemberMetadata, nullable=ALL, tag=0
    )


@dataclass(slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey(LogRecord, record_type=6, versions=(0, 0)):
    group_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue(LogRecord, record_type=6, versions=(0, 0), flexible_since=0):
    assignment_epoch: int = on_wire(INT32)
    assignment_timestamp: int = on_wire(INT64, tag=0, ignorable=True)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey(LogRecord, record_type=7, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    member_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class TopicPartition(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue(LogRecord, record_type=7, versions=(0, 0), flexible_since=0):
    topic_partitions: list[TopicPartition] = on_wire(Array(TopicPartition))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey(LogRecord, record_type=8, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    member_id: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[int] = on_wire(Array(INT32))
    assignment_epochs: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=0)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue(LogRecord, record_type=8, versions=(0, 0), flexible_since=0):
    member_epoch: int = on_wire(INT32)
    previous_member_epoch: int = on_wire(INT32)
    state: int = on_wire(INT8)
    assigned_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = on_wire(Array(TopicPartitions))


@dataclass(slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey(LogRecord, record_type=16, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    regular_expression: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue(LogRecord, record_type=16, versions=(0, 0), flexible_since=0):
    topics: list[str] = on_wire(Array(STRING))
    version: int = on_wire(INT64)
    timestamp: int = on_wire(INT64)


_TYPES = RecordTypes(
    keys=(
        LegacyOffsetCommitKey,
        OffsetCommitKey,
        GroupMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupRegularExpressionKey,
    ),
    values=(
        OffsetCommitValue,
        GroupMetadataValue,
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupRegularExpressionValue,
    ),
    older_values={0: OffsetCommitValue},
)
encode_key = _TYPES.encode_key
decode_key = _TYPES.decode_key
encode_value = _TYPES.encode_value
decode_value = _TYPES.decode_value
