"""How kazoo opens, reads and ends a connection with TLS or a login. Imported only where one is wanted.

kazoo's own way to TLS takes files of PEM alone, and trusts whom the system trusts beside them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import SequentialThreadingHandler

if TYPE_CHECKING:
    from odradek.server.zookeeper.tls import Tls


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """`tls` None: a login alone."""

    def __init__(self, tls: Tls | None) -> None:
        super().__init__()
        self._tls = tls

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **more: Any
    ) -> socket.socket:
        """`more` are kazoo's options of TLS."""
        if self._tls is not None:
            return self._tls.connect(address, hostname, timeout)
        connection: socket.socket = super().create_connection(address, hostname, timeout, **more)
        return connection

    def select(self, readable: Sequence[Any], *more: Any) -> tuple[Any, ...]:
        """Selects also connections whose bytes TLS has unpacked already: these are in no socket any more."""
        unpacked = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        if not unpacked:
            return tuple(super().select(readable, *more))
        found = super().select([one for one in readable if one not in unpacked], [], [], 0)
        return [*unpacked, *found[0]], [], []

    def spawn(self, function: Callable[..., object], *arguments: Any, **more: Any) -> Any:
        """A refused login ends the thread of the connection. The state of the client tells of it."""

        def quiet() -> None:
            try:
                function(*arguments, **more)
            except KazooException:
                pass

        return super().spawn(quiet)
