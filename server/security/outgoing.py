"""TLS of connections that this node opens: to other brokers, with the settings of the listener among brokers,
and to controllers, with those of their listener."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from odradek.config.config_error import ConfigError
from odradek.config.listener_security import ListenerSecurity
from odradek.security.tls import TlsSettings
from odradek.server.network.tls_reload import settings_of

logger = logging.getLogger("odradek.cluster")


class OutgoingTls:
    """Call it for the context of each new connection. It is made anew when the settings are others."""

    def __init__(self, present: Callable[[], TlsSettings]) -> None:
        """Raises ConfigError."""
        self._present = present
        self._made_of = present()
        self._context = self._made_of.client_context()

    def __call__(self) -> ssl.SSLContext:
        settings = self._present()
        if settings is not self._made_of:
            # Checked before they were taken.
            self._context, self._made_of = settings.client_context(), settings
        return self._context


def following_files(security: ListenerSecurity) -> Callable[[], TlsSettings]:
    """The settings of a listener that is not this node's: files are read again when they have changed. Ones
    that cannot be used are told once, and the old settings stay. Raises ConfigError at once."""
    present = settings_of(security)
    told = ""

    def follow() -> TlsSettings:
        nonlocal present, told
        if present.is_current:
            return present
        try:
            wanted = settings_of(security, is_start=False)
            wanted.client_context()
        except ConfigError as error:
            if str(error) != told:
                told = str(error)
                logger.error("new TLS settings are not used, the old ones stay: %s", error)
            return present
        present, told = wanted, ""
        return present

    return follow
