"""The address of a broker for a client: in Metadata, FindCoordinator, DescribeCluster and leader hints.

The address of this node comes from the connection: the advertised address of its listener (a name in
`listeners` is one too), or else the local address of the connection, so that one broker serves loopback, LAN
and container addresses at once. The address of another node is the endpoint that it registered under the
connection's listener name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.config.listeners import WILDCARDS

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.coordinator.cluster.view import (
        Broker,
        ClusterView,
    )


def address_of(broker: Broker, connection: ConnectionInfo, node_id: int) -> tuple[str, int] | None:
    """Host and port for this client; None when the broker does not have the client's listener."""
    if broker.node_id == node_id:
        return connection.advertised_host, connection.advertised_port
    endpoint = broker.endpoints.get(connection.listener_name)
    if endpoint is None:
        return None
    if endpoint.host in WILDCARDS:
        # Of a worker: it listens where this one does (`config/workers.py`).
        return connection.local_host, endpoint.port
    return endpoint.host, endpoint.port


def reachable_brokers(
    view: ClusterView, connection: ConnectionInfo, node_id: int
) -> list[tuple[Broker, str, int]]:
    """Every broker that is alive and has the client's listener, with its address, by node id."""
    return reachable(view.brokers, connection, node_id)


def reachable(
    brokers: Mapping[int, Broker], connection: ConnectionInfo, node_id: int
) -> list[tuple[Broker, str, int]]:
    """Brokers that have the client's listener, with their addresses, by node id."""
    found = []
    for _, broker in sorted(brokers.items()):
        address = address_of(broker, connection, node_id)
        if address is not None:
            found.append((broker, *address))
    return found
