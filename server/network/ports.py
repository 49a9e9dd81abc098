"""The ports of a broker: bound first, served last, closed before anything else."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING

from odradek.server.network.listeners import Listener, SocketOptions, accept, bind_listener

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.listeners import Listener as ConfiguredListener
    from odradek.server.network.admission import Acceptor, Door
    from odradek.server.network.tls_transport import TlsAcceptor


logger = logging.getLogger("odradek.broker")


class Ports:
    """The sockets of all listeners. Clients may connect to a bound one; they wait until it is served.

    `bound` are sockets by the names of listeners that the parent of this process has bound."""

    def __init__(self, bound: Mapping[str, Sequence[socket.socket]] = MappingProxyType({})) -> None:
        self._bound = bound
        self.listeners: list[Listener] = []
        """With their real ports."""
        self._bound_now: dict[str, list[socket.socket]] = {}
        self._waiting: deque[tuple[Listener, list[socket.socket]]] = deque()
        self._acceptors: list[Acceptor] = []

    def bind(self, config: BrokerConfig, listeners: Iterable[ConfiguredListener]) -> None:
        """Binds these listeners of `config`. Raises ConfigError for an address that cannot be bound."""
        for configured in listeners:
            listener = Listener(
                configured.name, configured.host, configured.port, None, socket_options(config)
            )
            sockets = list(self._bound.get(configured.name) or bind_listener(listener))
            self._bound_now[listener.name] = sockets
            if not listener.port and sockets[0].family != socket.AF_UNIX:
                listener.port = sockets[0].getsockname()[1]
            self._waiting.append((listener, sockets))
            listener.principal = configured.principal
            listener.tls = _tls_of(config, configured.name)
            advertised = config.advertised.get(configured.name)
            if advertised is not None and advertised.host:
                listener.advertised = (advertised.host, advertised.port or listener.port)
            self.listeners.append(listener)

    @property
    def tls_acceptors(self) -> dict[str, TlsAcceptor]:
        """Acceptors of the listeners with TLS, by their names."""
        return {listener.name: listener.tls for listener in self.listeners if listener.tls is not None}

    def serve(self, connections: Door, is_wanted: Callable[[Listener], bool] = lambda _: True) -> None:
        """Accepts connections from now on, at the listeners that are wanted; harmless a second time."""
        for _ in range(len(self._waiting)):
            listener, sockets = self._waiting.popleft()
            if is_wanted(listener):
                self._acceptors.append(accept(listener, sockets, connections))
            else:
                self._waiting.append((listener, sockets))

    def duplicates(self) -> dict[str, list[socket.socket]]:
        """The same sockets by the names of listeners, for the caller to close: who connects after `close`
        waits until another one serves them."""
        return {name: [one.dup() for one in sockets] for name, sockets in self._bound_now.items()}

    def close(self) -> None:
        """No client can connect any more; harmless a second time."""
        for acceptor in self._acceptors:
            acceptor.close()
        for _, sockets in self._waiting:
            for bound in sockets:
                bound.close()
        self._acceptors.clear()
        self._waiting.clear()


def bind_ports(
    config: BrokerConfig,
    sockets: Mapping[str, Sequence[socket.socket]],
    ending: AsyncExitStack,
    listeners: Iterable[ConfiguredListener] | None = None,
) -> Ports:
    """The ports of a node, bound, or those of some of its `listeners`; `ending` closes them. `sockets` are as
    in `Ports`. Raises ConfigError."""
    ports = Ports(sockets)
    ending.callback(ports.close)
    ports.bind(config, config.listeners if listeners is None else listeners)
    return ports


def _tls_of(config: BrokerConfig, listener: str) -> TlsAcceptor | None:
    """Imports nothing for a listener without TLS. Raises ConfigError."""
    security = config.security.get(listener)
    if security is None or not security.has_tls:
        return None
    from odradek.server.network.timers import monotonic_ms
    from odradek.server.network.tls_reload import settings_of
    from odradek.server.network.tls_transport import TlsAcceptor

    settings = settings_of(security)
    for path in settings.readable_by_others:
        logger.warning(
            "listener %s: everybody on this machine can read the private key in %s", listener, path
        )
    return TlsAcceptor(settings, monotonic_ms, names_principal=not security.has_sasl)


def socket_options(config: BrokerConfig) -> SocketOptions:
    """The options of the sockets of listeners."""
    return SocketOptions(
        config.values["socket.listen.backlog.size"],
        config.values["socket.send.buffer.bytes"],
        config.values["socket.receive.buffer.bytes"],
    )
