"""Fetch (API 1)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
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
class ReplicaState(Struct):
    replica_id: int = on_wire(INT32, default=-1)
    replica_epoch: int = on_wire(INT64, default=-1)


@dataclass(slots=True, kw_only=True)
class FetchPartition(Struct):
    partition: int = on_wire(INT32)
    current_leader_epoch: int = on_wire(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = on_wire(INT64)
    last_fetched_epoch: int = on_wire(INT32, since=12, default=-1)
    log_start_offset: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = on_wire(INT32)
    replica_directory_id: bytes = on_wire(UUID, since=17, tag=0, ignorable=True)
    high_watermark: int = on_wire(INT64, since=18, default=2**63 - 1, tag=1, ignorable=True)


@dataclass(slots=True, kw_only=True)
class FetchTopic(Struct):
    topic: str = on_wire(STRING, until=12, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    partitions: list[FetchPartition] = on_wire(Array(FetchPartition))


@dataclass(slots=True, kw_only=True)
class ForgottenTopic(Struct):
    topic: str = on_wire(STRING, until=12, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class FetchRequest(Message, api_key=1, versions=(0, 18), flexible_since=12):
    cluster_id: str | None = on_wire(STRING, since=12, default=None, nullable=ALL, tag=0, ignorable=True)
    replica_id: int = on_wire(INT32, until=14, default=-1)
    replica_state: ReplicaState | None = on_wire(ReplicaState, since=15, tag=1)
    max_wait_ms: int = on_wire(INT32)
    min_bytes: int = on_wire(INT32)
    max_bytes: int = on_wire(INT32, since=3, default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = on_wire(INT8, since=4, ignorable=True)
    session_id: int = on_wire(INT32, since=7, ignorable=True)
    session_epoch: int = on_wire(INT32, since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = on_wire(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = on_wire(Array(ForgottenTopic), since=7)
    rack_id: str = on_wire(STRING, since=11, ignorable=True)


@dataclass(slots=True, kw_only=True)
class EpochEndOffset(Struct):
    epoch: int = on_wire(INT32, default=-1)
    end_offset: int = on_wire(INT64, default=-1)


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32, default=-1)
    leader_epoch: int = on_wire(INT32, default=-1)


@dataclass(slots=True, kw_only=True)
class SnapshotId(Struct):
    end_offset: int = on_wire(INT64, default=-1)
    epoch: int = on_wire(INT32, default=-1)


@dataclass(slots=True, kw_only=True)
class AbortedTransaction(Struct):
    producer_id: int = on_wire(INT64)
    first_offset: int = on_wire(INT64)


@dataclass(slots=True, kw_only=True)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    high_watermark: int = on_wire(INT64)
    last_stable_offset: int = on_wire(INT64, since=4, default=-1, ignorable=True)
    log_start_offset: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = on_wire(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = on_wire(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = on_wire(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = on_wire(
        Array(AbortedTransaction), since=4, nullable=ALL, ignorable=True
    )
    preferred_read_replica: int = on_wire(INT32, since=11, default=-1)
    records: Records | None = on_wire(RECORDS, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class FetchableTopicResponse(Struct):
    topic: str = on_wire(STRING, until=12, ignorable=True)
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    partitions: list[PartitionData] = on_wire(Array(PartitionData))


@dataclass(slots=True, kw_only=True)
class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class FetchResponse(Message, api_key=1, versions=(0, 18), flexible_since=12):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    error_code: int = on_wire(INT16, since=7, ignorable=True)
    session_id: int = on_wire(INT32, since=7)
    responses: list[FetchableTopicResponse] = on_wire(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint), since=16, tag=0)
