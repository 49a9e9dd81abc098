"""The log of slow requests: API, version, time, sizes, client; never what is in a request.

Fetch, JoinGroup and SyncGroup wait on purpose for data or for members: their time says nothing, and they are
left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.server.network._pipeline import Route
    from odradek.server.network.connection import Connection

logger = logging.getLogger("odradek.slow")

WAITS_ON_PURPOSE = frozenset({"Fetch", "JoinGroup", "SyncGroup"})
LINES_PER_SECOND = 10
NS_PER_MS = 1_000_000


class SlowRequests:
    """Called by the pipeline (`Dispatcher.watch_slow`); `now_ms` is a clock that does not jump."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._second_began_ms = now_ms()
        self._lines = 0
        self._untold = 0

    def __call__(
        self, route: Route, connection: Connection, took_ns: int, bytes_in: int, bytes_out: int
    ) -> None:
        if route.api_name in WAITS_ON_PURPOSE:
            return
        if not self._has_room():
            self._untold += 1
            return
        untold, self._untold = self._untold, 0
        logger.warning(
            "slow request: %s v%d took %d ms (%d bytes, answer %d bytes) of %s with %s %s at %s:%d%s",
            route.api_name,
            route.api_version,
            took_ns // NS_PER_MS,
            bytes_in,
            bytes_out,
            connection.principal,
            connection.client_software_name,
            connection.client_software_version,
            connection.peer_host,
            connection.peer_port,
            f"; {untold} more were slow" if untold else "",
        )

    def _has_room(self) -> bool:
        now_ms = self._now_ms()
        if now_ms - self._second_began_ms >= 1000:
            self._second_began_ms, self._lines = now_ms, 0
        self._lines += 1
        return self._lines <= LINES_PER_SECOND
