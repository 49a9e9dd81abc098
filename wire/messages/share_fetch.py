"""ShareFetch: acquire records for a consumer of a share group, and acknowledge earlier ones (KIP-932)."""

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


class AcknowledgementBatch(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    acknowledge_types: list[int] = on_wire(Array(INT8))
    """One for each offset of the batch, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


class FetchPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    acknowledgement_batches: list[AcknowledgementBatch] = on_wire(Array(AcknowledgementBatch))
    """The consumer's acknowledgements of records of earlier fetches."""


class FetchTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[FetchPartition] = on_wire(Array(FetchPartition))
    """Partitions to fetch from."""


class ForgottenTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ShareFetchRequest(Message, api_key=78, versions=(1, 2), flexible_since=0):
    group_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Id of the group."""
    member_id: str | None = on_wire(STRING, nullable=ALL)
    """Id of the member."""
    share_session_epoch: int = on_wire(INT32)
    """Counts the requests of a session: 0 opens one, -1 ends it."""
    max_wait_ms: int = on_wire(INT32)
    """Longest wait for enough data in ms."""
    min_bytes: int = on_wire(INT32)
    """The response waits for this many bytes, or for the time-out."""
    max_bytes: int = on_wire(INT32, default=0x7FFFFFFF)
    """The limit of bytes of the response; the first batch is whole nevertheless."""
    max_records: int = on_wire(INT32)
    """Limit of returned records."""
    batch_size: int = on_wire(INT32)
    """Preferred number of records in a batch of acquired records."""
    share_acquire_mode: int = on_wire(INT8, since=2, ignorable=True)
    """0 may acquire whole batches over the limit of records, 1 may not."""
    is_renew_ack: bool = on_wire(BOOL, since=2)
    """Whether any acknowledgement renews the lock of a record."""
    topics: list[FetchTopic] = on_wire(Array(FetchTopic))
    """Topics with the partitions to fetch from."""
    forgotten_topics_data: list[ForgottenTopic] = on_wire(Array(ForgottenTopic))
    """Partitions to remove from the session."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    """Broker that leads the partition now, -1 if not known."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of this leader."""


class AcquiredRecords(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    delivery_count: int = on_wire(INT16)
    """Delivery count of the records."""


class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    acknowledge_error_code: int = on_wire(INT16)
    """Error code of the acknowledgements in the fetch."""
    acknowledge_error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the acknowledgement error."""
    current_leader: LeaderIdAndEpoch = on_wire(LeaderIdAndEpoch)
    """The current leader; absent unless the error is that this broker does not lead."""
    records: Records | None = on_wire(RECORDS, nullable=(0, 0))
    """Record batches, one after the other."""
    acquired_records: list[AcquiredRecords] = on_wire(Array(AcquiredRecords))
    """The records acquired by this consumer, with their delivery counts."""


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = on_wire(UUID)
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


class ShareFetchResponse(Message, api_key=78, versions=(1, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    acquisition_lock_timeout_ms: int = on_wire(INT32)
    """Time-out of the locks of acquired records in ms."""
    responses: list[ShareFetchableTopicResponse] = on_wire(Array(ShareFetchableTopicResponse))
    """One result for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint))
    """Addresses of the leaders in this response; only filled if a leader has changed."""
