"""The listener through which the console reaches its broker, and whether it may be open at its address.

People log in where a listener has SASL with passwords. Where none has, nobody is asked who they are: the
console is open at loopback only then, unless `odradek.console.anonymous` says that it is meant.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.config.broker_config import CONSOLE_LISTEN
from odradek.config.config_error import ConfigError
from odradek.config.listeners import OLDEST

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
WITH_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms of the console's login."""
PACKAGES: Final = ("starlette", "uvicorn", "jinja2")
"""Packages of the extra `odradek[console]`."""
_ANONYMOUS = "odradek.console.anonymous"


class Way(NamedTuple):
    """The way of the console to its broker."""

    listener: str
    """Name of the listener."""
    protocol: str
    mechanism: str
    """With which people log in; empty: they do not."""


def check_packages() -> None:
    """ConfigError where the extra is not installed; nothing of it is imported."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{CONSOLE_LISTEN}: the console needs packages that are not installed "
            f"({', '.join(missing)}): pip install 'odradek[console]'."
        )


def way_of(config: BrokerConfig) -> Way:
    """The way by the options of a broker with a console. ConfigError: one sentence."""
    assert config.console_address is not None
    with_login, without, others = _ways(config)
    if config.values["odradek.console.anonymous"]:
        if not without:
            raise ConfigError(
                f"{_ANONYMOUS} needs a listener at which clients need not prove who they are, and "
                f"there is none ({', '.join(others)}): leave it out, or add such a listener."
            )
        return without[0]
    if with_login:
        return with_login[0]
    if not without:
        raise ConfigError(
            f"{CONSOLE_LISTEN}: people log in with a password, and no listener takes one "
            f"({', '.join(others)}): let one have {', '.join(WITH_PASSWORD[:-1])} or {WITH_PASSWORD[-1]}."
        )
    host = config.console_address[0]
    if host not in LOOPBACK:
        raise ConfigError(
            f"{CONSOLE_LISTEN}: the broker asks nobody to log in, and {host or '0.0.0.0'} can be reached "
            "from other machines: listen at 127.0.0.1, give the broker a listener with SASL, or set "
            f"--console-anonymous ({_ANONYMOUS}) if all who reach the console may use the broker."
        )
    return without[0]


def _ways(config: BrokerConfig) -> tuple[list[Way], list[Way], list[str]]:
    """Ways with a login, ways without, and what the listeners ask of clients that are none of these."""
    with_login: list[Way] = []
    without: list[Way] = []
    others: list[str] = []
    for listener in config.listeners:
        if listener.protocol in OLDEST or listener.principal is not None:
            continue
        security = config.security.get(listener.name)
        if security is None:
            without.append(Way(listener.name, listener.protocol, ""))
        elif security.has_sasl:
            mechanism = next((one for one in security.mechanisms if one in WITH_PASSWORD), None)
            others.append(f"{listener.name} has {', '.join(security.mechanisms)}")
            if mechanism is not None:
                with_login.append(Way(listener.name, listener.protocol, mechanism))
        elif (security.text("ssl.client.auth") or "none").lower() == "required":
            others.append(f"{listener.name} wants certificates")
        else:
            without.append(Way(listener.name, listener.protocol, ""))
    return with_login, without, others
