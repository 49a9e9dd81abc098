"""Heartbeat: a member of a classic group is alive, and gets notice of rebalances."""

from odradek.wire.schema import (
    ALL,
    INT16,
    INT32,
    STRING,
    Message,
    on_wire,
)


class HeartbeatRequest(Message, api_key=12, versions=(0, 4), flexible_since=4):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    generation_id: int = on_wire(INT32)
    """The member's generation."""
    member_id: str = on_wire(STRING)
    """Id of the member."""
    group_instance_id: str | None = on_wire(STRING, since=3, default=None, nullable=ALL)
    """Instance id of a static member, which keeps its membership over restarts; null for a dynamic member."""


class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
