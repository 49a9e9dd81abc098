"""FindCoordinator: the broker that coordinates a group or a transactional id.

Version 4 looks up many keys at once.
"""

from odradek.wire.schema import (
    ALL,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class FindCoordinatorRequest(Message, api_key=10, versions=(0, 6), flexible_since=3):
    key: str = on_wire(STRING, until=3)
    """Group id or transactional id to look up."""
    key_type: int = on_wire(INT8, since=1)
    """0 for a group, 1 for a transactional id, 2 for a share group's partition."""
    coordinator_keys: list[str] = on_wire(Array(STRING), since=4)
    """Group ids or transactional ids to look up."""


class Coordinator(Struct):
    key: str = on_wire(STRING)
    """The key that was looked up."""
    node_id: int = on_wire(INT32)
    """Id of the coordinator, -1 if there is none."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(INT32)
    """Port number."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""


class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16, until=3)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=1, until=3, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""
    node_id: int = on_wire(INT32, until=3)
    """Id of the coordinator, -1 if there is none."""
    host: str = on_wire(STRING, until=3)
    """Host name of the coordinator."""
    port: int = on_wire(INT32, until=3)
    """Port number."""
    coordinators: list[Coordinator] = on_wire(Array(Coordinator), since=4)
    """One result for each key."""
