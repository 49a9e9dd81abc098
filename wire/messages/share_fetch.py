"""ShareFetch (API 78)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    Message,
    Records,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class AcknowledgementBatch(Struct):
    first_offset: int = on_wire(INT64)
    last_offset: int = on_wire(INT64)
    acknowledge_types: list[int] = on_wire(Array(INT8))


@dataclass(slots=True, kw_only=True)
class FetchPartition(Struct):
    partition_index: int = on_wire(INT32)
    acknowledgement_batches: list[AcknowledgementBatch] = on_wire(Array(AcknowledgementBatch))


@dataclass(slots=True, kw_only=True)
class FetchTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[FetchPartition] = on_wire(Array(FetchPartition))


@dataclass(slots=True, kw_only=True)
class ForgottenTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class ShareFetchRequest(Message, api_key=78, versions=(1, 2), flexible_since=0):
    group_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    member_id: str | None = on_wire(STRING, nullable=ALL)
    share_session_epoch: int = on_wire(INT32)
    max_wait_ms: int = on_wire(INT32)
    min_bytes: int = on_wire(INT32)
    max_bytes: int = on_wire(INT32, default=0x7FFFFFFF)
    max_records: int = on_wire(INT32)
    batch_size: int = on_wire(INT32)
    share_acquire_mode: int = on_wire(INT8, since=2, ignorable=True)
    is_renew_ack: bool = on_wire(BOOL, since=2)
    topics: list[FetchTopic] = on_wire(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = on_wire(Array(ForgottenTopic))


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    leader_epoch: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class AcquiredRecords(Struct):
    first_offset: int = on_wire(INT64)
    last_offset: int = on_wire(INT64)
    delivery_count: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    acknowledge_error_code: int = on_wire(INT16)
    acknowledge_error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    current_leader: LeaderIdAndEpoch = on_wire(LeaderIdAndEpoch)
    records: Records | None = on_wire(RECORDS, nullable=(0, 0))
    acquired_records: list[AcquiredRecords] = on_wire(Array(AcquiredRecords))


@dataclass(slots=True, kw_only=True)
class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[PartitionData] = on_wire(Array(PartitionData))


@dataclass(slots=True, kw_only=True)
class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ShareFetchResponse(Message, api_key=78, versions=(1, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    acquisition_lock_timeout_ms: int = on_wire(INT32)
    responses: list[ShareFetchableTopicResponse] = on_wire(Array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint))
