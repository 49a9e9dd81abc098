"""Whether a broker is ready, and details for `/admin` as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from odradek.wire.version import __version__

if TYPE_CHECKING:
    from odradek.server.metrics.observed import Observed


def reasons_not_ready(server: Observed) -> list[str]:
    """Why clients should go elsewhere, or wait; empty: it serves. The listeners are open when it is asked."""
    reasons = []
    failures = server.store.failing_disks.failures
    if len(failures) == len(server.store.directories):
        reasons.append("no data directory can be used")
    groups, transactions = server.coordinators.groups, server.coordinators.transactions
    if groups.is_made and groups().is_loading:
        reasons.append("groups are being loaded")
    if transactions.is_made and transactions().is_loading:
        reasons.append("transactions are being loaded")
    view = server.cluster_view
    if server.node_id not in view.brokers:
        reasons.append("the controllers have fenced this broker")
    return reasons


def admin_page(server: Observed) -> dict[str, Any]:
    """The state of the broker; no user, group or topic is named."""
    view, failures = server.cluster_view, server.store.failing_disks.failures
    partitions = [one for topic in view.topics.values() for one in topic.partitions]
    return {
        "version": __version__,
        "node_id": server.node_id,
        "cluster_id": server.cluster_id,
        "time_ms": time.time_ns() // 1_000_000,
        "ready": not reasons_not_ready(server),
        "reasons": reasons_not_ready(server),
        "listeners": [
            {"name": name, "host": host or "0.0.0.0", "port": port} for name, host, port in server.addresses
        ],
        "connections": len(server.connections),
        "brokers": sorted(view.brokers),
        "topics": len(view.topics),
        "partitions": len(partitions),
        "partitions_without_leader": sum(one.leader < 0 for one in partitions),
        "partitions_under_replicated": sum(len(one.isr) < len(one.replicas) for one in partitions),
        "log_dirs": [
            {"path": path, "online": path not in failures, "failure": failures.get(path)}
            for path in server.store.directories
        ],
    }
