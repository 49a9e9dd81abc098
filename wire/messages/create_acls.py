"""CreateAcls: add access control bindings."""

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


class AclCreation(Struct):
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    resource_pattern_type: int = on_wire(INT8, since=1, default=3)
    """Pattern type of the resource name: 3 literal, 4 prefix."""
    principal: str = on_wire(STRING)
    """Such as User:alice."""
    host: str = on_wire(STRING)
    """Host name or address."""
    operation: int = on_wire(INT8)
    """Operation of the binding, by Kafka's number."""
    permission_type: int = on_wire(INT8)
    """2 deny, 3 allow; in filters 1 for both."""


class CreateAclsRequest(Message, api_key=30, versions=(0, 3), flexible_since=2):
    creations: list[AclCreation] = on_wire(Array(AclCreation))
    """Bindings to create."""


class AclCreationResult(Struct):
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""


class CreateAclsResponse(Message, api_key=30, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    results: list[AclCreationResult] = on_wire(Array(AclCreationResult))
    """One result for each item of the request."""
