"""LeaveGroup (API 13)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class MemberIdentity(Struct):
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    reason: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)


@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest(Message, api_key=13, versions=(0, 5), flexible_since=4):
    group_id: str = on_wire(STRING)
    member_id: str = on_wire(STRING, until=2)
    members: list[MemberIdentity] = on_wire(Array(MemberIdentity), since=3)


@dataclass(slots=True, kw_only=True)
class MemberResponse(Struct):
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, nullable=ALL)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    error_code: int = on_wire(INT16)
    members: list[MemberResponse] = on_wire(Array(MemberResponse), since=3)
