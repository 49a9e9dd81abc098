"""All connections of a broker: limits, idle connections, and the end at a stop.

Limits are Kafka's: `max.connections` (also of single listeners), `max.connections.per.ip`,
`connections.max.idle.ms`, `socket.request.max.bytes`. A connection over a limit is closed with one log line,
as Kafka does per address. A connection that waits for an answer is not idle. It is idle if its client does
not read the answers, or if it is not read because of too many waiting requests: a closed connection would not
be noticed.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from odradek.server._pipeline import Dispatcher, Turn
from odradek.server.connection import Connection
from odradek.server.routes import Routes
from odradek.server.timers import Timers

if TYPE_CHECKING:
    from odradek.server.security.unauthenticated import Unauthenticated

logger = logging.getLogger("odradek.connections")

UNLIMITED = 2**31 - 1
SWEEP_INTERVAL_MS_MAX = 10_000


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """Kafka's options of the same names, with Kafka's defaults."""

    request_bytes_max: int = 104_857_600
    connections_max: int = UNLIMITED
    connections_max_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """By names of listeners in lower case."""
    connections_per_ip_max: int = UNLIMITED
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms_max: int = 600_000
    """Negative: never."""


def _no_view() -> None:
    return None


class Connections:
    """The shared state of all connections; implements `connection.Registry`."""

    def __init__(
        self,
        routes: Routes,
        turn: Turn,
        now_ms: Callable[[], int],
        limits: ConnectionLimits,
        current_view: Callable[[], object] = _no_view,
    ) -> None:
        """Connections drop remembered prefixes whenever `current_view` returns another view."""
        self.dispatcher = Dispatcher(routes, turn, now_ms, limits.request_bytes_max, current_view)
        self.limits = limits
        self.unauthenticated: Unauthenticated | None = None
        """None without a listener on which clients authenticate."""
        self._open: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        """The open connections, in no order; some may close during the iteration."""
        return iter(tuple(self._open))

    def admit(self, connection: Connection) -> str | None:
        """Admits a new connection; returns the reason if it may not."""
        limits, host = self.limits, connection.peer_host
        if len(self._open) >= limits.connections_max:
            return f"max.connections={limits.connections_max} is reached"
        listener = connection.listener_name
        listener_max = limits.connections_max_of_listeners.get(listener.lower(), UNLIMITED)
        if self._per_listener[listener] >= listener_max:
            return f"listener.name.{listener.lower()}.max.connections={listener_max} is reached"
        host_max = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if self._per_host[host] >= host_max:
            return f"max.connections.per.ip={host_max} is reached for {host}"
        self._per_host[host] += 1
        self._per_listener[listener] += 1
        self._open.add(connection)
        return None

    def forget(self, connection: Connection) -> None:
        """A connection closed; no effect for one that was not admitted."""
        if connection not in self._open:
            return
        self._open.remove(connection)
        self._per_listener[connection.listener_name] -= 1
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]

    def start_sweeping(self, timers: Timers) -> Callable[[], None]:
        """Checks for idle connections from now on; the returned function ends it."""
        interval_ms = SWEEP_INTERVAL_MS_MAX
        if self.limits.idle_ms_max >= 0:
            interval_ms = min(interval_ms, max(50, self.limits.idle_ms_max // 4))
        self.dispatcher.timers = timers
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
                # The client reads its answers, if slowly.
                connection.unsent_bytes = unsent_bytes
                connection.requests.active_ms = now_ms
            if connection.is_waiting and connection.is_reading and not connection.is_stalled:
                continue
            if 0 <= idle_ms_max < now_ms - connection.requests.active_ms:
                reading = "; it does not read its answers" if connection.is_stalled else ""
                connection.abort(f"idle for connections.max.idle.ms={idle_ms_max}{reading}")
            elif connection.requests.active_ms < previous_ms:
                connection.shrink()

    def close_all(self) -> None:
        """Sends ready answers and closes all connections."""
        for connection in list(self._open):
            connection.hang_up()

    def abort_all(self) -> None:
        """Closes connections that do not read their last answers."""
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
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            logger.warning("max.connections.per.ip.overrides: %r has no address here (%s)", host, error)
            continue
        counts |= {str(address[0]): int(count) for *_, address in found}
    return counts
