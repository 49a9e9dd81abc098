"""The SASL listeners of a broker, made from its options when everything that they need is there."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.config.kerberos import GSSAPI
from odradek.config.oauthbearer import OAUTHBEARER, UnsignedTokens
from odradek.config.os_reason import reason_of
from odradek.coordinator.security.scram_users import ScramUsers
from odradek.server.background.work import Detached, WorkQueues
from odradek.server.network.timers import monotonic_ms
from odradek.server.network.unauthenticated import Unauthenticated
from odradek.server.security.sasl.exchange import Settings
from odradek.server.security.sasl.gate import SaslListener
from odradek.server.security.sasl.gssapi import GssapiServer, open_acceptor
from odradek.server.security.sasl.mechanism import NewServer
from odradek.server.security.sasl.other_apis import OtherApis
from odradek.server.security.sasl.plain import PlainServer, users_of
from odradek.server.security.sasl.scram import ScramServer
from odradek.wire.scram import MECHANISM_NUMBERS

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.listener_security import ListenerSecurity
    from odradek.server.background.schedule import Schedule
    from odradek.server.network.connections import Connections
    from odradek.server.network.listeners import Listener
    from odradek.server.security.sasl.oauthbearer import Validator
    from odradek.server.security.tokens import TokenLogins

SECRET_FILE = "odradek-scram-secret"
_SECRET_BYTES = 32
_WORKERS = 2

NewScram = Callable[[str], NewServer]
"""Takes the name of a mechanism."""
NewOAuth = Callable[["ListenerSecurity"], NewServer]


def open_listeners(
    config: BrokerConfig,
    listeners: Iterable[Listener],
    connections: Connections,
    schedule: Schedule,
    scram_users: Callable[[], ScramUsers],
    tokens: TokenLogins | None = None,
) -> Callable[[], None]:
    """Gives each listener with SASL what its connections need. Returns what ends it. ConfigError: one
    sentence."""
    now_ms = connections.dispatcher.now_ms
    workers = WorkQueues(schedule.loop, _WORKERS)
    shared = connections.unauthenticated = Unauthenticated(schedule.timers, monotonic_ms)
    secret = _secret_of(config)
    routes = connections.dispatcher.routes

    def new_scram(mechanism: str) -> NewServer:
        number = MECHANISM_NUMBERS[mechanism]
        return lambda: ScramServer(number, scram_users, secret, secrets.token_urlsafe, tokens)

    with ExitStack() as ending:
        ending.callback(workers.close)

        def new_oauth(security: ListenerSecurity) -> NewServer:
            from odradek.server.security.sasl.oauthbearer import OAuthBearerServer

            validator = _validator(config, security, schedule, ending)
            return lambda: OAuthBearerServer(validator)

        for listener in listeners:
            security = config.security.get(listener.name)
            if security is None or not security.has_sasl:
                continue
            listener.sasl = SaslListener(
                name=listener.name,
                settings=_settings(config, security, new_scram, new_oauth),
                new_versions=partial(OtherApis, routes),
                unauthenticated=shared,
                timers=schedule.timers,
                now_ms=now_ms,
                workers=workers,
            )
        return ending.pop_all().close


def _settings(
    config: BrokerConfig, security: ListenerSecurity, new_scram: NewScram, new_oauth: NewOAuth
) -> Settings:
    logins = config.logins[security.name]

    def new_server(mechanism: str) -> NewServer:
        if mechanism == GSSAPI:
            assert logins.service is not None
            acceptor = open_acceptor(logins.service, security.name)
            return lambda: GssapiServer(acceptor)
        if mechanism == "PLAIN":
            users = users_of(logins.modules[mechanism].options)
            return lambda: PlainServer(users)
        return new_oauth(security) if mechanism == OAUTHBEARER else new_scram(mechanism)

    return Settings(
        {one: new_server(one) for one in security.mechanisms},
        {one: security.value("connections.max.reauth.ms", one) for one in security.mechanisms},
        config.values["connection.failed.authentication.delay.ms"],
        security.value("sasl.server.max.receive.size"),
    )


def _validator(
    config: BrokerConfig,
    security: ListenerSecurity,
    schedule: Schedule,
    ending: ExitStack,
) -> Validator:
    """The validator for the tokens of a listener."""
    settings = config.logins[security.name].tokens
    assert settings is not None
    if isinstance(settings, UnsignedTokens):
        from odradek.server.security.sasl.oauthbearer import UnsignedValidator

        return UnsignedValidator(settings)
    try:
        from odradek.server.security.jwks import Jwks
        from odradek.server.security.signed_tokens import SignedValidator
    except ImportError:
        raise ConfigError(
            f"Listener {security.name} offers OAUTHBEARER, which needs packages more: "
            "pip install 'odradek[security]'."
        ) from None
    detached = Detached(schedule.loop)
    ending.callback(detached.close)
    jwks = Jwks(settings, schedule.loop, schedule.timers, detached.run, monotonic_ms)
    ending.callback(jwks.close)
    jwks.load()
    return SignedValidator(settings, jwks.keys, jwks.miss)


def _secret_of(config: BrokerConfig) -> bytes:
    """For salts of users that do not exist. The nodes of a cluster should have the same: two salts tell that
    there is no such user. All nodes have the key of tokens."""
    shared = config.values["delegation.token.secret.key"]
    if shared:
        return hmac.digest(shared.reveal().encode(), b"salts of users that do not exist", "sha256")
    return node_secret(os.path.join(config.data_directories[0], SECRET_FILE))


def node_secret(path: str) -> bytes:
    """The secret of this node, which a file keeps: salts of users that do not exist stay the same after a
    start."""
    try:
        with open(path, "rb") as file:
            content = file.read(_SECRET_BYTES + 1)
        if len(content) == _SECRET_BYTES:
            return content
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    secret = secrets.token_bytes(_SECRET_BYTES)
    building = f"{path}.building"
    try:
        with open(os.open(building, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secret)
        os.replace(building, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {reason_of(error)}.") from None
    return secret
