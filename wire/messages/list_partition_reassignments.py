"""ListPartitionReassignments: partitions that are being moved."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class ListPartitionReassignmentsTopics(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partition_indexes: list[int] = on_wire(Array(INT32))
    """Partition numbers."""


class ListPartitionReassignmentsRequest(Message, api_key=46, versions=(0, 0), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    """Time-out of the operation in ms."""
    topics: list[ListPartitionReassignmentsTopics] | None = on_wire(
        Array(ListPartitionReassignmentsTopics), default=None, nullable=ALL
    )
    """Partitions to list, null for all that are being moved."""


class OngoingPartitionReassignment(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    replicas: list[int] = on_wire(Array(INT32))
    """Brokers with a replica, the preferred leader first."""
    adding_replicas: list[int] = on_wire(Array(INT32))
    """Brokers that are getting a replica."""
    removing_replicas: list[int] = on_wire(Array(INT32))
    """Brokers that are losing a replica."""


class OngoingTopicReassignment(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OngoingPartitionReassignment] = on_wire(Array(OngoingPartitionReassignment))
    """Partitions of the topic."""


class ListPartitionReassignmentsResponse(Message, api_key=46, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    topics: list[OngoingTopicReassignment] = on_wire(Array(OngoingTopicReassignment))
    """Topics with their partitions."""
