"""The newest slow requests, for the console: what the log of slow requests has, in a bounded ring."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.server.network.slow_requests import NS_PER_MS, WAITS_ON_PURPOSE, SlowRequests

if TYPE_CHECKING:
    from odradek.server.network._pipeline import Dispatcher, Route
    from odradek.server.network.connection import Connection

KEPT = 200
SLOW_MS = 100
"""Where `odradek.log.slow.request.ms` says nothing else."""


class SlowRing:
    """The requests since the start that took long, the newest `KEPT` of them."""

    def __init__(self, slow_ms: int, now_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        """`slow_ms` is the option of the log, -1: it has none; `steady_ms` a clock that does not jump."""
        self.slow_ms = slow_ms if slow_ms >= 0 else SLOW_MS
        self._now_ms = now_ms
        self._log = SlowRequests(steady_ms) if slow_ms >= 0 else None
        self.rows: deque[dict[str, Any]] = deque(maxlen=KEPT)
        """The oldest first."""

    def watch(self, dispatcher: Dispatcher) -> None:
        """From now on; in place of the log, which still gets all."""
        dispatcher.watch_slow(self.slow_ms * NS_PER_MS, self)

    def __call__(
        self, route: Route, connection: Connection, took_ns: int, bytes_in: int, bytes_out: int
    ) -> None:
        if self._log is not None:
            self._log(route, connection, took_ns, bytes_in, bytes_out)
        if route.api_name in WAITS_ON_PURPOSE:
            return
        self.rows.append(
            {
                "time_ms": self._now_ms(),
                "api": route.api_name,
                "version": route.api_version,
                "took_ms": took_ns / NS_PER_MS,
                "bytes_in": bytes_in,
                "bytes_out": bytes_out,
                "client_id": connection.requests.client_id,
                "principal": connection.principal,
                "host": connection.peer_host,
                "listener": connection.listener_name,
            }
        )
