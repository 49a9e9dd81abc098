"""ElectLeaders: let partitions elect a leader now."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class TopicPartitions(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


@dataclass(slots=True, kw_only=True)
class ElectLeadersRequest(Message, api_key=43, versions=(0, 2), flexible_since=2):
    election_type: int = on_wire(INT8, since=1)
    """0 makes the preferred replica leader, 1 also one that is not in sync."""
    topic_partitions: list[TopicPartitions] | None = on_wire(Array(TopicPartitions), nullable=ALL)
    """Partitions to elect for, null for all."""
    timeout_ms: int = on_wire(INT32, default=60000)
    """How long the broker may take."""


@dataclass(slots=True, kw_only=True)
class PartitionResult(Struct):
    partition_id: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """More about the error, null if there is none."""


@dataclass(slots=True, kw_only=True)
class ReplicaElectionResult(Struct):
    topic: str = on_wire(STRING)
    """Name of the topic."""
    partition_result: list[PartitionResult] = on_wire(Array(PartitionResult))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16, since=1)
    """0 or the code of the error."""
    replica_election_results: list[ReplicaElectionResult] = on_wire(Array(ReplicaElectionResult))
    """One answer for each topic."""
