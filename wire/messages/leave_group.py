"""LeaveGroup: give up membership, from version 3 on for several members at once."""

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
    """Id of the member; may be empty for a static one."""
    group_instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""
    reason: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Why, for the broker's log."""


@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest(Message, api_key=13, versions=(0, 5), flexible_since=4):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING, until=2)
    """Member that leaves, while there was only one to a request."""
    members: list[MemberIdentity] = on_wire(Array(MemberIdentity), since=3)
    """Members that leave."""


@dataclass(slots=True, kw_only=True)
class MemberResponse(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, nullable=ALL)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""


@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    members: list[MemberResponse] = on_wire(Array(MemberResponse), since=3)
    """One answer for each member."""
