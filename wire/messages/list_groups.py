"""ListGroups (API 16)."""

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
class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible_since=3):
    states_filter: list[str] = on_wire(Array(STRING), since=4)
    types_filter: list[str] = on_wire(Array(STRING), since=5)


@dataclass(slots=True, kw_only=True)
class ListedGroup(Struct):
    group_id: str = on_wire(STRING)
    protocol_type: str = on_wire(STRING)
    group_state: str = on_wire(STRING, since=4, ignorable=True)
    group_type: str = on_wire(STRING, since=5, ignorable=True)


@dataclass(slots=True, kw_only=True)
class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    error_code: int = on_wire(INT16)
    groups: list[ListedGroup] = on_wire(Array(ListedGroup))
