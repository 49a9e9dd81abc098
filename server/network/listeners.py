"""Named listeners: the addresses at which the broker can be reached.

A listener binds every address of its host: `localhost` is ::1 and 127.0.0.1 with one port. An empty host,
0.0.0.0 and :: are every interface of both families, as for Java; where a machine lacks one of them, of the
other. Port 0 picks a port that is free at all of them. A listener with TLS has a `TlsAcceptor`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.config.config_error import ConfigError
from odradek.config.listeners import WILDCARDS
from odradek.server.network.admission import Acceptor, Door
from odradek.server.network.connection import Gates

if TYPE_CHECKING:
    from odradek.server.network.connection import Connection
    from odradek.server.network.tls_transport import TlsAcceptor

FREE_PORT_ATTEMPTS_MAX = 32
_MAPPED = bytes(10) + b"\xff\xff"
"""How the 16 bytes of an IPv4 address begin."""

Address = tuple[Any, ...]
"""Address of a socket: host, port, and two numbers more for IPv6."""


class ListenError(ConfigError):
    """An address cannot be bound; the text is one sentence for the person who started the broker."""


class SocketOptions(NamedTuple):
    """`socket.listen.backlog.size`, `socket.send.buffer.bytes`, `socket.receive.buffer.bytes`."""

    backlog: int = 1024
    send_buffer_bytes: int = -1
    """-1: the system chooses a size for each connection."""
    receive_buffer_bytes: int = -1


DEFAULT_SOCKET_OPTIONS = SocketOptions()


class Speaker(Protocol):
    """Makes connections speak another protocol."""

    def take(self, connection: Connection) -> None:
        """A new connection, before it has its transport."""


@dataclass(slots=True, eq=False)
class Listener:
    """One of `listeners`: `host` may be empty for every interface, `port` 0 for a free one.

    `advertised` is the address for clients of this listener; None: the local address of each connection.
    After `bind_listener` `port` is the real one.
    """

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    options: SocketOptions = DEFAULT_SOCKET_OPTIONS
    tls: TlsAcceptor | None = None
    sasl: Gates | None = None
    """Set before the listener is served, if its clients have to authenticate."""
    principal: str | None = None
    """The principal of all who connect; None: they authenticate, or are anonymous."""
    speaker: Speaker | None = None
    """Set before the listener is served, if its clients speak Kafka 0.7."""

    def protocol_of(self, connection: Connection) -> asyncio.BufferedProtocol:
        """The protocol that the event loop talks to: the connection itself, or TLS in front of it."""
        if self.principal is not None:
            connection.principal = self.principal
        if self.speaker is not None:
            self.speaker.take(connection)
        if self.tls is None:
            return connection
        from odradek.server.network.tls_transport import TlsTransport

        return TlsTransport(self.tls, connection)


def bind_listener(listener: Listener) -> list[socket.socket]:
    """Binds all addresses of the listener, whose port is then the real one; raises ListenError.

    Clients may connect already; they are served once `accept` runs.
    """
    sockets = bind_all(listener.host, listener.port, listener.name, listener.options)
    listener.port = sockets[0].getsockname()[1]
    return sockets


def accept(listener: Listener, sockets: Sequence[socket.socket], connections: Door) -> Acceptor:
    """Serves what connects to the listener's sockets from now on."""
    return Acceptor(asyncio.get_running_loop(), listener, sockets, connections)


def bind_all(
    host: str, port: int, name: str, options: SocketOptions = DEFAULT_SOCKET_OPTIONS
) -> list[socket.socket]:
    """Sockets bound to every address of `host`, all with the same port."""
    addresses = _addresses(host, port, name)
    for _ in range(FREE_PORT_ATTEMPTS_MAX):
        try:
            return _bind_with_one_port(addresses, port, options)
        except OSError as error:
            if port == 0 and error.errno == errno.EADDRINUSE:
                continue  # free at one address, taken at another
            raise ListenError(_sentence(host, port, name, error)) from error
    raise ListenError(f"listeners: no port is free at all addresses of {host!r} (listener {name}).")


def _addresses(host: str, port: int, name: str) -> list[tuple[int, Address]]:
    try:
        # As bytes: text would go through the IDNA codec, which costs more to import than all sockets.
        name_or_address = host.encode("ascii" if host.isascii() else "idna")
        found = socket.getaddrinfo(
            name_or_address or None,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV,
        )
    except (OSError, UnicodeError) as error:
        raise ListenError(
            f"listeners: the host {host!r} of listener {name} has no address here ({error}); "
            "use localhost, an address of this machine, or 0.0.0.0 for every interface."
        ) from error
    addresses: list[tuple[int, Address]] = []
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            entry = _unmapped(family, address)
            if entry not in addresses:
                addresses.append(entry)
    if any(address[0] in WILDCARDS for _, address in addresses):
        return _both(*WILDCARDS, port)
    if host.lower() == "localhost":
        # A hosts file may name only one of them; clients try either.
        for entry in _both("127.0.0.1", "::1", port):
            if not any(family == entry[0] for family, _ in addresses):
                addresses.append(entry)
    addresses.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return addresses


def _both(ipv4: str, ipv6: str, port: int) -> list[tuple[int, Address]]:
    return [(socket.AF_INET, (ipv4, port)), (socket.AF_INET6, (ipv6, port, 0, 0))]


def _unmapped(family: int, address: Address) -> tuple[int, Address]:
    """An IPv4 address that is written as one of IPv6 (::ffff:127.0.0.1) is one of IPv4."""
    if family == socket.AF_INET6:
        packed = socket.inet_pton(family, address[0].partition("%")[0])
        if packed.startswith(_MAPPED):
            return socket.AF_INET, (socket.inet_ntoa(packed[len(_MAPPED) :]), address[1])
    return family, address


def _bind_with_one_port(
    addresses: Sequence[tuple[int, Address]], port: int, options: SocketOptions
) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            try:
                bound.append(_bind(family, (address[0], port, *address[2:]), options))
            except OSError as error:
                if not _lacks_family(family, error):
                    raise
                missing = error
                continue
            port = bound[0].getsockname()[1]
        if missing is not None and not bound:
            raise missing
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _lacks_family(family: int, error: OSError) -> bool:
    """A machine without IPv6, or without IPv4, still has its other addresses."""
    return error.errno == errno.EAFNOSUPPORT or (
        family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL
    )


def _bind(family: int, address: Address, options: SocketOptions) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection, as in Kafka: it detects clients whose machine has gone.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            # Each family has its own socket, so that the same port can be bound for both.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Connections inherit the sizes of their listening socket.
        if options.send_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        if options.receive_buffer_bytes > 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
        listening.bind(address)
        # With SO_REUSEADDR a taken port shows only here.
        listening.listen(options.backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def _sentence(host: str, port: int, name: str, error: OSError) -> str:
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"listeners: {where} (listener {name}) is taken by another process; "
            "stop it or choose another port (0 picks a free one)."
        )
    if error.errno == errno.EACCES:
        return f"listeners: binding {where} (listener {name}) is not permitted; choose a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"listeners: {host!r} (listener {name}) is not an address here; use localhost or 0.0.0.0."
    return f"listeners: cannot bind {where} (listener {name}): {error.strerror or error}."
