"""AlterPartitionReassignments: move partitions to other brokers, or call a move off."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class ReassignablePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)
    """Brokers that shall have a replica; null calls a running move off."""


@dataclass(slots=True, kw_only=True)
class ReassignableTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[ReassignablePartition] = on_wire(Array(ReassignablePartition))
    """Partitions to move."""


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 1), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    """How long the broker may take."""
    allow_replication_factor_change: bool = on_wire(BOOL, since=1, default=True)
    """Whether a partition may end with another number of replicas."""
    topics: list[ReassignableTopic] = on_wire(Array(ReassignableTopic))
    """Topics with the partitions to move."""


@dataclass(slots=True, kw_only=True)
class ReassignablePartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """More about the error, null if there is none."""


@dataclass(slots=True, kw_only=True)
class ReassignableTopicResponse(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[ReassignablePartitionResponse] = on_wire(Array(ReassignablePartitionResponse))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    allow_replication_factor_change: bool = on_wire(BOOL, since=1, default=True, ignorable=True)
    """Whether a partition may end with another number of replicas."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """More about the error, null if there is none."""
    responses: list[ReassignableTopicResponse] = on_wire(Array(ReassignableTopicResponse))
    """One answer for each topic."""
