"""DescribeConfigs (API 32)."""

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
    resource_name: str = on_wire(STRING)
    configuration_keys: list[str] | None = on_wire(Array(STRING), nullable=ALL)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest(Message, api_key=32, versions=(0, 4), flexible_since=4):
    resources: list[DescribeConfigsResource] = on_wire(Array(DescribeConfigsResource))
    include_synonyms: bool = on_wire(BOOL, since=1)
    include_documentation: bool = on_wire(BOOL, since=3)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym(Struct):
    name: str = on_wire(STRING)
    value: str | None = on_wire(STRING, nullable=ALL)
    source: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult(Struct):
    name: str = on_wire(STRING)
    value: str | None = on_wire(STRING, nullable=ALL)
    read_only: bool = on_wire(BOOL)
    is_default: bool = on_wire(BOOL, until=0)
    config_source: int = on_wire(INT8, since=1, default=-1, ignorable=True)
    is_sensitive: bool = on_wire(BOOL)
    synonyms: list[DescribeConfigsSynonym] = on_wire(Array(DescribeConfigsSynonym), since=1, ignorable=True)
    config_type: int = on_wire(INT8, since=3, ignorable=True)
    documentation: str | None = on_wire(STRING, since=3, nullable=ALL, ignorable=True)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    resource_type: int = on_wire(INT8)
    resource_name: str = on_wire(STRING)
    configs: list[DescribeConfigsResourceResult] = on_wire(Array(DescribeConfigsResourceResult))


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse(Message, api_key=32, versions=(0, 4), flexible_since=4):
    throttle_time_ms: int = on_wire(INT32)
    results: list[DescribeConfigsResult] = on_wire(Array(DescribeConfigsResult))
