"""ListConfigResources: names of the resources that have settings; version 0 lists client metrics only."""

from odradek.wire.schema import (
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class ListConfigResourcesRequest(Message, api_key=74, versions=(0, 1), flexible_since=0):
    resource_types: list[int] = on_wire(Array(INT8), since=1)
    """Only resources of these types; empty for all."""


class ConfigResource(Struct):
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    resource_type: int = on_wire(INT8, since=1, default=16, ignorable=True)
    """Type of the resource, by Kafka's number."""


class ListConfigResourcesResponse(Message, api_key=74, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    config_resources: list[ConfigResource] = on_wire(Array(ConfigResource))
    """The results."""
