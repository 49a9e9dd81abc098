"""SyncGroup: the leader hands in the assignment of a classic group, everybody gets their part."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment(Struct):
    member_id: str = on_wire(STRING)
    """Id of the member."""
    assignment: bytes = on_wire(BYTES)
    """What the leader assigned to the member, opaque to the broker."""


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest(Message, api_key=14, versions=(0, 5), flexible_since=4):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    generation_id: int = on_wire(INT32)
    """Generation in which the member believes."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""
    protocol_type: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Kind of group, such as consumer or connect."""
    protocol_name: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """The assignment strategy that the member knows to be chosen."""
    assignments: list[SyncGroupRequestAssignment] = on_wire(Array(SyncGroupRequestAssignment))
    """From the leader: what each member gets. Empty from everybody else."""


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    protocol_type: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """Kind of group, such as consumer or connect."""
    protocol_name: str | None = on_wire(STRING, since=5, default=None, nullable=ALL, ignorable=True)
    """The assignment strategy that the group chose."""
    assignment: bytes = on_wire(BYTES)
    """What the leader assigned to the member, opaque to the broker."""
