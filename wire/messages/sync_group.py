"""SyncGroup (API 14)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BYTES,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment(Struct):
    member_id: str = on_wire(STRING)
    assignment: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible_since=4):
    group_id: str = on_wire(STRING)
    generation_id: int = on_wire(INT32)
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    protocol_type: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    protocol_name: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = on_wire(Array(SyncGroupRequestAssignment))


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    error_code: int = on_wire(INT16)
    protocol_type: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    protocol_name: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    assignment: bytes = on_wire(BYTES)
