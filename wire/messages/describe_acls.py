"""DescribeAcls: list the access control bindings that match a filter."""

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


class DescribeAclsRequest(Message, api_key=29, versions=(0, 3), flexible_since=2):
    resource_type_filter: int = on_wire(INT8)
    """Only bindings for this type of resource, 1 for any."""
    resource_name_filter: str | None = on_wire(STRING, nullable=ALL)
    """Only bindings for this name, null for any."""
    pattern_type_filter: int = on_wire(INT8, since=1, default=3)
    """Only bindings with this kind of name: 1 any, 2 all that match the name, 3 literal, 4 prefix."""
    principal_filter: str | None = on_wire(STRING, nullable=ALL)
    """Only bindings of this principal, null for any."""
    host_filter: str | None = on_wire(STRING, nullable=ALL)
    """Only bindings for this host, null for any."""
    operation: int = on_wire(INT8)
    """Operation of the binding, by Kafka's number."""
    permission_type: int = on_wire(INT8)
    """2 deny, 3 allow; in filters 1 for both."""


class AclDescription(Struct):
    principal: str = on_wire(STRING)
    """Such as User:alice."""
    host: str = on_wire(STRING)
    """Host name or address."""
    operation: int = on_wire(INT8)
    """Operation of the binding, by Kafka's number."""
    permission_type: int = on_wire(INT8)
    """2 deny, 3 allow; in filters 1 for both."""


class DescribeAclsResource(Struct):
    resource_type: int = on_wire(INT8)
    """Type of the resource, by Kafka's number."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    pattern_type: int = on_wire(INT8, since=1, default=3)
    """Pattern type of the resource name: 3 literal, 4 prefix."""
    acls: list[AclDescription] = on_wire(Array(AclDescription))
    """The bindings of this resource."""


class DescribeAclsResponse(Message, api_key=29, versions=(0, 3), flexible_since=2):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    resources: list[DescribeAclsResource] = on_wire(Array(DescribeAclsResource))
    """Resources with bindings that match the filter."""
