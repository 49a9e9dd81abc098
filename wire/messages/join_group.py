"""JoinGroup (API 11)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
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
class JoinGroupRequestProtocol(Struct):
    name: str = on_wire(STRING)
    metadata: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible_since=6):
    group_id: str = on_wire(STRING)
    session_timeout_ms: int = on_wire(INT32)
    rebalance_timeout_ms: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL)
    protocol_type: str = on_wire(STRING)
    protocols: list[JoinGroupRequestProtocol] = on_wire(Array(JoinGroupRequestProtocol))
    reason: str | None = on_wire(STRING, since=8, default=None, nullable=ALL, ignorable=True)


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember(Struct):
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    metadata: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    error_code: int = on_wire(INT16)
    generation_id: int = on_wire(INT32, default=-1)
    protocol_type: str | None = on_wire(STRING, since=7, default=None, nullable=ALL, ignorable=True)
    protocol_name: str | None = on_wire(STRING, nullable=7)
    leader: str = on_wire(STRING)
    skip_assignment: bool = on_wire(BOOL, since=9)
    member_id: str = on_wire(STRING)
    members: list[JoinGroupResponseMember] = on_wire(Array(JoinGroupResponseMember))
