"""DescribeAcls (API 29)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
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
class DescribeAclsRequest(Message, api_key=29, versions=(0, 3), flexible_since=2):
    resource_type_filter: int = on_wire(INT8)
    resource_name_filter: str | None = on_wire(STRING, nullable=ALL)
    pattern_type_filter: int = on_wire(INT8, since=1, default=3)
    principal_filter: str | None = on_wire(STRING, nullable=ALL)
    host_filter: str | None = on_wire(STRING, nullable=ALL)
    operation: int = on_wire(INT8)
    permission_type: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class AclDescription(Struct):
    principal: str = on_wire(STRING)
    host: str = on_wire(STRING)
    operation: int = on_wire(INT8)
    permission_type: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class DescribeAclsResource(Struct):
    resource_type: int = on_wire(INT8)
    resource_name: str = on_wire(STRING)
    pattern_type: int = on_wire(INT8, since=1, default=3)
    acls: list[AclDescription] = on_wire(Array(AclDescription))


@dataclass(slots=True, kw_only=True)
class DescribeAclsResponse(Message, api_key=29, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    resources: list[DescribeAclsResource] = on_wire(Array(DescribeAclsResource))
