"""DescribeGroups: state and members of classic groups."""

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
    """Ids of the groups."""
    include_authorized_operations: bool = on_wire(BOOL, since=3)
    """Whether to say what the caller may do."""


@dataclass(slots=True, kw_only=True)
class DescribedGroupMember(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=4, default=None, nullable=ALL, ignorable=True)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""
    client_id: str = on_wire(STRING)
    """Client id from the member's header."""
    client_host: str = on_wire(STRING)
    """Address from which the member came."""
    member_metadata: bytes = on_wire(BYTES)
    """What the member said when it joined, opaque to the broker."""
    member_assignment: bytes = on_wire(BYTES)
    """What the leader assigned to the member, opaque to the broker."""


@dataclass(slots=True, kw_only=True)
class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, since=6, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    group_id: str = on_wire(STRING)
    """Id of the group."""
    group_state: str = on_wire(STRING)
    """State by name, such as Stable; Dead for a group that is not there."""
    protocol_type: str = on_wire(STRING)
    """Kind of group, such as consumer or connect."""
    protocol_data: str = on_wire(STRING)
    """The assignment strategy that the group chose; empty while it has none."""
    members: list[DescribedGroupMember] = on_wire(Array(DescribedGroupMember))
    """Members of the group."""
    authorized_operations: int = on_wire(INT32, since=3, default=-(2**31))
    """Bit set of the operations that the caller may do; the lowest number when not asked for."""


@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible_since=5):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
    """One description for each group."""
