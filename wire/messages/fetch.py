"""Fetch: read record batches from partitions, by consumers and by followers.

Version 4 adds isolation levels, 7 sessions (KIP-227), 10 zstd, 11 reading from followers, 12 the check
for diverging logs, 13 topic ids in place of names, 16 the new leaders in the response, 18 the follower's
high watermark.
"""

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


class ReplicaState(Struct):
    replica_id: int = on_wire(INT32, default=-1)
    """Broker that fetches, -1 for a consumer."""
    replica_epoch: int = on_wire(INT64, default=-1)
    """Epoch of the fetching broker, -1 if not known."""


class FetchPartition(Struct):
    partition: int = on_wire(INT32)
    """Partition number."""
    current_leader_epoch: int = on_wire(INT32, since=9, default=-1, ignorable=True)
    """The client's leader epoch, -1 for none; fences clients and brokers with old metadata."""
    fetch_offset: int = on_wire(INT64)
    """Offset of the first requested record."""
    last_fetched_epoch: int = on_wire(INT32, since=12, default=-1)
    """Leader epoch of the follower's last record, -1 for consumers."""
    log_start_offset: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    """First offset of a follower's log, -1 for consumers."""
    partition_max_bytes: int = on_wire(INT32)
    """The limit of bytes of this partition; the first batch of the response is whole nevertheless."""
    replica_directory_id: bytes = on_wire(UUID, since=17, tag=0, ignorable=True)
    """Id of the log directory of the replica."""
    high_watermark: int = on_wire(INT64, since=18, default=2**63 - 1, tag=1, ignorable=True)
    """The follower's high watermark; the default means that it is not known."""


class FetchTopic(Struct):
    topic: str = on_wire(STRING, until=12, ignorable=True)
    """Name of the topic; from version 13 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[FetchPartition] = on_wire(Array(FetchPartition))
    """Partitions to fetch from."""


class ForgottenTopic(Struct):
    topic: str = on_wire(STRING, until=12, ignorable=True)
    """Name of the topic; from version 13 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class FetchRequest(Message, api_key=1, versions=(0, 18), flexible_since=12):
    cluster_id: str | None = on_wire(STRING, since=12, default=None, nullable=ALL, tag=0, ignorable=True)
    """Cluster of the follower; only from brokers."""
    replica_id: int = on_wire(INT32, until=14, default=-1)
    """Id of the requesting broker, -1 for a consumer."""
    replica_state: ReplicaState | None = on_wire(ReplicaState, since=15, tag=1)
    """The fetching broker and its epoch; absent for consumers."""
    max_wait_ms: int = on_wire(INT32)
    """Longest wait for enough data in ms."""
    min_bytes: int = on_wire(INT32)
    """The response waits for this many bytes, or for the time-out."""
    max_bytes: int = on_wire(INT32, since=3, default=0x7FFFFFFF, ignorable=True)
    """The limit of bytes of the response; the first batch is whole nevertheless."""
    isolation_level: int = on_wire(INT8, since=4, ignorable=True)
    """Isolation level: 0 read uncommitted, 1 read committed."""
    session_id: int = on_wire(INT32, since=7, ignorable=True)
    """The fetch session, 0 for none."""
    session_epoch: int = on_wire(INT32, since=7, default=-1, ignorable=True)
    """Counts the fetches of a session: 0 opens one, -1 fetches without or ends it."""
    topics: list[FetchTopic] = on_wire(Array(FetchTopic))
    """In a session only new or changed partitions; without one all requested ones."""
    forgotten_topics_data: list[ForgottenTopic] = on_wire(Array(ForgottenTopic), since=7)
    """Partitions to remove from the session."""
    rack_id: str = on_wire(STRING, since=11, ignorable=True)
    """Rack of the client, to read from near replicas."""


class EpochEndOffset(Struct):
    epoch: int = on_wire(INT32, default=-1)
    """Last common leader epoch of both logs."""
    end_offset: int = on_wire(INT64, default=-1)
    """Offset after the last record of the epoch, -1 if not known."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32, default=-1)
    """Broker that leads the partition now, -1 if not known."""
    leader_epoch: int = on_wire(INT32, default=-1)
    """Epoch of this leader."""


class SnapshotId(Struct):
    end_offset: int = on_wire(INT64, default=-1)
    """Offset after the snapshot."""
    epoch: int = on_wire(INT32, default=-1)
    """Leader epoch of the snapshot."""


class AbortedTransaction(Struct):
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    first_offset: int = on_wire(INT64)
    """Offset of the transaction's first record in this partition."""


class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    high_watermark: int = on_wire(INT64)
    """Offset after the last record that all in-sync replicas have."""
    last_stable_offset: int = on_wire(INT64, since=4, default=-1, ignorable=True)
    """Offset of the first record of an open transaction, or the high watermark."""
    log_start_offset: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    """First offset of the log, -1 if not known."""
    diverging_epoch: EpochEndOffset | None = on_wire(EpochEndOffset, since=12, tag=0)
    """The epoch and offset at which the logs of follower and leader diverge; absent if they do not."""
    current_leader: LeaderIdAndEpoch | None = on_wire(LeaderIdAndEpoch, since=12, tag=1)
    """The current leader; absent unless the error is that this broker does not lead."""
    snapshot_id: SnapshotId | None = on_wire(SnapshotId, since=12, tag=2)
    """Snapshot to load instead; only in the metadata log of a quorum."""
    aborted_transactions: list[AbortedTransaction] | None = on_wire(
        Array(AbortedTransaction), since=4, nullable=ALL, ignorable=True
    )
    """Aborted transactions among the records; null for a reader of uncommitted data."""
    preferred_read_replica: int = on_wire(INT32, since=11, default=-1)
    """Broker from which the consumer should fetch, -1 for this one."""
    records: Records | None = on_wire(RECORDS, nullable=ALL)
    """Batches from the one with the requested offset on; empty, not null, without records."""


class FetchableTopicResponse(Struct):
    topic: str = on_wire(STRING, until=12, ignorable=True)
    """Name of the topic; from version 13 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    """Id of the topic, zero if not known."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """One result for each partition."""


class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    """Id of the broker."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(INT32)
    """Port number."""
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the broker, null if it has none."""


class FetchResponse(Message, api_key=1, versions=(0, 18), flexible_since=12):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16, since=7, ignorable=True)
    """An error of the whole fetch, such as an unknown session."""
    session_id: int = on_wire(INT32, since=7)
    """Id of the client's fetch session, 0 for none."""
    responses: list[FetchableTopicResponse] = on_wire(Array(FetchableTopicResponse))
    """One result for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint), since=16, tag=0)
    """Addresses of the leaders in this response; only filled if a leader has changed."""
