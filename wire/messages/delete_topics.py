"""DeleteTopics (API 20)."""

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
class DeleteTopicState(Struct):
    name: str | None = on_wire(STRING, default=None, nullable=ALL)
    topic_id: bytes = on_wire(UUID)


@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest(Message, api_key=20, versions=(0, 6), flexible_since=4):
    topics: list[DeleteTopicState] = on_wire(Array(DeleteTopicState), since=6)
    topic_names: list[str] = on_wire(Array(STRING), until=5, ignorable=True)
    timeout_ms: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class DeletableTopicResult(Struct):
    name: str | None = on_wire(STRING, nullable=6)
    topic_id: bytes = on_wire(UUID, since=6, ignorable=True)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)


@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse(Message, api_key=20, versions=(0, 6), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    responses: list[DeletableTopicResult] = on_wire(Array(DeletableTopicResult))
