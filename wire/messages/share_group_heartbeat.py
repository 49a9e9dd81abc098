"""ShareGroupHeartbeat (API 76)."""

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
class ShareGroupHeartbeatRequest(Message, api_key=76, versions=(1, 1), flexible_since=0):
    group_id: str = on_wire(STRING)
    member_id: str = on_wire(STRING)
    member_epoch: int = on_wire(INT32)
    rack_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    subscribed_topic_names: list[str] | None = on_wire(Array(STRING), default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class TopicPartitions(Struct):
    topic_id: bytes = on_wire(UUID)
    partitions: list[int] = on_wire(Array(INT32))


@dataclass(slots=True, kw_only=True)
class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = on_wire(Array(TopicPartitions))


@dataclass(slots=True, kw_only=True)
class ShareGroupHeartbeatResponse(Message, api_key=76, versions=(1, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    member_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    member_epoch: int = on_wire(INT32)
    heartbeat_interval_ms: int = on_wire(INT32)
    assignment: Assignment | None = on_wire(Assignment, default=None, nullable=ALL)
