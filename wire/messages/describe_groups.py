"""DescribeGroups: state and members of classic groups."""

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


class DescribeGroupsRequest(Message, api_key=15, versions=(0, 6), flexible_since=5):
    groups: list[str] = on_wire(Array(STRING))
    """Ids of the groups."""
    include_authorized_operations: bool = on_wire(BOOL, since=3)
    """Whether to return the operations for which the caller is authorised."""


class DescribedGroupMember(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=4, default=None, nullable=ALL, ignorable=True)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    client_id: str = on_wire(STRING)
    """Client id of the member's requests."""
    client_host: str = on_wire(STRING)
    """Host of the member."""
    member_metadata: bytes = on_wire(BYTES)
    """The member's metadata from its join, opaque to the broker."""
    member_assignment: bytes = on_wire(BYTES)
    """The leader's assignment of the member, opaque to the broker."""


class DescribedGroup(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=6, default=None, nullable=ALL)
    """Message of the error, null for none."""
    group_id: str = on_wire(STRING)
    """Id of the group."""
    group_state: str = on_wire(STRING)
    """State by name, such as Stable; Dead for a group that does not exist."""
    protocol_type: str = on_wire(STRING)
    """Kind of group, such as consumer or connect."""
    protocol_data: str = on_wire(STRING)
    """The assignment strategy that the group chose; empty while it has none."""
    members: list[DescribedGroupMember] = on_wire(Array(DescribedGroupMember))
    """Members of the group."""
    authorized_operations: int = on_wire(INT32, since=3, default=-(2**31))
    """Bit set of the caller's authorised operations; the lowest int32 if not requested."""


class DescribeGroupsResponse(Message, api_key=15, versions=(0, 6), flexible_since=5):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    groups: list[DescribedGroup] = on_wire(Array(DescribedGroup))
    """One description for each group."""
