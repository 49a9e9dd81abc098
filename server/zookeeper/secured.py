"""TLS and the login of the connection to ZooKeeper, and who may change the nodes that the broker makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.config import zookeeper

if TYPE_CHECKING:
    from odradek.config.credentials import Credentials
    from odradek.config.option_values import BrokerValues
    from odradek.server.zookeeper.tls import Tls


class Secured(NamedTuple):
    tls: Tls | None
    login: Credentials | None
    is_protected: bool
    """Whether nodes are for the broker alone to change."""

    @classmethod
    def of(cls, values: BrokerValues) -> Secured:
        """From the options of a broker. Reads key stores and the file of logins. Raises ConfigError."""
        login = zookeeper.login_of(values)
        is_protected = zookeeper.is_protected(values, login)
        options = zookeeper.tls_options(values)
        if options is None:
            return cls(None, login, is_protected)
        from odradek.server.zookeeper.tls import Tls

        return cls(Tls(options), login, is_protected)
