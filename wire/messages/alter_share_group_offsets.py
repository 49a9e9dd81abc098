"""AlterShareGroupOffsets: set the start offsets of a share group (KIP-932)."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    start_offset: int = on_wire(INT64)
    """First offset that is not completely acknowledged."""


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = on_wire(
        Array(AlterShareGroupOffsetsRequestPartition)
    )
    """Partitions to set."""


class AlterShareGroupOffsetsRequest(Message, api_key=91, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[AlterShareGroupOffsetsRequestTopic] = on_wire(Array(AlterShareGroupOffsetsRequestTopic))
    """Topics with the partitions to set."""


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = on_wire(INT32)
    """Partition number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    partitions: list[AlterShareGroupOffsetsResponsePartition] = on_wire(
        Array(AlterShareGroupOffsetsResponsePartition)
    )
    """One result for each partition."""


class AlterShareGroupOffsetsResponse(Message, api_key=91, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    responses: list[AlterShareGroupOffsetsResponseTopic] = on_wire(Array(AlterShareGroupOffsetsResponseTopic))
    """One result for each topic."""
