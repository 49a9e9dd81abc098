"""DescribeCluster (API 60)."""

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
    endpoint_type: int = on_wire(INT8, since=1, default=1)
    include_fenced_brokers: bool = on_wire(BOOL, since=2)


@dataclass(slots=True, kw_only=True)
class DescribeClusterBroker(Struct):
    broker_id: int = on_wire(INT32)
    host: str = on_wire(STRING)
    port: int = on_wire(INT32)
    rack: str | None = on_wire(STRING, default=None, nullable=ALL)
    is_fenced: bool = on_wire(BOOL, since=2)


@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, default=None, nullable=ALL)
    endpoint_type: int = on_wire(INT8, since=1, default=1)
    cluster_id: str = on_wire(STRING)
    controller_id: int = on_wire(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = on_wire(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = on_wire(INT32, default=-(2**31))
