"""ListPartitionReassignments (API 46)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsTopics(Struct):
    name: str = on_wire(STRING)
    partition_indexes: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsRequest(Message, api_key=46, versions=(0, 0), flexible_since=0):
    timeout_ms: int = on_wire(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = on_wire(
        Array(ListPartitionReassignmentsTopics), default=None, nullable=ALL
    )


@dataclass(slots=True, kw_only=True)
class OngoingPartitionReassignment(Struct):
    partition_index: int = on_wire(INT32)
    replicas: list[int] = on_wire(Array(INT32))
    adding_replicas: list[int] = on_wire(Array(INT32))
    removing_replicas: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class OngoingTopicReassignment(Struct):
    name: str = on_wire(STRING)
    partitions: list[OngoingPartitionReassignment] = on_wire(Array(OngoingPartitionReassignment))


@dataclass(slots=True, kw_only=True)
class ListPartitionReassignmentsResponse(Message, api_key=46, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    topics: list[OngoingTopicReassignment] = on_wire(Array(OngoingTopicReassignment))
