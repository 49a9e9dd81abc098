"""DeleteTopics: delete topics by name, from version 6 on also by id."""

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


class DeleteTopicState(Struct):
    name: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Name of the topic; null when the id is given."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic, zero if not known."""


class DeleteTopicsRequest(Message, api_key=20, versions=(0, 6), flexible_since=4):
    topics: list[DeleteTopicState] = on_wire(Array(DeleteTopicState), since=6)
    """Topics by name or by id."""
    topic_names: list[str] = on_wire(Array(STRING), until=5, ignorable=True)
    """Names of the topics."""
    timeout_ms: int = on_wire(INT32)
    """Time-out of the operation in ms."""


class DeletableTopicResult(Struct):
    name: str | None = on_wire(STRING, nullable=6)
    """Name of the topic; null for an id that is not known."""
    topic_id: bytes = on_wire(UUID, since=6, ignorable=True)
    """Id of the topic, zero if not known."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""


class DeleteTopicsResponse(Message, api_key=20, versions=(0, 6), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    responses: list[DeletableTopicResult] = on_wire(Array(DeletableTopicResult))
    """One result for each topic."""
