"""CreatePartitions: add partitions to topics."""

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


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = on_wire(Array(INT32))
    """Brokers for the replicas, the preferred leader first."""


class CreatePartitionsTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    count: int = on_wire(INT32)
    """New number of partitions."""
    assignments: list[CreatePartitionsAssignment] | None = on_wire(
        Array(CreatePartitionsAssignment), nullable=ALL
    )
    """Brokers for each added partition; null to let the broker choose."""


class CreatePartitionsRequest(Message, api_key=37, versions=(0, 3), flexible_since=2):
    topics: list[CreatePartitionsTopic] = on_wire(Array(CreatePartitionsTopic))
    """Topics to grow."""
    timeout_ms: int = on_wire(INT32)
    """Time-out of the operation in ms."""
    validate_only: bool = on_wire(BOOL)
    """Whether to validate only, without a change."""


class CreatePartitionsTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    results: list[CreatePartitionsTopicResult] = on_wire(Array(CreatePartitionsTopicResult))
    """One result for each item of the request."""
