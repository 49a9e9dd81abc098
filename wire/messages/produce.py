"""Produce: append record batches to partitions.

Versions 0 to 2 have messages of the old formats, 3 the batch format v2, 7 zstd, 10 the new leader in the
response, 13 topic ids in place of names. The throttle time is the last field, unlike in other responses.
"""

from odradek.wire.schema import (
    ALL,
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


class PartitionProduceData(Struct):
    index: int = on_wire(INT32)
    """Partition number."""
    records: Records | None = on_wire(RECORDS, nullable=ALL)
    """From version 3 on one batch of format v2; before, messages of format v0 or v1."""


class TopicProduceData(Struct):
    name: str = on_wire(STRING, until=12, ignorable=True)
    """Name of the topic; from version 13 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    """Id of the topic, zero if not known."""
    partition_data: list[PartitionProduceData] = on_wire(Array(PartitionProduceData))
    """Records by partition."""


class ProduceRequest(Message, api_key=0, versions=(0, 13), flexible_since=9):
    transactional_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    """Null unless the records belong to a transaction."""
    acks: int = on_wire(INT16)
    """Replicas that must have the records before the response: 0 none (there is no response), 1 the leader,
    -1 all in-sync replicas.
    """
    timeout_ms: int = on_wire(INT32)
    """Time-out of the wait for the other replicas in ms."""
    topic_data: list[TopicProduceData] = on_wire(Array(TopicProduceData))
    """Records by topic."""


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = on_wire(INT32)
    """Index of the refused record in the batch."""
    batch_index_error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """The reason of the record's refusal."""


class LeaderIdAndEpoch(Struct):
    leader_id: int = on_wire(INT32, default=-1)
    """Broker that leads the partition now, -1 if not known."""
    leader_epoch: int = on_wire(INT32, default=-1)
    """Epoch of this leader."""


class PartitionProduceResponse(Struct):
    index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    base_offset: int = on_wire(INT64)
    """Offset of the first record in the log, -1 after an error."""
    log_append_time_ms: int = on_wire(INT64, since=2, default=-1, ignorable=True)
    """Time of the append with LogAppendTime; else -1."""
    log_start_offset: int = on_wire(INT64, since=5, default=-1, ignorable=True)
    """First offset of the log; with it a producer distinguishes retention from data loss."""
    record_errors: list[BatchIndexAndErrorMessage] = on_wire(
        Array(BatchIndexAndErrorMessage), since=8, ignorable=True
    )
    """The invalid records; the whole batch was refused."""
    error_message: str | None = on_wire(STRING, since=8, default=None, nullable=ALL, ignorable=True)
    """Message of the batch's error."""
    current_leader: LeaderIdAndEpoch | None = on_wire(LeaderIdAndEpoch, since=10, tag=0)
    """The current leader; absent unless the error is that this broker does not lead."""


class TopicProduceResponse(Struct):
    name: str = on_wire(STRING, until=12, ignorable=True)
    """Name of the topic; from version 13 on the id replaces it."""
    topic_id: bytes = on_wire(UUID, since=13, ignorable=True)
    """Id of the topic, zero if not known."""
    partition_responses: list[PartitionProduceResponse] = on_wire(Array(PartitionProduceResponse))
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


class ProduceResponse(Message, api_key=0, versions=(0, 13), flexible_since=9):
    responses: list[TopicProduceResponse] = on_wire(Array(TopicProduceResponse))
    """One result for each topic."""
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    node_endpoints: list[NodeEndpoint] = on_wire(Array(NodeEndpoint), since=10, tag=0)
    """Addresses of the leaders in this response; only filled if a leader has changed."""
