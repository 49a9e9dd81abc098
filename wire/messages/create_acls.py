"""CreateAcls (API 30)."""

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
class AclCreation(Struct):
    resource_type: int = on_wire(INT8)
    resource_name: str = on_wire(STRING)
    resource_pattern_type: int = on_wire(INT8, since=1, default=3)
    principal: str = on_wire(STRING)
    host: str = on_wire(STRING)
    operation: int = on_wire(INT8)
    permission_type: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class CreateAclsRequest(Message, api_key=30, versions=(0, 3), flexible_since=2):
    creations: list[AclCreation] = on_wire(Array(AclCreation))


@dataclass(slots=True, kw_only=True)
class AclCreationResult(Struct):
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class CreateAclsResponse(Message, api_key=30, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    results: list[AclCreationResult] = on_wire(Array(AclCreationResult))
