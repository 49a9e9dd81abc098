"""ElectLeaders (API 43)."""

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
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class ElectLeadersRequest(Message, api_key=43, versions=(0, 2), flexible_since=2):
    election_type: int = on_wire(INT8, since=1)
    topic_partitions: list[TopicPartitions] | None = on_wire(Array(TopicPartitions), nullable=ALL)
    timeout_ms: int = on_wire(INT32, default=60000)


@dataclass(slots=True, kw_only=True)
class PartitionResult(Struct):
    partition_id: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class ReplicaElectionResult(Struct):
    topic: str = on_wire(STRING)
    partition_result: list[PartitionResult] = on_wire(Array(PartitionResult))


@dataclass(slots=True, kw_only=True)
class ElectLeadersResponse(Message, api_key=43, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16, since=1)
    replica_election_results: list[ReplicaElectionResult] = on_wire(Array(ReplicaElectionResult))
