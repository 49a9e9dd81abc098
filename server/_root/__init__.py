"""Odradek: a durable Kafka broker in Python.

    import odradek

    with odradek.Broker() as broker:
        print(broker.bootstrap_servers)

`Cluster` has several nodes, under controllers of Apache Kafka. It, `Broker`, `AsyncBroker` and their errors
are loaded on first use; `odradek.testing` has a container for testcontainers, and installing the package
brings pytest fixtures (`odradek_broker` and others).
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["AsyncBroker", "Broker", "BrokerStartError", "Cluster", "ClusterStartError", "__version__"]

if TYPE_CHECKING:
    from odradek.server.embedded import AsyncBroker, Broker, BrokerStartError
    from odradek.server.embedded_cluster import Cluster, ClusterStartError


def __getattr__(name: str) -> Any:
    if name in ("AsyncBroker", "Broker", "BrokerStartError"):
        from odradek.server import embedded

        return getattr(embedded, name)
    if name in ("Cluster", "ClusterStartError"):
        from odradek.server import embedded_cluster

        return getattr(embedded_cluster, name)
    raise AttributeError(f"module 'odradek' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
