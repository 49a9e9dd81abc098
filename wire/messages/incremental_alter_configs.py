"""IncrementalAlterConfigs: change some settings of a resource."""

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


class AlterableConfig(Struct):
    name: str = on_wire(STRING)
    """Name of the setting."""
    config_operation: int = on_wire(INT8)
    """0 set, 1 delete, 2 append to a list, 3 subtract from a list."""
    value: str | None = on_wire(STRING, nullable=ALL, hidden=True)
    """New value as text, null for the default."""


class AlterConfigsResource(Struct):
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    configs: list[AlterableConfig] = on_wire(Array(AlterableConfig))
    """Settings to change; others stay."""


class IncrementalAlterConfigsRequest(Message, api_key=44, versions=(0, 1), flexible_since=1):
    resources: list[AlterConfigsResource] = on_wire(Array(AlterConfigsResource))
    """Resources to change."""
    validate_only: bool = on_wire(BOOL)
    """Whether to validate only, without a change."""


class AlterConfigsResourceResponse(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=(0, 1), flexible_since=1):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    responses: list[AlterConfigsResourceResponse] = on_wire(Array(AlterConfigsResourceResponse))
    """One result for each topic."""
