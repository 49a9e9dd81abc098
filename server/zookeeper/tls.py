"""TLS of the connection to ZooKeeper. Imported only where it has some."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping

from odradek.config.config_error import ConfigError
from odradek.security.tls import TlsSettings, openssl_reason

logger = logging.getLogger("odradek.zookeeper")

PREFIX = "zookeeper."
"""Before the names of the options of TLS in messages."""


class Tls:
    """The contexts for new connections; key stores that have changed are read again. Raises ConfigError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._settings = TlsSettings.of(options, PREFIX)
        self._context = self._settings.client_context()
        for path in self._settings.readable_by_others:
            logger.warning("ZooKeeper: everybody on this machine can read the private key in %s", path)
        self.problem: str | None = None
        """Why the last connection could not be opened."""

    def connect(self, address: tuple[str, int], host: str | None, timeout_s: float | None) -> ssl.SSLSocket:
        """A connection whose ends know each other. Raises OSError."""
        connection = socket.create_connection(address, timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = self._newest().wrap_socket(connection, server_hostname=host or address[0])
        except (OSError, ValueError) as error:
            connection.close()
            self.problem = openssl_reason(error)
            raise
        self.problem = None
        return secured

    def _newest(self) -> ssl.SSLContext:
        if not self._settings.is_current:
            try:
                settings = TlsSettings.of(self._options, PREFIX, is_start=False)
                self._context, self._settings = settings.client_context(), settings
            except ConfigError as error:
                logger.error("%s The keys before are used on.", error)
        return self._context
