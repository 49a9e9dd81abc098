"""DeleteShareGroupOffsets: delete the offsets of a share group (KIP-932)."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    on_wire,
)


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""


class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = on_wire(Array(DeleteShareGroupOffsetsRequestTopic))
    """Topics with the partitions to remove."""


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = on_wire(STRING)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""


class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    responses: list[DeleteShareGroupOffsetsResponseTopic] = on_wire(
        Array(DeleteShareGroupOffsetsResponseTopic)
    )
    """One result for each topic."""
