"""DeleteAcls (API 31)."""

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
class DeleteAclsFilter(Struct):
    resource_type_filter: int = on_wire(INT8)
    resource_name_filter: str | None = on_wire(STRING, nullable=ALL)
    pattern_type_filter: int = on_wire(INT8, since=1, default=3)
    principal_filter: str | None = on_wire(STRING, nullable=ALL)
    host_filter: str | None = on_wire(STRING, nullable=ALL)
    operation: int = on_wire(INT8)
    permission_type: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class DeleteAclsRequest(Message, api_key=31, versions=(0, 3), flexible_since=2):
    filters: list[DeleteAclsFilter] = on_wire(Array(DeleteAclsFilter))


@dataclass(slots=True, kw_only=True)
class DeleteAclsMatchingAcl(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    resource_type: int = on_wire(INT8)
    resource_name: str = on_wire(STRING)
    pattern_type: int = on_wire(INT8, since=1, default=3)
    principal: str = on_wire(STRING)
    host: str = on_wire(STRING)
    operation: int = on_wire(INT8)
    permission_type: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class DeleteAclsFilterResult(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    matching_acls: list[DeleteAclsMatchingAcl] = on_wire(Array(DeleteAclsMatchingAcl))


@dataclass(slots=True, kw_only=True)
class DeleteAclsResponse(Message, api_key=31, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    filter_results: list[DeleteAclsFilterResult] = on_wire(Array(DeleteAclsFilterResult))
