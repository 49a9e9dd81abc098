"""AlterConfigs: replace all settings of a resource at once."""

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
    value: str | None = on_wire(STRING, nullable=ALL, hidden=True)
    """New value as text, null for the default."""


class AlterConfigsResource(Struct):
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    configs: list[AlterableConfig] = on_wire(Array(AlterableConfig))
    """All settings of the resource; others return to their defaults."""


class AlterConfigsRequest(Message, api_key=33, versions=(0, 2), flexible_since=2):
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


class AlterConfigsResponse(Message, api_key=33, versions=(0, 2), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    responses: list[AlterConfigsResourceResponse] = on_wire(Array(AlterConfigsResourceResponse))
    """One result for each topic."""
