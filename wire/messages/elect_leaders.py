"""ElectLeaders: elect leaders of partitions."""

from odradek.wire.schema import (
    ALL,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class TopicPartitions(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ElectLeadersRequest(Message, api_key=43, versions=(0, 2), flexible_since=2):
    election_type: int = on_wire(INT8, since=1)
    """0 makes the preferred replica leader, 1 also one that is not in sync."""
    topic_partitions: list[TopicPartitions] | None = on_wire(Array(TopicPartitions), nullable=ALL)
    """Partitions of the election, null for all."""
    timeout_ms: int = on_wire(INT32, default=60000)
    """Time-out of the operation in ms."""


class PartitionResult(Struct):
    partition_id: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""


class ReplicaElectionResult(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partition_result: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One result for each partition."""


class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16, since=1)
    """Error code, 0 for none."""
    replica_election_results: list[ReplicaElectionResult] = on_wire(Array(ReplicaElectionResult))
    """One result for each topic."""
