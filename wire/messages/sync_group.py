"""SyncGroup: the leader of a classic group sends the assignment, each member gets its part."""

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


class SyncGroupRequestAssignment(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    assignment: bytes = on_wire(BYTES)
    """The leader's assignment of the member, opaque to the broker."""


class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible_since=4):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    generation_id: int = on_wire(INT32)
    """The member's generation."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""
    protocol_type: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Kind of group, such as consumer or connect."""
    protocol_name: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """The assignment strategy that was chosen, as known to the member."""
    assignments: list[SyncGroupRequestAssignment] = on_wire(Array(SyncGroupRequestAssignment))
    """From the leader: the assignment of each member. Empty from other members."""


class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    protocol_type: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Kind of group, such as consumer or connect."""
    protocol_name: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """The assignment strategy that the group chose."""
    assignment: bytes = on_wire(BYTES)
    """The leader's assignment of the member, opaque to the broker."""
