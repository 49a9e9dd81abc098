"""ShareAcknowledge (API 79)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
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
class AcknowledgementBatch(Struct):
    first_offset: int = on_wire(INT64)
    last_offset: int = on_wire(INT64)
    acknowledge_types: list[int] = on_wire(Array(INT8))


@dataclass(slots=True, kw_only=True)
class AcknowledgePartition(Struct):
    partition_index: int = on_wire(INT32)
    acknowledgement_batches: list[AcknowledgementBatch] = on_wire(Array(AcknowledgementBatch))


@dataclass(slots=True, kw_only=True)
class AcknowledgeTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[AcknowledgePartition] = on_wire(Array(AcknowledgePartition))


@dataclass(slots=True, kw_only=True)
class ShareAcknowledgeRequest(Message, api_key=79, versions=(1, 2), flexible_since=0):
    group_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    member_id: str | None = on_wire(STRING, nullable=ALL)
    share_session_epoch: int = on_wire(INT32)
    is_renew_ack: bool = on_wire(BOOL, since=2)
    topics: list[AcknowledgeTopic] = on_wire(Array(AcknowledgeTopic))


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    leader_epoch: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    current_leader: LeaderIdAndEpoch = on_wire(LeaderIdAndEpoch)


@dataclass(slots=True, kw_only=True)
class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[PartitionData] = on_wire(Array(PartitionData))


@dataclass(slots=True, kw_only=True)
class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ShareAcknowledgeResponse(Message, api_key=79, versions=(1, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    acquisition_lock_timeout_ms: int = on_wire(INT32, since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = on_wire(Array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint))
