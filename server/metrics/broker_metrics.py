"""The metrics of a broker, as a program reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.coordinator.client_metrics.clients import ClientValues
    from odradek.server.network.routes import RequestMetrics


class BrokerMetrics(dict[tuple[str, int], "RequestMetrics"]):
    """Counters of requests by (name of the API, version), such as `("Produce", 11)`; and `clients`."""

    def __init__(
        self, requests: Mapping[tuple[str, int], RequestMetrics], clients: Iterable[ClientValues]
    ) -> None:
        super().__init__(requests)
        self.clients = tuple(clients)
        """Metrics that clients have pushed (KIP-714), one item for each; the last to push comes last."""
