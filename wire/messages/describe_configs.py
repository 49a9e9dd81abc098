"""DescribeConfigs: settings of topics, brokers and others, with where each value comes from."""

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
class DescribeConfigsResource(Struct):
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    configuration_keys: list[str] | None = on_wire(Array(STRING), nullable=ALL)
    """Names of the settings to describe, null for all of them."""


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest(Message, api_key=32, versions=(0, 4), flexible_since=4):
    resources: list[DescribeConfigsResource] = on_wire(Array(DescribeConfigsResource))
    """Resources to tell of."""
    include_synonyms: bool = on_wire(BOOL, since=1)
    """Whether to add every place that could set the value."""
    include_documentation: bool = on_wire(BOOL, since=3)
    """Whether to add what each setting does."""


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym(Struct):
    name: str = on_wire(STRING)
    """Name of the setting there, such as log.retention.ms for the topic's retention.ms."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value there, null if it is a secret."""
    source: int = on_wire(INT8)
    """Where the value comes from, numbered as config_source."""


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult(Struct):
    name: str = on_wire(STRING)
    """Name of the setting."""
    value: str | None = on_wire(STRING, nullable=ALL)
    """Value as text, null if it is a secret."""
    read_only: bool = on_wire(BOOL)
    """Whether the value cannot be altered while the broker runs."""
    is_default: bool = on_wire(BOOL, until=0)
    """Whether the value is the default one; later versions say the source."""
    config_source: int = on_wire(INT8, since=1, default=-1, ignorable=True)
    """Where the value comes from: 1 topic, 2 this broker, 3 all brokers, 4 server.properties, 5 default, 8
    group.
    """
    is_sensitive: bool = on_wire(BOOL)
    """Whether the value is a secret, which is not told."""
    synonyms: list[DescribeConfigsSynonym] = on_wire(Array(DescribeConfigsSynonym), since=1, ignorable=True)
    """Every place that could set the value, the one in effect first."""
    config_type: int = on_wire(INT8, since=3, ignorable=True)
    """Type of the value: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    """
    documentation: str | None = on_wire(STRING, since=3, nullable=ALL, ignorable=True)
    """What the setting does."""


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult(Struct):
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """More about the error, null if there is none."""
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    configs: list[DescribeConfigsResourceResult] = on_wire(Array(DescribeConfigsResourceResult))
    """Settings by name."""


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse(Message, api_key=32, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    results: list[DescribeConfigsResult] = on_wire(Array(DescribeConfigsResult))
    """One answer for each item of the request."""
