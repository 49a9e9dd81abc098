"""Takes the quotas of each view of the cluster to meters of clients and to rates of addresses."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.server.network.admission import AddressRates, addresses_of
from odradek.server.network.quota_meters import DROP_INTERVAL_MS, new_meters

if TYPE_CHECKING:
    from odradek.apis.quotas import ClientQuotas
    from odradek.apis.turn import WorkQueue
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, Quotas
    from odradek.coordinator.security.client_meters import QuotaMeters
    from odradek.server.network.connections import Connections
    from odradek.server.network.timers import Timers
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.connections")


class QuotaFollower:
    """See the module. Handlers ask `quotas`, the pipeline and the acceptors ask `connections`."""

    def __init__(
        self,
        config: BrokerConfig,
        quotas: ClientQuotas,
        connections: Connections,
        timers: Timers,
        lookups: WorkQueue,
    ) -> None:
        """`lookups` is a queue for names of hosts that have to be resolved."""
        self._config = config
        self._quotas = quotas
        self._connections = connections
        self._timers = timers
        self._lookups = lookups
        self._seen: Quotas = {}
        self._meters: QuotaMeters | None = None
        self._stop_dropping: Callable[[], None] | None = None

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """Subscriber of the cluster's metadata."""
        self.follow(view.client_quotas)

    def follow(self, quotas: Quotas) -> None:
        """From now on these."""
        if quotas is self._seen or not (quotas or self._seen):
            return
        self._seen = quotas
        if self._meters is None:
            self._meters = self._connections.quota_meters = self._new_meters()
        self._meters.follow(quotas)
        self._quotas.meters = self._connections.dispatcher.meters = (
            self._meters if self._meters.is_active else None
        )
        self._follow_addresses(quotas)

    def stop(self) -> None:
        """The broker stops."""
        if self._stop_dropping is not None:
            self._stop_dropping()

    def _new_meters(self) -> QuotaMeters:
        meters = new_meters(self._config, self._connections.dispatcher.clock.monotonic_ms)
        self._stop_dropping = self._timers.every(DROP_INTERVAL_MS, meters.drop_idle)
        return meters

    # Addresses

    def _follow_addresses(self, quotas: Quotas) -> None:
        from odradek.coordinator.security.client_quotas import CONNECTION_CREATION_RATE, IP

        rates: dict[str | None, float] = {
            name: values[CONNECTION_CREATION_RATE]
            for entity, values in quotas.items()
            for kind, name in entity
            if kind == IP and CONNECTION_CREATION_RATE in values
        }
        default = rates.pop(None, None)
        known = {name: addresses_of(name, socket.AI_NUMERICHOST) for name in rates if name is not None}
        self._set_rates(default, rates, known)
        names = [name for name, addresses in known.items() if not addresses]
        if names:

            def resolved(found: dict[str, list[str]]) -> None:
                if self._seen is quotas:
                    self._set_rates(default, rates, known | found)

            self._lookups.run(_resolving(names), resolved, _failed)

    def _set_rates(
        self, default: float | None, rates: dict[str | None, float], known: dict[str, list[str]]
    ) -> None:
        of_addresses = {
            # As in Kafka: of a name with several addresses the first one.
            addresses[0]: rates[name]
            for name, addresses in known.items()
            if addresses
        }
        self._connections.admission.address_rates = AddressRates(default, of_addresses)


def _resolving(names: list[str]) -> Work[dict[str, list[str]]]:
    found: dict[str, list[str]] = yield lambda: {name: addresses_of(name) for name in names}
    for name, addresses in found.items():
        if not addresses:
            logger.warning("the quota of the host %r is not kept: the name has no address here", name)
    return found


def _failed(error: Exception) -> None:
    logger.error("names of hosts with quotas could not be resolved", exc_info=error)
