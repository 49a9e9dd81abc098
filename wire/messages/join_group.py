"""JoinGroup: become a member of a classic group, and get the result of the rebalance.

From version 4 on the response to a first join has the member id for the next join, 5 has static members.
"""

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


class JoinGroupRequestProtocol(Struct):
    name: str = on_wire(STRING)
    """Name of the assignment strategy."""
    metadata: bytes = on_wire(BYTES)
    """Metadata of the member for the strategy, such as its subscription; opaque to the broker."""


class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible_since=6):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    session_timeout_ms: int = on_wire(INT32)
    """Session time-out in ms: without a heartbeat the member is removed."""
    rebalance_timeout_ms: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """Time-out of the member's revocations and joins in a rebalance, in ms."""
    member_id: str = on_wire(STRING)
    """Empty for the first join."""
    group_instance_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    protocol_type: str = on_wire(STRING)
    """Kind of group, such as consumer or connect."""
    protocols: list[JoinGroupRequestProtocol] = on_wire(Array(JoinGroupRequestProtocol))
    """The member's assignment strategies, most wanted first."""
    reason: str | None = on_wire(STRING, since=8, default=None, nullable=ALL, ignorable=True)
    """The reason, for the broker's log."""


class JoinGroupResponseMember(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    metadata: bytes = on_wire(BYTES)
    """The member's metadata for the chosen strategy."""


class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    generation_id: int = on_wire(INT32, default=-1)
    """The new generation of the group."""
    protocol_type: str | None = on_wire(STRING, since=7, default=None, nullable=ALL, ignorable=True)
    """Kind of group, such as consumer or connect."""
    protocol_name: str | None = on_wire(STRING, nullable=7)
    """The assignment strategy that the group chose; null after an error from version 7 on."""
    leader: str = on_wire(STRING)
    """Member id of the member that assigns the partitions."""
    skip_assignment: bool = on_wire(BOOL, since=9)
    """True if the leader can skip the assignment, as for a returning static member."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    members: list[JoinGroupResponseMember] = on_wire(Array(JoinGroupResponseMember))
    """All members, for the leader, which assigns; empty for other members."""
