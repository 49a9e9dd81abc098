"""ShareAcknowledge: what a consumer of a share group did with its records (KIP-932)."""

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
    """First offset of the batch."""
    last_offset: int = on_wire(INT64)
    """Last offset of the batch, included."""
    acknowledge_types: list[int] = on_wire(Array(INT8))
    """One for each offset of the batch, or one for all: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


@dataclass(slots=True, kw_only=True)
class AcknowledgePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    acknowledgement_batches: list[AcknowledgementBatch] = on_wire(Array(AcknowledgementBatch))
    """What the consumer did with records of earlier fetches."""


@dataclass(slots=True, kw_only=True)
class AcknowledgeTopic(Struct):
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[AcknowledgePartition] = on_wire(Array(AcknowledgePartition))
    """Partitions to acknowledge."""


@dataclass(slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True)
class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32)
    """Broker that leads the partition now, -1 if not known."""
    leader_epoch: int = on_wire(INT32)
    """Epoch of that leader."""


@dataclass(slots=True, kw_only=True)
class PartitionData(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    current_leader: LeaderIdAndEpoch = on_wire(LeaderIdAndEpoch)
    """Leader that the client should turn to; absent unless the error says that this broker is not it."""


@dataclass(slots=True, kw_only=True)
class ShareAcknowledgeTopicResponse(Struct):
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
class ShareAcknowledgeResponse(Message, api_key=79, versions=(1, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    acquisition_lock_timeout_ms: int = on_wire(INT32, since=2, ignorable=True)
    """How long the consumer holds acquired records."""
    responses: list[ShareAcknowledgeTopicResponse] = on_wire(Array(ShareAcknowledgeTopicResponse))
    """One answer for each topic."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint))
    """Addresses of the leaders that the answer names; only filled when some leader has moved."""
