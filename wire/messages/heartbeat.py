"""Heartbeat: a member of a classic group is alive, and learns of rebalances."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible_since=4):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    generation_id: int = on_wire(INT32)
    """Generation in which the member believes."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    """Name of a static member, which keeps its place over restarts; null for a dynamic one."""


@dataclass(slots=True, kw_only=True)
class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
