"""CreatePartitions (API 37)."""

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


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopic(Struct):
    name: str = on_wire(STRING)
    count: int = on_wire(INT32)
    assignments: list[CreatePartitionsAssignment] | None = on_wire(
        Array(CreatePartitionsAssignment), nullable=ALL
    )


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest(Message, api_key=37, versions=(0, 3), flexible_since=2):
    topics: list[CreatePartitionsTopic] = on_wire(Array(CreatePartitionsTopic))
    timeout_ms: int = on_wire(INT32)
    validate_only: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsTopicResult(Struct):
    name: str = on_wire(STRING)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    results: list[CreatePartitionsTopicResult] = on_wire(Array(CreatePartitionsTopicResult))
