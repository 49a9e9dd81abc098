"""Odradek: a durable Kafka broker in Python.

    import odradek

    with odradek.Broker() as broker:
        print(broker.bootstrap_servers)

`Cluster` has several nodes, under controllers of Apache Kafka. It, `Broker`, `AsyncBroker` and their errors
are loaded on first use; `odradek.testing` has a container for testcontainers, and installing the package
brings pytest fixtures (`odradek_broker` and others).
"""

import importlib
from typing import TYPE_CHECKING, Any

__all__ = [
    "AsyncBroker",
    "Broker",
    "BrokerStartError",
    "Cluster",
    "ClusterStartError",
    "WaitTimeout",
    "__version__",
]

if TYPE_CHECKING:
    from odradek.embedding.broker_form import BrokerStartError
    from odradek.embedding.cluster_processes import ClusterStartError
    from odradek.embedding.embedded import AsyncBroker, Broker
    from odradek.embedding.embedded_cluster import Cluster
    from odradek.embedding.seen import WaitTimeout
    from odradek.wire.version import __version__

_MADE_IN = {
    "AsyncBroker": "embedding.embedded",
    "Broker": "embedding.embedded",
    "BrokerStartError": "embedding.broker_form",
    "Cluster": "embedding.embedded_cluster",
    "ClusterStartError": "embedding.cluster_processes",
    "WaitTimeout": "embedding.seen",
    "__version__": "wire.version",
}


def __getattr__(name: str) -> Any:
    if name not in _MADE_IN:
        raise AttributeError(f"module 'odradek' has no attribute {name!r}")
    return getattr(importlib.import_module(f"odradek.{_MADE_IN[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
