"""DeleteGroups (API 42)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest(Message, api_key=42, versions=(0, 2), flexible_since=2):
    groups_names: list[str] = on_wire(Array(STRING))


@dataclass(slots=True, kw_only=True)
class DeletableGroupResult(Struct):
    group_id: str = on_wire(STRING)
    error_code: int = on_wire(INT16)


@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse(Message, api_key=42, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    results: list[DeletableGroupResult] = on_wire(Array(DeletableGroupResult))
