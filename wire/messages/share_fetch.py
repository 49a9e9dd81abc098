"""ShareFetch: acquire records for a consumer of a share group, and acknowledge earlier ones (KIP-932)."""

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
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    acknowledge_types: list[int] = on_wire(Array(INT8))
    """One for each offset of the batch, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


@dataclass(slots=True, kw_only=True)
class FetchPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    acknowledgement_batches: list[AcknowledgementBatch] = on_wire(Array(AcknowledgementBatch))
    """What the consumer did with records of earlier fetches."""


@dataclass(slots=True, kw_only=True)
class FetchTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[FetchPartition] = on_wire(Array(FetchPartition))
    """Partitions to fetch from."""


@dataclass(slots=True, kw_only=True)
class ForgottenTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class ShareFetchRequest(Message, api_key=78, versions=(1, 2), flexible_since=0):
    group_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Id of the group."""
    member_id: str | None = on_wire(STRING, nullable=ALL)
    """Id of the member."""
    share_session_epoch: int = on_wire(INT32)
    """Counts the requests of a session: 0 opens one, -1 ends it."""
    max_wait_ms: int = on_wire(INT32)
    """How long the answer may wait for enough data."""
    min_bytes: int = on_wire(INT32)
    """The answer waits until there is this much data, or time is up."""
    max_bytes: int = on_wire(INT32, default=0x7FFFFFFF)
    """The answer should hold no more than this; the first batch comes whole all the same."""
    max_records: int = on_wire(INT32)
    """How many records to return at most."""
    batch_size: int = on_wire(INT32)
    """How many records a batch of acquired records should hold at best."""
    share_acquire_mode: int = on_wire(INT8, since=2, ignorable=True)
    """0 acquires whole batches as well, 1 never more than the limit of records."""
    is_renew_ack: bool = on_wire(BOOL, since=2)
    """Whether any acknowledgement renews the lock of a record."""
    topics: list[FetchTopic] = on_wire(Array(FetchTopic))
    """Topics with the partitions to fetch from."""
    forgotten_topics_data: list[ForgottenTopic] = on_wire(Array(ForgottenTopic))
    """Partitions to take out of the session."""


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    """Broker that leads the partition now, -1 if not known."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of that leader."""


@dataclass(slots=True, kw_only=True)
class AcquiredRecords(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    delivery_count: int = on_wire(INT16)
    """How many times the records have been delivered."""


@dataclass(slots=True, kw_only=True)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    acknowledge_error_code: int = on_wire(INT16)
    """What became of the acknowledgements that came with the fetch."""
    acknowledge_error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the acknowledgement error."""
    current_leader: LeaderIdAndEpoch = on_wire(LeaderIdAndEpoch)
    """Leader that the client should turn to; absent unless the error says that this broker is not it."""
    records: Records | None = on_wire(RECORDS, nullable=(0, 0))
    """Record batches, one after the other."""
    acquired_records: list[AcquiredRecords] = on_wire(Array(AcquiredRecords))
    """Which of the records this consumer holds now, and how often they were delivered."""


@dataclass(slots=True, kw_only=True)
class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[PartitionData] = on_wire(Array(PartitionData))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class NodeEndpoint(Struct):
    node_id: int = on_wire(INT32)
    """Id of the broker."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(INT32)
    """Port number."""
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the broker, null if it has none."""


@dataclass(slots=True, kw_only=True)
class ShareFetchResponse(Message, api_key=78, versions=(1, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    acquisition_lock_timeout_ms: int = on_wire(INT32)
    """How long the consumer holds acquired records."""
    responses: list[ShareFetchableTopicResponse] = on_wire(Array(ShareFetchableTopicResponse))
    """One answer for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint))
    """Addresses of the leaders that the answer names; only filled when some leader has moved."""
