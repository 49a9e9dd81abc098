"""CreatePartitions: give topics more partitions."""

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
class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = on_wire(Array(INT32))
    """Brokers for the replicas, the preferred leader first."""


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    count: int = on_wire(INT32)
    """How many partitions the topic shall have afterwards."""
    assignments: list[CreatePartitionsAssignment] | None = on_wire(
        Array(CreatePartitionsAssignment), nullable=ALL
    )
    """Brokers for each added partition; null to let the broker choose."""


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest(Message, api_key=37, versions=(0, 3), flexible_since=2):
    topics: list[CreatePartitionsTopic] = on_wire(Array(CreatePartitionsTopic))
    """Topics to grow."""
    timeout_ms: int = on_wire(INT32)
    """How long the broker may take."""
    validate_only: bool = on_wire(BOOL)
    """Whether to check only, and change nothing."""


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    results: list[CreatePartitionsTopicResult] = on_wire(Array(CreatePartitionsTopicResult))
    """One answer for each item of the request."""
