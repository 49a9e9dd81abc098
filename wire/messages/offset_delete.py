"""OffsetDelete: forget the offsets of a group for some partitions; it never became flexible."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequestTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetDeleteRequestPartition] = on_wire(Array(OffsetDeleteRequestPartition))
    """Partitions to forget."""


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest(Message, api_key=47, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[OffsetDeleteRequestTopic] = on_wire(Array(OffsetDeleteRequestTopic))
    """Topics with the partitions to forget."""


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponseTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetDeleteResponsePartition] = on_wire(Array(OffsetDeleteResponsePartition))
    """One answer for each partition."""


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse(Message, api_key=47, versions=(0, 0)):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    topics: list[OffsetDeleteResponseTopic] = on_wire(Array(OffsetDeleteResponseTopic))
    """One answer for each topic."""
