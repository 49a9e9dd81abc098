"""Admission of clients: limits of connections and of the rate of new ones, and the acceptors that keep them.

`Admission` decides. An `Acceptor` takes the connections of one listener from its sockets:

- Beyond `max.connections` (of the broker or of a listener), and beyond `max.connection.creation.rate`, it
  takes one more connection, leaves it unread, and watches its sockets no more until there is room: clients
  wait in the queue of the kernel. For a connection to the listener of the brokers, if there are others,
  another one is closed instead: the one that has been without a request for the longest time.
- Beyond the `connection_creation_rate` of an address (a quota), a connection is left unread and closed when
  the rate is within the quota again, after a window at most.
- Beyond `max.connections.per.ip` a connection is closed at once.

Connections at a Unix socket, of other workers, have no address, and so no limit by one.

Source: `ConnectionQuotas` and `Acceptor` of Kafka 4.3 (SocketServer); KIP-402, KIP-612.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from odradek.coordinator.security.quota_meters import RateMeter

logger = logging.getLogger("odradek.connections")

UNLIMITED = 2**31 - 1
ACCEPTED_AT_ONCE_MAX = 128
"""Connections in one turn of the event loop."""
RETRY_S = 1.0
"""After the system has refused a connection, for want of files or memory."""
REFUSED_KEPT_MAX = 1_000
"""Connections that wait to be closed; further ones are closed at once."""
TOLD_INTERVAL_S = 10.0
ADDRESSES_MAX = 20_000
"""Addresses whose rate is measured; a tenth of them goes when there are more."""
IDLE_MS_MAX = 3_600_000
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConnectionLimits:
    """Kafka's options of the same names, with Kafka's defaults."""

    request_bytes_max: int = 104_857_600
    connections_max: int = UNLIMITED
    connections_max_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """By names of listeners in lower case."""
    connections_per_ip_max: int = UNLIMITED
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    creation_rate_max: int = UNLIMITED
    """New connections in a second."""
    creation_rate_max_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """By names of listeners in lower case."""
    idle_ms_max: int = 600_000
    """Negative: never."""
    quota_samples: int = 11
    quota_window_ms: int = 1_000


@dataclass(slots=True, eq=False, repr=False)
class AddressRates:
    """The quotas of addresses: new connections in a second."""

    default: float | None = None
    of_addresses: Mapping[str, float] = field(default_factory=dict)

    def of(self, host: str) -> float | None:
        return self.of_addresses.get(host, self.default)


class Admission:
    """Counts connections and decides about new ones; see the module. `now_ms` never goes back."""

    def __init__(
        self, limits: ConnectionLimits, now_ms: Callable[[], int], brokers_listener: str | None = None
    ) -> None:
        """`brokers_listener`: the listener for other brokers, where there are further listeners."""
        self._now_ms = now_ms
        self._brokers_listener = brokers_listener
        self._total = 0
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._rates: dict[str | None, RateMeter] = {}
        # Of listeners that have a limit, and (None) of the broker.
        self._address_rates = AddressRates()
        self._of_addresses: dict[str, RateMeter] = {}
        self.limits = limits

    @property
    def limits(self) -> ConnectionLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        for listener in list(self._rates):
            if self._rate_max(listener) >= UNLIMITED:
                del self._rates[listener]
            else:
                self._rates[listener].bound = self._rate_max(listener)

    @property
    def address_rates(self) -> AddressRates:
        return self._address_rates

    @address_rates.setter
    def address_rates(self, rates: AddressRates) -> None:
        self._address_rates = rates
        for host, meter in list(self._of_addresses.items()):
            rate = rates.of(host)
            if rate is None:
                del self._of_addresses[host]
            else:
                meter.bound = rate

    # A new connection

    def wait_ms(self, listener: str) -> int:
        """A client has connected to the listener: for how long it has to wait to be let in."""
        listeners = (listener,) if listener == self._brokers_listener else (None, listener)
        return max(self._charge_listener(one) for one in listeners)

    def has_room(self, listener: str) -> bool:
        if self._per_listener[listener] >= self._connections_max(listener):
            return False
        return listener == self._brokers_listener or self._total < self._limits.connections_max

    def refuse_ms(self, listener: str, host: str) -> int:
        """For how long the connection is to be held before it is closed; 0: the rate of its address is within
        the quota. A refused connection counts nowhere."""
        rate = self._address_rates.of(host)
        if rate is None or not host:
            return 0
        now_ms = self._now_ms()
        meter = self._of_addresses.get(host)
        if meter is None:
            self._drop_addresses(now_ms)
            meter = self._of_addresses[host] = self._new_meter(rate)
        refuse_ms = meter.charge(1, now_ms)
        if refuse_ms:
            meter.record(-1, now_ms)
            for one in (None, listener):
                known = self._rates.get(one)
                if known is not None and (one or listener != self._brokers_listener):
                    known.record(-1, now_ms)
        return refuse_ms

    def enter(self, listener: str, host: str) -> str | None:
        """Counts the connection; or returns the reason why it may not be there."""
        limits = self._limits
        host_max = limits.connections_per_ip_overrides.get(host, limits.connections_per_ip_max)
        if self._per_host[host] >= host_max and host:
            return f"max.connections.per.ip={host_max} is reached for {host}"
        self._total += 1
        self._per_host[host] += 1
        self._per_listener[listener] += 1
        return None

    def leave(self, listener: str, host: str) -> None:
        """A connection that was counted has closed."""
        self._total -= 1
        self._per_listener[listener] -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    @property
    def is_overfull(self) -> bool:
        """Whether a connection of another listener than the brokers' has to go."""
        return self._total > self._limits.connections_max

    def is_of_brokers(self, listener: str) -> bool:
        return listener == self._brokers_listener

    def reason_to_wait(self, listener: str) -> str:
        """For the log."""
        name, limits = listener.lower(), self._limits
        of_listener = limits.connections_max_of_listeners.get(name)
        if of_listener is not None and self._per_listener[listener] >= of_listener:
            return f"listener.name.{name}.max.connections={of_listener} is reached"
        return f"max.connections={self._limits.connections_max} is reached"

    # Inside

    def _connections_max(self, listener: str) -> int:
        limits = self._limits
        return limits.connections_max_of_listeners.get(listener.lower(), limits.connections_max)

    def _rate_max(self, listener: str | None) -> int:
        limits = self._limits
        if listener is None:
            return limits.creation_rate_max
        return limits.creation_rate_max_of_listeners.get(listener.lower(), limits.creation_rate_max)

    def _charge_listener(self, listener: str | None) -> int:
        rate_max = self._rate_max(listener)
        if rate_max >= UNLIMITED:
            return 0
        meter = self._rates.get(listener)
        if meter is None:
            meter = self._rates[listener] = self._new_meter(rate_max)
        return meter.charge(1, self._now_ms())

    def _new_meter(self, rate: float) -> RateMeter:
        from odradek.coordinator.security.quota_meters import RateMeter

        window_ms = self._limits.quota_window_ms
        return RateMeter(rate, samples=self._limits.quota_samples, window_ms=window_ms, wait_ms_max=window_ms)

    def _drop_addresses(self, now_ms: int) -> None:
        meters = self._of_addresses
        if len(meters) >= ADDRESSES_MAX:
            idle = [host for host, one in meters.items() if now_ms - one.last_ms >= IDLE_MS_MAX]
            # One that is at work keeps its meter, however many others come.
            for host in idle or nsmallest(ADDRESSES_MAX // 10, meters, key=lambda one: meters[one].last_ms):
                del meters[host]


class Endpoint(Protocol):
    """A listener, as an acceptor needs it."""

    name: str

    def protocol_of(self, connection: Any) -> asyncio.BufferedProtocol:
        """The protocol that the event loop talks to."""


class Door(Protocol):
    """The connections of the broker; implemented by `server.network.connections.Connections`."""

    admission: Admission
    refuses: Callable[[str, str], bool] | None
    """Whether a connection to a listener from a host is refused; None: none is."""

    def connect(self, endpoint: Any, host: str) -> asyncio.BufferedProtocol:
        """A connection that was counted, from now on the connections' own."""

    def watch_room(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever a connection has closed or a limit is another."""

    def make_room(self) -> None:
        """Closes connections of clients, until brokers have their places."""

    def left(self, connection: Any) -> None:
        """No effect for a connection that has closed already."""


class Acceptor:
    """See the module. The sockets are closed with it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        sockets: Sequence[socket.socket],
        door: Door,
    ) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._sockets = list(sockets)
        self._door = door
        self._parked: tuple[socket.socket, str] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._beginning: set[asyncio.Task[Any]] = set()
        self._is_open = True
        self._is_watching = False
        self._tell_again_s = 0.0
        self._untold = 0
        door.watch_room(self._go_on)
        self._watch()

    def close(self) -> None:
        """Nobody can connect any more; harmless a second time."""
        self._unwatch()
        self._is_open = False
        if self._pause is not None:
            self._pause.cancel()
        for timer in self._refused.values():
            timer.cancel()
        parked = () if self._parked is None else (self._parked[0],)
        for one in (*self._sockets, *self._refused, *parked):
            one.close()
        self._sockets, self._parked = [], None
        self._refused.clear()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            for one in self._sockets:
                self._loop.add_reader(one, self._accept, one)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            for one in self._sockets:
                self._loop.remove_reader(one)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            if not self._is_watching:
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._wait_for_the_system(error)
                    return
                continue  # the client has gone meanwhile
            accepted.setblocking(False)
            host = host_of(address)
            if self._door.refuses is not None and self._door.refuses(self._endpoint.name, host):
                _reset(accepted)
            else:
                self._arrive(accepted, host)

    def _wait_for_the_system(self, error: OSError) -> None:
        logger.error("listener %s accepts nobody for a second: %s", self._endpoint.name, error)
        self._unwatch()
        self._pause = self._loop.call_later(RETRY_S, self._end_pause)

    def _arrive(self, accepted: socket.socket, host: str) -> None:
        admission, name = self._door.admission, self._endpoint.name
        wait_ms = admission.wait_ms(name)
        if not wait_ms and admission.has_room(name):
            self._let_in(accepted, host)
            return
        self._parked = accepted, host
        self._unwatch()
        if wait_ms:
            self._pause = self._loop.call_later(wait_ms / 1000, self._end_pause)
        else:
            self._tell(f"clients wait: {admission.reason_to_wait(name)}")

    def _end_pause(self) -> None:
        self._pause = None
        self._go_on()

    def _go_on(self) -> None:
        """Whoever waits is let in, if it is time and there is room."""
        if not self._is_open or self._pause is not None or self._is_watching:
            return
        if self._parked is not None:
            if not self._door.admission.has_room(self._endpoint.name):
                return
            parked, self._parked = self._parked, None
            self._let_in(*parked)
        self._watch()

    def _let_in(self, accepted: socket.socket, host: str) -> None:
        admission, name = self._door.admission, self._endpoint.name
        refuse_ms = admission.refuse_ms(name, host)
        if refuse_ms and len(self._refused) < REFUSED_KEPT_MAX:
            self._refused[accepted] = self._loop.call_later(refuse_ms / 1000, self._end_refusal, accepted)
            return
        reason = f"connection_creation_rate of {host}" if refuse_ms else admission.enter(name, host)
        if reason is not None:
            self._tell(f"closing a new connection: {reason}")
            accepted.close()
            return
        connection = self._door.connect(self._endpoint, host)
        task = self._loop.create_task(self._begin(accepted, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)
        if admission.is_of_brokers(name) and admission.is_overfull:
            self._door.make_room()

    async def _begin(self, accepted: socket.socket, connection: asyncio.BufferedProtocol) -> None:
        try:
            if accepted.family != socket.AF_UNIX:
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = self._endpoint.protocol_of(connection)
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:
            # The client has gone meanwhile.
            accepted.close()
            self._door.left(connection)

    def _tell(self, what: str) -> None:
        """Not of each time: whoever is refused may come again at once."""
        now_s = self._loop.time()
        if now_s < self._tell_again_s:
            self._untold += 1
            return
        others = f" (and {self._untold} times more since the last such line)" if self._untold else ""
        logger.warning("listener %s: %s%s", self._endpoint.name, what, others)
        self._tell_again_s, self._untold = now_s + TOLD_INTERVAL_S, 0

    def _end_refusal(self, accepted: socket.socket) -> None:
        del self._refused[accepted]
        accepted.close()


def _reset(accepted: socket.socket) -> None:
    """Closes a connection so that its client sees that at once, whatever it has sent."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()


def host_of(address: Any) -> str:
    """The address of a peer, without its port."""
    if not isinstance(address, tuple) or not address:
        return ""
    host: str = address[0]
    # A dual-stack socket shows IPv4 peers as mapped addresses; clients expect the address that they used.
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def is_address(name: str) -> bool:
    """Whether a text is an address."""
    return bool(addresses_of(name, socket.AI_NUMERICHOST))


def is_host(name: str) -> bool:
    """Whether a text is an address, or a name that has one here. Blocks."""
    return bool(addresses_of(name))


def addresses_of(name: str, flags: int = 0) -> list[str]:
    """The addresses of a host, as those of peers are written. Blocks, unless `flags` forbid names."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError):
        return []
    return [host_of(address) for *_, address in found]
