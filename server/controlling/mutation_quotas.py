"""The quota that a controller keeps: `controller_mutation_rate`, of partitions that clients make and delete.

Brokers forward the requests for them, and do not count them. All other quotas are kept by brokers: a
controller that made a broker wait would not hear its heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.apis.quotas import ClientQuotas
from odradek.server.network.quota_meters import DROP_INTERVAL_MS, new_meters

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, Quotas
    from odradek.coordinator.security.client_meters import QuotaMeters
    from odradek.server.network.timers import Timers
    from odradek.server.node import Node


class MutationQuotas:
    """Takes the quotas of each view to `quotas`, which handlers ask."""

    def __init__(self, node: Node, timers: Timers) -> None:
        self.quotas = ClientQuotas()
        self._node = node
        self._timers = timers
        self._meters: QuotaMeters | None = None
        self._stop_dropping: Callable[[], None] | None = None

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """Subscriber of the cluster's metadata."""
        self.follow(view.client_quotas)

    def follow(self, quotas: Quotas) -> None:
        """From now on these."""
        if self._meters is None:
            if not quotas:
                return
            self._meters = new_meters(self._node.config, self._node.clock.monotonic_ms)
            self._stop_dropping = self._timers.every(DROP_INTERVAL_MS, self._meters.drop_idle)
        self._meters.follow(quotas)
        self.quotas.meters = self._meters if self._meters.is_active else None

    def stop(self) -> None:
        """The controller stops."""
        if self._stop_dropping is not None:
            self._stop_dropping()
