"""ListConfigResources (API 74)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class ListConfigResourcesRequest(Message, api_key=74, versions=(0, 1), flexible_since=0):
    resource_types: list[int] = on_wire(Array(INT8), since=1)


@dataclass(slots=True, kw_only=True)
class ConfigResource(Struct):
    resource_name: str = on_wire(STRING)
    resource_type: int = on_wire(INT8, since=1, default=16, ignorable=True)


@dataclass(slots=True, kw_only=True)
class ListConfigResourcesResponse(Message, api_key=74, versions=(0, 1), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    config_resources: list[ConfigResource] = on_wire(Array(ConfigResource))
