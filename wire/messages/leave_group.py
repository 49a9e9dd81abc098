"""LeaveGroup: give up membership, from version 3 on for several members at once."""

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


class MemberIdentity(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member; may be empty for a static one."""
    group_instance_id: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    reason: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """The reason, for the broker's log."""


class LeaveGroupRequest(Message, api_key=13, versions=(0, 5), flexible_since=4):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    member_id: str = on_wire(STRING, until=2)
    """Member that leaves, in versions with one member."""
    members: list[MemberIdentity] = on_wire(Array(MemberIdentity), since=3)
    """Members that leave."""


class MemberResponse(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""


class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    members: list[MemberResponse] = on_wire(Array(MemberResponse), since=3)
    """One result for each member."""
