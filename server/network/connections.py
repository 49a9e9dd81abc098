"""All connections of a broker: idle connections, and the end at a stop. `admission.py` lets them in.

A connection that waits for a response is not idle, nor is one whose client has to wait because of a quota. It
is idle if its client does not read the responses, or if it is not read because of too many waiting requests:
a closed connection would not be noticed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from odradek.server.network._clock import Clock
from odradek.server.network._pipeline import Dispatcher, Turn
from odradek.server.network.admission import Admission, ConnectionLimits, addresses_of
from odradek.server.network.connection import Connection, Endpoint
from odradek.server.network.routes import Routes
from odradek.server.network.timers import ClockTimers, Timers

if TYPE_CHECKING:
    from odradek.coordinator.security.client_meters import QuotaMeters
    from odradek.server.network.unauthenticated import Unauthenticated

logger = logging.getLogger("odradek.connections")

SWEEP_INTERVAL_MS_MAX = 10_000


def _no_view() -> None:
    return None


class Connections:
    """The shared state of all connections; implements `connection.Registry` and `admission.Door`."""

    def __init__(
        self,
        routes: Routes,
        turn: Turn,
        clock: Clock,
        limits: ConnectionLimits,
        current_view: Callable[[], object] = _no_view,
        brokers_listener: str | None = None,
    ) -> None:
        """Connections drop remembered prefixes whenever `current_view` returns another view.
        `brokers_listener` is the listener for other brokers, where there are further listeners."""
        self.dispatcher = Dispatcher(routes, turn, clock, limits.request_bytes_max, current_view)
        self.admission = Admission(limits, clock.monotonic_ms, brokers_listener)
        self._counted: dict[Connection, tuple[str, str]] = {}
        self.unauthenticated: Unauthenticated | None = None
        """None without a listener on which clients authenticate."""
        self.quota_meters: QuotaMeters | None = None
        """None until there is a quota; they stay when it is gone."""
        self.created: Counter[str] = Counter()
        """Connections that were let in since the start, by name of their listener."""
        self.refuses: Callable[[str, str], bool] | None = None
        """For the test kit: whether a new connection, to a listener from a host, is refused."""
        self._open: set[Connection] = set()
        self._room_watchers: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        """The open connections, in no order; some may close during the iteration."""
        return iter(tuple(self._open))

    @property
    def limits(self) -> ConnectionLimits:
        return self.admission.limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self.admission.limits = limits
        self._tell_of_room()

    def connect(self, endpoint: Endpoint, host: str) -> Connection:
        """A new connection, which `admission` has counted."""
        connection = Connection(self, endpoint)
        self._counted[connection] = endpoint.name, host
        self.created[endpoint.name] += 1
        return connection

    def opened(self, connection: Connection) -> None:
        """A connection has its transport."""
        self._open.add(connection)

    def left(self, connection: Connection) -> None:
        """A connection closed, or never opened; no effect a second time."""
        self._open.discard(connection)
        counted = self._counted.pop(connection, None)
        if counted is not None:
            self.admission.leave(*counted)
            self._tell_of_room()

    def watch_room(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever a connection has closed or a limit is another."""
        self._room_watchers.append(callback)

    def make_room(self) -> None:
        """A broker has come: closes the connection of a client that was without a request for the longest
        time."""
        others = [one for one in self._open if not self.admission.is_of_brokers(one.listener_name)]
        if others:
            longest = min(others, key=lambda one: one.requests.active_ms)
            longest.abort(f"max.connections={self.limits.connections_max} is reached, and a broker has come")

    def _tell_of_room(self) -> None:
        for callback in self._room_watchers:
            callback()

    def start_sweeping(self, timers: Timers, clock_timers: ClockTimers) -> Callable[[], None]:
        """Checks for idle connections from now on; the returned function ends it. Waits for a quota end by
        `clock_timers`."""
        interval_ms = SWEEP_INTERVAL_MS_MAX
        if self.limits.idle_ms_max >= 0:
            interval_ms = min(interval_ms, max(50, self.limits.idle_ms_max // 4))
        self.dispatcher.timers = clock_timers
        previous_ms = self.dispatcher.now_ms()

        def sweep() -> None:
            nonlocal previous_ms
            now_ms = self.dispatcher.now_ms()
            self.sweep(now_ms, previous_ms)
            previous_ms = now_ms

        return timers.every(interval_ms, sweep)

    def sweep(self, now_ms: int, previous_ms: int) -> None:
        """Closes connections that were idle too long; frees large buffers unused since the last check."""
        idle_ms_max = self.limits.idle_ms_max
        for connection in list(self._open):
            unsent_bytes = connection.write_buffer_bytes()
            if unsent_bytes != connection.unsent_bytes:
                # The client reads its responses, if slowly.
                connection.unsent_bytes = unsent_bytes
                connection.requests.active_ms = now_ms
            if connection.requests.is_held_back:
                continue
            if connection.is_waiting and connection.is_reading and not connection.is_stalled:
                continue
            if 0 <= idle_ms_max < now_ms - connection.requests.active_ms:
                reading = "; it does not read its answers" if connection.is_stalled else ""
                connection.abort(f"idle for connections.max.idle.ms={idle_ms_max}{reading}")
            elif connection.requests.active_ms < previous_ms:
                connection.shrink()

    def clock_moved(self, by_ms: int) -> None:
        """A test has moved the broker's clock: sockets are silent by the system's time."""
        for connection in self._open:
            connection.requests.clock_moved(by_ms)

    def close_all(self) -> None:
        """Sends ready responses and closes all connections."""
        for connection in list(self._open):
            connection.hang_up()

    def abort_all(self) -> None:
        """Closes connections that do not read their last responses."""
        for connection in list(self._open):
            connection.abort(None)


@lru_cache(maxsize=1)
def counts_by_address(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides` by the addresses of peers. A name stands for its addresses at the
    time when the option is set; a name without addresses is left out with a warning.
    """
    counts: dict[str, int] = {}
    for pair in filter(None, text.split(",")):
        host, _, count = pair.rpartition(":")
        host = host.strip()
        addresses = addresses_of(host)
        if not addresses:
            logger.warning("max.connections.per.ip.overrides: %r has no address here", host)
        counts |= dict.fromkeys(addresses, int(count))
    return counts
