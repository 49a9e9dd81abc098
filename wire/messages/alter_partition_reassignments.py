"""AlterPartitionReassignments: move partitions to other brokers, or cancel a move."""

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


class ReassignablePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL)
    """Brokers of the new replicas; null cancels a reassignment."""


class ReassignableTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[ReassignablePartition] = on_wire(Array(ReassignablePartition))
    """Partitions to move."""


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 1), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    """Time-out of the operation in ms."""
    allow_replication_factor_change: bool = on_wire(BOOL, since=1, default=True)
    """Whether a partition may end with another number of replicas."""
    topics: list[ReassignableTopic] = on_wire(Array(ReassignableTopic))
    """Topics with the partitions to move."""


class ReassignablePartitionResponse(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""


class ReassignableTopicResponse(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[ReassignablePartitionResponse] = on_wire(Array(ReassignablePartitionResponse))
    """One result for each partition."""


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    allow_replication_factor_change: bool = on_wire(BOOL, since=1, default=True, ignorable=True)
    """Whether a partition may end with another number of replicas."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    responses: list[ReassignableTopicResponse] = on_wire(Array(ReassignableTopicResponse))
    """One result for each topic."""
