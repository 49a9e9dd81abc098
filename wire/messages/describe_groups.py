"""DescribeGroups (API 15)."""

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
class DescribeGroupsRequest(Message, api_key=15, versions=(0, 6), flexible_since=5):
    groups: list[str] = on_wire(Array(STRING))
    include_authorized_operations: bool = on_wire(BOOL, since=3)


@dataclass(slots=True, kw_only=True)
class DescribedGroupMember(Struct):
    member_id: str = on_wire(STRING)
    group_instance_id: str | None = on_wire(STRING, since=4, default=None, nullable=ALL, ignorable=True)
    client_id: str = on_wire(STRING)
    client_host: str = on_wire(STRING)
    member_metadata: bytes = on_wire(BYTES)
    member_assignment: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, since=6, default=None, nullable=ALL)
    group_id: str = on_wire(STRING)
    group_state: str = on_wire(STRING)
    protocol_type: str = on_wire(STRING)
    protocol_data: str = on_wire(STRING)
    members: list[DescribedGroupMember] = on_wire(Array(DescribedGroupMember))
    authorized_operations: int = on_wire(INT32, since=3, default=-(2**31))


@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible_since=5):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
