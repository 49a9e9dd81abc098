"""TLS and the login of the connection to ZooKeeper, and who may change the nodes that the broker makes."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.config import zookeeper
from odradek.config.config_error import ConfigError
from odradek.security.tls import TlsSettings, openssl_reason

if TYPE_CHECKING:
    from odradek.config.credentials import Credentials

logger = logging.getLogger("odradek.zookeeper")

PREFIX = "zookeeper."
"""Before the names of the options of TLS in messages."""


class Secured(NamedTuple):
    tls: Tls | None
    login: Credentials | None
    is_protected: bool
    """Whether nodes are for the broker alone to change."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Secured:
        """From the options of a broker. Reads key stores and the file of logins. Raises ConfigError."""
        login = zookeeper.login_of(values)
        is_protected = zookeeper.is_protected(values, login)
        options = zookeeper.tls_options(values)
        return cls(None if options is None else Tls(options), login, is_protected)


class Tls:
    """The contexts for new connections; key stores that have changed are read again. Raises ConfigError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._settings = TlsSettings.of(options, PREFIX)
        self._context = self._settings.client_context()
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
