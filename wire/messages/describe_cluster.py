"""DescribeCluster: brokers and controller; version 1 can request controllers, 2 fenced brokers."""

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


class DescribeClusterRequest(Message, api_key=60, versions=(0, 2), flexible_since=0):
    include_cluster_authorized_operations: bool = on_wire(BOOL)
    """Whether to return the caller's authorised operations on the cluster."""
    endpoint_type: int = on_wire(INT8, since=1, default=1)
    """1 for brokers, 2 for controllers."""
    include_fenced_brokers: bool = on_wire(BOOL, since=2)
    """Whether to list brokers that are fenced, too."""


class DescribeClusterBroker(Struct):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(INT32)
    """Port number."""
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Rack of the broker, null if it has none."""
    is_fenced: bool = on_wire(BOOL, since=2)
    """Whether the broker is fenced, that is registered but not in service."""


class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """Message of the error, null for none."""
    endpoint_type: int = on_wire(INT8, since=1, default=1)
    """1 for brokers, 2 for controllers."""
    cluster_id: str = on_wire(STRING)
    """Id of the cluster."""
    controller_id: int = on_wire(INT32, default=-1)
    """Broker to which administrative requests go, -1 for none."""
    brokers: list[DescribeClusterBroker] = on_wire(Array(DescribeClusterBroker))
    """Every live broker, with its address of the client's listener."""
    cluster_authorized_operations: int = on_wire(INT32, default=-(2**31))
    """Bit set of the caller's authorised operations on the cluster; the lowest int32 if not requested."""
