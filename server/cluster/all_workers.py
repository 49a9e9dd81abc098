"""The moment in which a worker begins to serve clients: when all workers are unfenced.

A broker with workers is one broker for its clients. Whoever connects while it starts would find the first
worker alone, and what is created then, the topic of committed offsets for one, would be led by that worker
alone for ever. So clients wait in the backlog of the sockets, which the parent has bound. The workers serve
each other at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.config.worker_place import AMONG_WORKERS

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView
    from odradek.server.network.connections import Connections
    from odradek.server.network.ports import Ports
    from odradek.server.network.timers import Timers

logger = logging.getLogger("odradek.broker")

WAIT_MS = 5000
"""Clients do not wait longer for a worker that cannot start."""


class AllWorkers:
    """Serves the clients of a worker once the others are there."""

    def __init__(self, workers: frozenset[int], ports: Ports, connections: Connections) -> None:
        """`workers`: ids of all nodes."""
        self._workers = workers
        self._ports, self._connections = ports, connections
        ports.serve(connections, lambda listener: listener.name == AMONG_WORKERS)
        self._absent = workers

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """A subscriber of the cluster's views."""
        self.look(view)

    def look(self, view: ClusterView) -> None:
        """Serves clients if all are unfenced now; harmless afterwards."""
        self._absent = self._workers - view.brokers.keys()
        if not self._absent:
            self._ports.serve(self._connections)

    def begin(self, view: ClusterView, timers: Timers) -> Callable[[], None]:
        """Waits no longer than `WAIT_MS`; the returned function ends that."""
        self.look(view)
        return timers.after(WAIT_MS, self._wait_no_longer).cancel

    def _wait_no_longer(self) -> None:
        if self._absent:
            logger.warning(
                "clients are served, and %s not there yet",
                " and ".join(f"node {one}" for one in sorted(self._absent))
                + (" is" if len(self._absent) == 1 else " are"),
            )
        self._ports.serve(self._connections)
