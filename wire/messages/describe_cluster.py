"""DescribeCluster: brokers and controller; version 1 can ask for controllers, 2 for fenced brokers."""

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
class DescribeClusterRequest(Message, api_key=60, versions=(0, 2), flexible_since=0):
    include_cluster_authorized_operations: bool = on_wire(BOOL)
    """Whether to say what the caller may do with the cluster."""
    endpoint_type: int = on_wire(INT8, since=1, default=1)
    """1 for brokers, 2 for controllers."""
    include_fenced_brokers: bool = on_wire(BOOL, since=2)
    """Whether to list brokers that are fenced, too."""


@dataclass(slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    """More about the error, null if there is none."""
    endpoint_type: int = on_wire(INT8, since=1, default=1)
    """1 for brokers, 2 for controllers."""
    cluster_id: str = on_wire(STRING)
    """Id of the cluster."""
    controller_id: int = on_wire(INT32, default=-1)
    """Broker to which administrative requests go, -1 for none."""
    brokers: list[DescribeClusterBroker] = on_wire(Array(DescribeClusterBroker))
    """Every live broker, with the address for the listener that was asked."""
    cluster_authorized_operations: int = on_wire(INT32, default=-(2**31))
    """Bit set of what the caller may do with the cluster; the lowest number when not asked for."""
