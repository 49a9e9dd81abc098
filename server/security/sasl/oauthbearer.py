"""OAUTHBEARER: the client sends a token, which says who it is.

A token that is refused is answered with a JSON text, as if the authentication went on; the client sends one
byte, and the refusal follows with the same text. Tokens are checked in a worker thread.

`UnsignedValidator` takes tokens without a signature, for listeners that name Kafka's class for it; signed
ones are a matter of `server/security/signed_tokens.py`.

Sources: RFC 7628; OAuthBearerSaslServer, OAuthBearerClientInitialResponse, OAuthBearerUnsecuredJws and
OAuthBearerValidationUtils of Kafka.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

from odradek.server.security.sasl.mechanism import AuthenticationFailed, Later, Login, shown
from odradek.wire.scram import SASL_NAME

if TYPE_CHECKING:
    from odradek.config.oauthbearer import UnsignedTokens

TOKEN_LENGTH_MAX = 65_536
"""Tokens of authorities have some thousand characters at most; a worker should not read half a MB of JSON."""
MESSAGE_BYTES_MAX = TOKEN_LENGTH_MAX + 16 * 1024
"""With the extensions; before the patterns, which a client that nobody knows could keep busy."""
SUBJECT_LENGTH_MAX = 500
"""Responses carry it as a part of a principal."""
TIME_MAX_MS = 2**63 - 1
_GO_ON = b"\x01"
_KEY = "[A-Za-z]+"
_VALUE = "[\\x21-\\x7e \t\r\n]+"
_FIRST = re.compile(
    f"n,(?:a=(?P<authorization_id>{SASL_NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*+)\x01", re.ASCII
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class InvalidToken(Exception):
    """`reason` is for the log: it has nothing of the token but names, escaped. `missing_scope`: the token is
    right, and does not have this scope."""

    def __init__(self, reason: str, missing_scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing_scope = missing_scope

    @property
    def response(self) -> str:
        """The JSON for the client."""
        if self.missing_scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":{json.dumps(self.missing_scope)}}}'


class Validator(Protocol):
    """Checks tokens of one listener; in any thread."""

    def validate(self, token: str, now_ms: int) -> Login:
        """Whose token it is, and its end. Raises InvalidToken."""


class _First(NamedTuple):
    token: str
    authorization_id: str


class OAuthBearerServer:
    """One authentication."""

    def __init__(self, validator: Validator) -> None:
        self.login: Login | None = None
        self._validator = validator
        self._refusal: InvalidToken | None = None
        """Refusal that the client was told, until it sends something."""

    def respond(self, token: bytes, now_ms: int) -> Later:
        refusal, self._refusal = self._refusal, None
        if refusal is not None and token == _GO_ON:
            raise AuthenticationFailed(refusal.reason, refusal.response)
        first = _read(token)
        return Later(lambda: self._judge(first, now_ms))

    def _judge(self, first: _First, now_ms: int) -> bytes:
        try:
            login = self._validator.validate(first.token, now_ms)
        except InvalidToken as error:
            self._refusal = error
            return error.response.encode()
        if first.authorization_id not in ("", login.name):
            raise AuthenticationFailed(
                f"user {shown(login.name)} asks for the rights of another",
                "The authorization id must be the user of the token or empty.",
            )
        self.login = login
        return b""


def _read(message: bytes) -> _First:
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed("the message of OAUTHBEARER is too long")
    # As Java decodes it: bytes that are no UTF-8 make replacement characters, which the pattern has not.
    found = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise AuthenticationFailed("the message of OAUTHBEARER makes no sense")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise AuthenticationFailed("the message of OAUTHBEARER has no bearer token")
    if len(auth["token"]) > TOKEN_LENGTH_MAX:
        raise AuthenticationFailed("the token of OAUTHBEARER is too long")
    return _First(auth["token"], found["authorization_id"] or "")


class UnsignedValidator:
    """Believes every token."""

    def __init__(self, settings: UnsignedTokens) -> None:
        self._settings = settings

    def validate(self, token: str, now_ms: int) -> Login:
        """See `Validator`."""
        settings = self._settings
        parts = token.split(".")
        if len(parts) != 3 or not parts[0] or not parts[1] or parts[2]:
            raise InvalidToken("it is not a token without a signature")
        header, claims = (claims_of(_decoded(part)) for part in parts[:2])
        if header.get("alg") != "none":
            raise InvalidToken("its algorithm is not none")
        name = subject_of(claims, settings.subject_claim)
        expiry_ms, issued_ms = time_ms(claims, "exp"), time_ms(claims, "iat")
        if expiry_ms is None:
            raise InvalidToken(f"it has no time of its end, for user {shown(name)}")
        if issued_ms is not None and not now_ms + settings.skew_ms >= issued_ms < expiry_ms:
            raise InvalidToken(f"its times make no sense, for user {shown(name)}")
        if now_ms - settings.skew_ms >= expiry_ms:
            raise InvalidToken(f"it has expired, for user {shown(name)}")
        self._check_scope(claims, name)
        return Login(name, expiry_ms)

    def _check_scope(self, claims: Mapping[str, Any], name: str) -> None:
        scope = claims.get(self._settings.scope_claim)
        if scope is not None and not isinstance(scope, str | list):
            raise InvalidToken(f"its scope makes no sense, for user {shown(name)}")
        scopes = [scope] if isinstance(scope, str) else scope or []
        present = {one.strip() for one in scopes if isinstance(one, str)}
        required = self._settings.required_scope
        if not present.issuperset(required):
            missing = f"[{', '.join(required)}]"
            raise InvalidToken(f"it has too small a scope, for user {shown(name)}", missing)


def claims_of(content: bytes) -> Mapping[str, Any]:
    """The object of a JSON text. Raises InvalidToken."""
    try:
        found = json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidToken("it is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidToken("it is not a JSON object")
    return found


def subject_of(claims: Mapping[str, Any], name: str) -> str:
    """The user of a token: one that a response can carry. Raises InvalidToken."""
    subject = claims.get(name)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken("it has no subject")
    if len(subject) > SUBJECT_LENGTH_MAX:
        raise InvalidToken(f"its subject {shown(subject)} is too long")
    if any("\ud800" <= character <= "\udfff" for character in subject):
        # JSON can write half a pair of UTF-16.
        raise InvalidToken(f"its subject {shown(subject)} is not Unicode text")
    return subject


def time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """A time of a token, in ms since 1970; None: it has none. Raises InvalidToken."""
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidToken(f"its {name} is not a number")
    if not 0 <= seconds <= TIME_MAX_MS / 1000:
        raise InvalidToken(f"its {name} is not a time")
    return min(round(seconds * 1000), TIME_MAX_MS)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _decoded(part: str) -> bytes:
    text = part.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("it is not base64") from None
