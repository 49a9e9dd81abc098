"""DescribeConfigs: settings of topics, brokers and others, with the source of each value."""

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


class DescribeConfigsResource(Struct):
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    configuration_keys: list[str] | None = on_wire(Array(STRING), nullable=ALL)
    """Names of the settings to describe, null for all of them."""


class DescribeConfigsRequest(Message, api_key=32, versions=(0, 4), flexible_since=4):
    resources: list[DescribeConfigsResource] = on_wire(Array(DescribeConfigsResource))
    """Resources to describe."""
    include_synonyms: bool = on_wire(BOOL, since=1)
    """Whether to return the synonyms of each setting."""
    include_documentation: bool = on_wire(BOOL, since=3)
    """Whether to return the documentation of each setting."""


class DescribeConfigsSynonym(Struct):
    name: str = on_wire(STRING)
    """Name of the setting there, such as log.retention.ms for the topic's retention.ms."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value there, null if it is a secret."""
    source: int = on_wire(INT8)
    """Source of the value, numbered as config_source."""


class DescribeConfigsResourceResult(Struct):
    name: str = on_wire(STRING)
    """Name of the setting."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value as text, null if it is a secret."""
    read_only: bool = on_wire(BOOL)
    """Whether the value cannot be altered while the broker runs."""
    is_default: bool = on_wire(BOOL, until=0)
    """Whether the value is the default one; later versions have the source."""
    config_source: int = on_wire(INT8, since=1, default=-1, ignorable=True)
    """Source of the value: 1 topic, 2 this broker, 3 all brokers, 4 server.properties, 5 default, 8
    group.
    """
    is_sensitive: bool = on_wire(BOOL)
    """Whether the value is a secret, which is not returned."""
    synonyms: list[DescribeConfigsSynonym] = on_wire(Array(DescribeConfigsSynonym), since=1, ignorable=True)
    """Synonyms of the setting, the effective one first."""
    config_type: int = on_wire(INT8, since=3, ignorable=True)
    """Type of the value: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    """
    documentation: str | None = on_wire(STRING, since=3, nullable=ALL, ignorable=True)
    """Documentation of the setting."""


class DescribeConfigsResult(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    configs: list[DescribeConfigsResourceResult] = on_wire(Array(DescribeConfigsResourceResult))
    """Settings by name."""


class DescribeConfigsResponse(Message, api_key=32, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    results: list[DescribeConfigsResult] = on_wire(Array(DescribeConfigsResult))
    """One result for each item of the request."""
