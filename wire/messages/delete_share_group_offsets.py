"""DeleteShareGroupOffsets (API 92)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class DeleteShareGroupOffsetsRequest(Message, api_key=92, versions=(0, 0), flexible_since=0):
    group_id: str = on_wire(STRING)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = on_wire(Array(DeleteShareGroupOffsetsRequestTopic))


@dataclass(slots=True, kw_only=True)
class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = on_wire(STRING)
    topic_id: bytes = on_wire(UUID)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DeleteShareGroupOffsetsResponse(Message, api_key=92, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = on_wire(
        Array(DeleteShareGroupOffsetsResponseTopic)
    )
