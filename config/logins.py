"""The login module of each mechanism of a listener: from `sasl.jaas.config` of the listener and mechanism,
else from the file of `odradek.jaas.config.path`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.config.config_error import ConfigError
from odradek.config.credentials import Credentials
from odradek.config.jaas import LOGIN_MODULES, LoginModule, parse_file, parse_one, server_context
from odradek.config.listener_security import ListenerSecurity, listener_prefix
from odradek.config.oauthbearer import OAUTHBEARER, SignedTokens, UnsignedTokens, oauth_settings
from odradek.config.oauthbearer import warnings_of as oauth_warnings_of
from odradek.config.secret import Secret

if TYPE_CHECKING:
    from odradek.config.kerberos import KerberosService
    from odradek.config.option_values import BrokerValues

JAAS_PATH: Final = "odradek.jaas.config.path"
_JAAS = "sasl.jaas.config"
_OF_NODES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms with which this node authenticates to others."""
_NEED_USERS = ("PLAIN",)
"""Mechanisms whose users are in the login module."""

Contexts = Mapping[str, Sequence[LoginModule]]


@dataclass(frozen=True, slots=True)
class Logins:
    """With what a listener checks who its clients are."""

    modules: Mapping[str, LoginModule]
    """By mechanism, those that have one."""
    tokens: SignedTokens | UnsignedTokens | None = None
    """The tokens of OAUTHBEARER, if it is offered."""
    service: KerberosService | None = None
    """The service of GSSAPI, if it is offered."""


def read_contexts(values: BrokerValues) -> Contexts:
    """The contexts of the file; none without one. ConfigError: one sentence."""
    path = values[JAAS_PATH]
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{JAAS_PATH}: {path} cannot be read: {reason}.") from None
    return parse_file(text, path)


def login_of(security: ListenerSecurity, mechanism: str, contexts: Contexts) -> LoginModule | None:
    """The login module of one mechanism; None without one. ConfigError: one sentence."""
    text = security.text(_JAAS, mechanism)
    if text is None:
        return server_context(contexts, security.name, mechanism)
    name = f"{listener_prefix(security.name)}{mechanism.lower()}.{_JAAS}"
    login = parse_one(text, name)
    if mechanism not in login.mechanisms:
        wanted = next(one for one, mechanisms in LOGIN_MODULES.items() if mechanism in mechanisms)
        raise ConfigError(f"{name} has {login.name}, and {mechanism} needs {wanted}.")
    return login


def logins_of(security: ListenerSecurity, contexts: Contexts) -> Logins:
    """ConfigError: a login module is missing, or makes no sense."""
    modules = {}
    service = tokens = None
    for mechanism in security.mechanisms:
        login = login_of(security, mechanism, contexts)
        if login is not None:
            modules[mechanism] = login
        if mechanism == "GSSAPI":
            from odradek.config.kerberos import service_of

            service = service_of(security, login)
        if mechanism in _NEED_USERS and not any(
            option.startswith("user_") for option in (login.options if login else ())
        ):
            raise ConfigError(
                f"Listener {security.name} offers {mechanism} and has no users: give them as options "
                f"user_NAME in {listener_prefix(security.name)}{mechanism.lower()}.{_JAAS}."
            )
    if OAUTHBEARER in security.mechanisms:
        tokens = oauth_settings(security, modules.get(OAUTHBEARER))
    return Logins(modules, tokens, service)


def warnings_of_file(values: BrokerValues) -> list[str]:
    """Sentences about the file of `read_contexts` for the log at the start."""
    path = values[JAAS_PATH]
    if path is None or not os.stat(path).st_mode & 0o077:
        return []
    return [f"{path} has passwords, and other users of this machine may read it: set its mode to 600."]


def warnings_of(security: ListenerSecurity, logins: Logins) -> list[str]:
    """Sentences for the log at the start."""
    warnings = []
    if "PLAIN" in security.mechanisms and not security.has_tls:
        warnings.append(
            f"Listener {security.name} offers PLAIN without TLS: passwords cross the network as they are."
        )
    if logins.tokens is not None:
        warnings += oauth_warnings_of(security, logins.tokens)
    return warnings


def credentials_of(
    security: ListenerSecurity, mechanism: str, contexts: Contexts, option: str
) -> Credentials:
    """With which this node logs in to the listeners of this name at other nodes: `username` and `password` of
    the login module, as in Kafka. `option` has named the mechanism. ConfigError: one sentence."""
    if mechanism not in _OF_NODES:
        raise ConfigError(f"{option}={mechanism} is not built yet: set it to one of {', '.join(_OF_NODES)}.")
    login = login_of(security, mechanism, contexts)
    options = {} if login is None else login.options
    if not options.get("username") or not options.get("password"):
        raise ConfigError(
            f"This node logs in to others with {mechanism} at listener {security.name}, and has no username "
            f"and password: give them in {listener_prefix(security.name)}{mechanism.lower()}.{_JAAS}."
        )
    return Credentials(mechanism, options["username"].reveal(), Secret(options["password"]))
