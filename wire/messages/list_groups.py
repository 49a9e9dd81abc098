"""ListGroups: every group that this broker coordinates; version 4 filters by state, 5 by type."""

from odradek.wire.schema import (
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class ListGroupsRequest(Message, api_key=16, versions=(0, 5), flexible_since=3):
    states_filter: list[str] = on_wire(Array(STRING), since=4)
    """Only groups in these states; empty for all."""
    types_filter: list[str] = on_wire(Array(STRING), since=5)
    """Only groups of these types; empty for all."""


class ListedGroup(Struct):
    group_id: str = on_wire(STRING)
    """Id of the group."""
    protocol_type: str = on_wire(STRING)
    """Kind of group, such as consumer; empty for one that only holds offsets."""
    group_state: str = on_wire(STRING, since=4, ignorable=True)
    """State of the group by name."""
    group_type: str = on_wire(STRING, since=5, ignorable=True)
    """classic, consumer, share or streams."""


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible_since=3):
    throttle_time_ms: int = on_wire(INT32, since=1, ignorable=True)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    groups: list[ListedGroup] = on_wire(Array(ListedGroup))
    """Groups that pass the filters."""
