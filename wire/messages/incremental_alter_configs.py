"""IncrementalAlterConfigs (API 44)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BOOL,
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
class AlterableConfig(Struct):
    name: str = on_wire(STRING)
    config_operation: int = on_wire(INT8)
    value: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class AlterConfigsResource(Struct):
    resource_type: int = on_wire(INT8)
    resource_name: str = on_wire(STRING)
    configs: list[AlterableConfig] = on_wire(Array(AlterableConfig))


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsRequest(Message, api_key=44, versions=(0, 1), flexible_since=1):
    resources: list[AlterConfigsResource] = on_wire(Array(AlterConfigsResource))
    validate_only: bool = on_wire(BOOL)


@dataclass(slots=True, kw_only=True)
class AlterConfigsResourceResponse(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    resource_type: int = on_wire(INT8)
    resource_name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResponse(Message, api_key=44, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = on_wire(INT32)
    responses: list[AlterConfigsResourceResponse] = on_wire(Array(AlterConfigsResourceResponse))
