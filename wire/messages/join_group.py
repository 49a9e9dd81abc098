"""JoinGroup: become a member of a classic group, and learn the outcome of the rebalance.

Version 4 answers a first join with a member id to join with, 5 has static members.
"""

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
    """Name of the assignment strategy."""
    metadata: bytes = on_wire(BYTES)
    """What the strategy needs to know of the member, such as its subscription; opaque to the broker."""


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest(Message, api_key=11, versions=(0, 9), flexible_since=6):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    session_timeout_ms: int = on_wire(INT32)
    """A member that sends no heartbeat for so long is taken for dead."""
    rebalance_timeout_ms: int = on_wire(INT32, since=1, default=-1, ignorable=True)
    """How long the member may take to give up its partitions or to join again."""
    member_id: str = on_wire(STRING)
    """Empty to join for the first time."""
    group_instance_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""
    protocol_type: str = on_wire(STRING)
    """Kind of group, such as consumer or connect."""
    protocols: list[JoinGroupRequestProtocol] = on_wire(Array(JoinGroupRequestProtocol))
    """The member's assignment strategies, most wanted first."""
    reason: str | None = on_wire(STRING, since=8, default=None, nullable=ALL, ignorable=True)
    """Why, for the broker's log."""


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""
    metadata: bytes = on_wire(BYTES)
    """What the member sent for the chosen strategy."""


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible_since=6):
    throttle_time_ms: int = on_wire(INT32, since=2, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    generation_id: int = on_wire(INT32, default=-1)
    """The new generation of the group."""
    protocol_type: str | None = on_wire(STRING, since=7, default=None, nullable=ALL, ignorable=True)
    """Kind of group, such as consumer or connect."""
    protocol_name: str | None = on_wire(STRING, nullable=7)
    """The assignment strategy that the group chose; null after an error from version 7 on."""
    leader: str = on_wire(STRING)
    """Member id of the member that assigns the partitions."""
    skip_assignment: bool = on_wire(BOOL, since=9)
    """True when the leader need not assign anew, as for a static member that came back."""
    member_id: str = on_wire(STRING)
    """Id that the broker knows the member by."""
    members: list[JoinGroupResponseMember] = on_wire(Array(JoinGroupResponseMember))
    """All members for the leader, which assigns; empty for everybody else."""
