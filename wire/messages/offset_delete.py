"""OffsetDelete: delete the offsets of a group for some partitions; it never became flexible."""

from odradek.wire.schema import (
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""


class OffsetDeleteRequestTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetDeleteRequestPartition] = on_wire(Array(OffsetDeleteRequestPartition))
    """Partitions to remove."""


class OffsetDeleteRequest(Message, api_key=47, versions=(0, 0)):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[OffsetDeleteRequestTopic] = on_wire(Array(OffsetDeleteRequestTopic))
    """Topics with the partitions to remove."""


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class OffsetDeleteResponseTopic(Struct):
    name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[OffsetDeleteResponsePartition] = on_wire(Array(OffsetDeleteResponsePartition))
    """One result for each partition."""


class OffsetDeleteResponse(Message, api_key=47, versions=(0, 0)):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    throttle_time_ms: int = on_wire(INT32, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    topics: list[OffsetDeleteResponseTopic] = on_wire(Array(OffsetDeleteResponseTopic))
    """One result for each topic."""
