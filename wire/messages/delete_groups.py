"""DeleteGroups: delete groups without members, with their offsets."""

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


class DeleteGroupsRequest(Message, api_key=42, versions=(0, 3), flexible_since=2):
    groups_names: list[str] = on_wire(Array(STRING))
    """Ids of the groups to delete."""


class DeletableGroupResult(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, since=3, default=None, nullable=ALL, ignorable=True)
    """Message of the error, null for none."""


class DeleteGroupsResponse(Message, api_key=42, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    results: list[DeletableGroupResult] = on_wire(Array(DeletableGroupResult))
    """One result for each item of the request."""
