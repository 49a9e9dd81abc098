"""The settings of OAUTHBEARER of a listener: how it checks the tokens of clients.

Kafka takes unsigned tokens unless it is told otherwise (CVE-2026-33557). Here a listener needs the keys of
the authority (`sasl.oauthbearer.jwks.endpoint.url`), or names Kafka's class for unsigned tokens itself.

Sources: BrokerJwtValidator, OAuthBearerUnsecuredValidatorCallbackHandler and ConfigurationUtils of Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from odradek.config.config_error import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.config.jaas import LoginModule
    from odradek.config.listener_security import ListenerSecurity
    from odradek.config.secret import Secret

OAUTHBEARER: Final = "OAUTHBEARER"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
_HANDLER: Final = "sasl.server.callback.handler.class"
_UNSIGNED_HANDLER: Final = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_SIGNED_HANDLERS: Final = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
_VALIDATORS: Final = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
_ANY_AUDIENCE: Final = "sasl.oauthbearer.allow.unverified.audience"
_ANY_ISSUER: Final = "sasl.oauthbearer.allow.unverified.issuer"
_JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_SCOPE_ITEM = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True, slots=True)
class SignedTokens:
    """JWT whose signature is checked."""

    jwks_url: str
    """`file:`, `https:`, or `http:` of this machine."""
    refresh_ms: int
    retry_ms: int
    retry_ms_max: int
    skew_s: int
    audiences: tuple[str, ...]
    """One of them has to be in a token; empty, with leave of the settings: any will do."""
    issuer: str | None
    subject_claim: str
    scope_claim: str


@dataclass(frozen=True, slots=True)
class UnsignedTokens:
    """Whoever can connect may be who he likes: for tests."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_ms: int = 0


def oauth_settings(security: ListenerSecurity, login: LoginModule | None) -> SignedTokens | UnsignedTokens:
    """ConfigError: one sentence."""
    handler = security.text(_HANDLER, OAUTHBEARER)
    if handler == _UNSIGNED_HANDLER:
        return _unsigned(security, {} if login is None else login.options)
    if handler and handler not in _SIGNED_HANDLERS:
        raise ConfigError(
            f"{_HANDLER} of listener {security.name} is {handler}, and Java classes do not run here: leave "
            f"it out, or name {_SIGNED_HANDLERS[0]}."
        )
    validator = security.text(_VALIDATOR, OAUTHBEARER)
    if validator and validator not in _VALIDATORS:
        raise ConfigError(
            f"{_VALIDATOR} of listener {security.name} is {validator}, and Java classes do not run here: "
            "leave it out."
        )
    url = security.text(_JWKS_URL, OAUTHBEARER)
    if not url:
        raise ConfigError(
            f"Listener {security.name} offers OAUTHBEARER and has no keys to check tokens with: set "
            f"{_JWKS_URL}. For unsigned tokens, with which anybody may be anybody, set {_HANDLER} to "
            f"{_UNSIGNED_HANDLER}."
        )
    return _signed(security, _checked_url(url, security.name))


def warnings_of(security: ListenerSecurity, settings: SignedTokens | UnsignedTokens) -> list[str]:
    """Sentences for the log at the start."""
    if isinstance(settings, UnsignedTokens):
        return [f"Listener {security.name} takes unsigned tokens: every client may be who it likes."]
    warnings = []
    if not security.has_tls:
        warnings.append(
            f"Listener {security.name} offers OAUTHBEARER without TLS: tokens cross the network as they are."
        )
    if not settings.audiences:
        warnings.append(
            f"Listener {security.name} takes tokens that were made for other services: set {_AUDIENCE}."
        )
    if settings.issuer is None:
        warnings.append(
            f"Listener {security.name} takes tokens of every issuer that has one of the keys: set {_ISSUER}."
        )
    return warnings


def _signed(security: ListenerSecurity, url: str) -> SignedTokens:
    def value(name: str) -> int:
        number: int = security.value(name, OAUTHBEARER)
        if number < 0:
            raise ConfigError(f"{name} of listener {security.name} is negative.")
        return number

    audiences = tuple(one for one in security.value(_AUDIENCE, OAUTHBEARER) or () if one)
    issuer = security.text(_ISSUER, OAUTHBEARER) or None
    for is_set, option, what, waiver in (
        (bool(audiences), _AUDIENCE, "the service that tokens are for", _ANY_AUDIENCE),
        (issuer is not None, _ISSUER, "who makes the tokens", _ANY_ISSUER),
    ):
        if not is_set and not security.value(waiver, OAUTHBEARER):
            raise ConfigError(
                f"Listener {security.name} offers OAUTHBEARER and does not say {what}: set {option}. To take "
                f"any, set {waiver}=true."
            )
    return SignedTokens(
        url,
        max(value("sasl.oauthbearer.jwks.endpoint.refresh.ms"), 1),
        max(value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"), 1),
        max(value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"), 1),
        value("sasl.oauthbearer.clock.skew.seconds"),
        audiences,
        issuer,
        _claim(security, "sasl.oauthbearer.sub.claim.name"),
        _claim(security, "sasl.oauthbearer.scope.claim.name"),
    )


def _claim(security: ListenerSecurity, option: str) -> str:
    name = (security.text(option, OAUTHBEARER) or "").strip()
    if not name:
        raise ConfigError(f"{option} of listener {security.name} is empty.")
    return name


def _checked_url(url: str, listener: str) -> str:
    try:
        parts = urlsplit(url)
        host = "" if parts.username or parts.password else parts.hostname or ""
    except ValueError:
        raise ConfigError(f"{_JWKS_URL} of listener {listener} is not an address.") from None
    is_file = parts.scheme == "file" and not parts.netloc.removeprefix("localhost") and parts.path
    if is_file or (parts.scheme == "https" and host) or (parts.scheme == "http" and _is_loopback(host)):
        return url
    raise ConfigError(
        f"{_JWKS_URL} of listener {listener} has to be a file: or https: address; http: would let anybody on "
        "the way change the keys, and is taken for this machine only."
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _unsigned(security: ListenerSecurity, options: Mapping[str, Secret]) -> UnsignedTokens:
    def option(name: str) -> str:
        value = options.get(f"unsecuredValidator{name}")
        return "" if value is None else value.reveal().strip()

    scope = tuple(option("RequiredScope").split())
    skew = option("AllowableClockSkewMs") or "0"
    if not skew.isdecimal() or not skew.isascii():
        raise ConfigError(
            f"unsecuredValidatorAllowableClockSkewMs of listener {security.name} is not a number of ms."
        )
    if not all(_SCOPE_ITEM.fullmatch(one) for one in scope):
        raise ConfigError(f"unsecuredValidatorRequiredScope of listener {security.name} is not a scope.")
    return UnsignedTokens(
        option("PrincipalClaimName") or "sub", option("ScopeClaimName") or "scope", scope, int(skew)
    )
