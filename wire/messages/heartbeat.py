"""Heartbeat (API 12)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible_since=4):
    group_id: str = on_wire(STRING)
    generation_id: int = on_wire(INT32)
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    error_code: int = on_wire(INT16)
