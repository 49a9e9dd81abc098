"""ShareAcknowledge: what a consumer of a share group did with its records (KIP-932)."""

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


class AcknowledgementBatch(Struct):
    first_offset: int = on_wire(INT64)
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    acknowledge_types: list[int] = on_wire(Array(INT8))
    """One for each offset of the batch, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


class AcknowledgePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    acknowledgement_batches: list[AcknowledgementBatch] = on_wire(Array(AcknowledgementBatch))
    """The consumer's acknowledgements of records of earlier fetches."""


class AcknowledgeTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[AcknowledgePartition] = on_wire(Array(AcknowledgePartition))
    """Partitions to acknowledge."""


class ShareAcknowledgeRequest(Message, api_key=79, versions=(1, 2), flexible_since=0):
    group_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Id of the group."""
    member_id: str | None = on_wire(STRING, nullable=ALL)
    """Id of the member."""
    share_session_epoch: int = on_wire(INT32)
    """Counts the requests of a session: 0 opens one, -1 ends it."""
    is_renew_ack: bool = on_wire(BOOL, since=2)
    """Whether any acknowledgement renews the lock of a record."""
    topics: list[AcknowledgeTopic] = on_wire(Array(AcknowledgeTopic))
    """Topics with the partitions to acknowledge."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    """Broker that leads the partition now, -1 if not known."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of this leader."""


class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    current_leader: LeaderIdAndEpoch = on_wire(LeaderIdAndEpoch)
    """The current leader; absent unless the error is that this broker does not lead."""


class ShareAcknowledgeTopicResponse(Struct):
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


class ShareAcknowledgeResponse(Message, api_key=79, versions=(1, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    acquisition_lock_timeout_ms: int = on_wire(INT32, since=2, ignorable=True)
    """Time-out of the locks of acquired records in ms."""
    responses: list[ShareAcknowledgeTopicResponse] = on_wire(Array(ShareAcknowledgeTopicResponse))
    """One result for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint))
    """Addresses of the leaders in this response; only filled if a leader has changed."""
