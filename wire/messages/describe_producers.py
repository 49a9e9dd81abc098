"""DescribeProducers: the producers of a partition."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class TopicRequest(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class DescribeProducersRequest(Message, api_key=61, versions=(0, 0), flexible_since=0):
    topics: list[TopicRequest] = on_wire(Array(TopicRequest))
    """Topics with the partitions to describe."""


class ProducerState(Struct):
    producer_id: int = on_wire(INT64)
    """Id of the producer."""
    producer_epoch: int = on_wire(INT32)
    """Epoch of the producer."""
    last_sequence: int = on_wire(INT32, default=-1)
    """Sequence number of the producer's last record."""
    last_timestamp: int = on_wire(INT64, default=-1)
    """Time of the producer's last record."""
    coordinator_epoch: int = on_wire(INT32)
    """Epoch of the coordinator that last wrote a marker, -1 for none."""
    current_txn_start_offset: int = on_wire(INT64, default=-1)
    """First offset of the producer's open transaction, -1 if there is none."""


class PartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    active_producers: list[ProducerState] = on_wire(Array(ProducerState))
    """Producers of the log."""


class TopicResponse(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[PartitionResponse] = on_wire(Array(PartitionResponse))
    """Partitions of the topic."""


class DescribeProducersResponse(Message, api_key=61, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[TopicResponse] = on_wire(Array(TopicResponse))
    """Topics with their partitions."""
