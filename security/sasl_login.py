"""The client's side of SASL: the requests with which one connection authenticates, without the connection.

    login = SaslLogin(credentials, nonce)
    while (request := login.request) is not None:
        login.take(response of the broker to request)

Whoever opens connections sends them: other nodes (`server/security/sasl/client.py`), Spark
(`spark_integration/connection.py`), the health check (`server/process/health.py`).

Sources: SaslClientAuthenticator of Kafka 4.3; RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628 (OAUTHBEARER).
"""

from __future__ import annotations

from typing import Any, Protocol

from odradek.config.credentials import Credentials
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message
from odradek.wire.scram import ScramClient

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
RENEWAL_SHARE = 0.85
"""Share of a session's life after which it is renewed, on the same connection (KIP-368)."""
TOKEN_AUTH = "tokenauth=true"
"""The extension of SCRAM with which a delegation token authenticates (KIP-48)."""
_KNOWN_CODES = frozenset(ErrorCode)


class SaslRefused(Exception):
    """The broker does not take the user, or does not prove who it is itself; what the broker does, as a
    sentence without its subject."""


class NoSasl(SaslRefused):
    """The listener has no SASL."""


class _Dialogue(Protocol):
    """The messages of one mechanism."""

    @property
    def first(self) -> bytes: ...

    def next(self, challenge: bytes) -> bytes | None:
        """The next message; None: the broker's last one was right. Raises ValueError."""


class SaslLogin:
    """One authentication; `nonce` is printable ASCII without a comma, new for each."""

    def __init__(self, credentials: Credentials, nonce: str) -> None:
        self.request: Message | None = SaslHandshakeRequest(mechanism=credentials.mechanism)
        """To be sent now; None: the connection is authenticated."""
        self.lifetime_ms = 0
        """Lifetime of the session; 0: it has no end, or the broker is too old to say."""
        self._credentials = credentials
        self._nonce = nonce
        self._dialogue: _Dialogue | None = None

    @property
    def version(self) -> int:
        """Version of `request`, for brokers of Kafka 2.5 and later, and ours."""
        return HANDSHAKE_VERSION if self._dialogue is None else AUTHENTICATE_VERSION

    def take(self, response: Any) -> None:
        """The response to `request`; takes some milliseconds with SCRAM. Raises SaslRefused."""
        if isinstance(self.request, SaslHandshakeRequest):
            self._check_handshake(response)
            self._dialogue = _dialogue(self._credentials, self._nonce)
            self.request = SaslAuthenticateRequest(auth_bytes=self._dialogue.first)
            return
        assert self._dialogue is not None
        if response.error_code != ErrorCode.NONE:
            reason = response.error_message or "it gives no reason"
            raise SaslRefused(f"refuses {self._who} ({_name(response.error_code)}): {reason}")
        try:
            message = self._dialogue.next(bytes(response.auth_bytes))
        except ValueError as error:
            raise SaslRefused(f"does not keep to {self._credentials.mechanism}: {error}") from None
        self.lifetime_ms = response.session_lifetime_ms
        self.request = None if message is None else SaslAuthenticateRequest(auth_bytes=message)

    def _check_handshake(self, response: Any) -> None:
        if response.error_code == ErrorCode.NONE:
            return
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise NoSasl("has no SASL at this listener")
        offered = ", ".join(response.mechanisms) or "none"
        raise SaslRefused(
            f"does not take the SASL mechanism {self._credentials.mechanism} ({_name(response.error_code)}); "
            f"it offers: {offered}"
        )

    @property
    def _who(self) -> str:
        known = self._credentials
        if known.mechanism == "OAUTHBEARER":
            return "the token"
        return f"the delegation token {known.user!r}" if known.is_token else f"the user {known.user!r}"


def _name(code: int) -> str:
    return ErrorCode(code).name if code in _KNOWN_CODES else f"error {code}"


def _dialogue(credentials: Credentials, nonce: str) -> _Dialogue:
    if credentials.mechanism == "PLAIN":
        return _Plain(credentials)
    if credentials.mechanism == "OAUTHBEARER":
        return _OAuthBearer(credentials)
    return _Scram(credentials, nonce)


class _Plain:
    def __init__(self, credentials: Credentials) -> None:
        # `encode` gives the text of a Secret itself.
        self.first = b"\0".join((b"", credentials.user.encode(), credentials.password.encode()))

    def next(self, challenge: bytes) -> bytes | None:
        return None


class _Scram:
    def __init__(self, credentials: Credentials, nonce: str) -> None:
        extensions = TOKEN_AUTH if credentials.is_token else ""
        password = credentials.password.reveal()
        self._client = ScramClient(credentials.mechanism, credentials.user, password, nonce, extensions)
        self.first = self._client.first
        self._is_last = False

    def next(self, challenge: bytes) -> bytes | None:
        if self._is_last:
            self._client.verify(challenge)
            return None
        self._is_last = True
        return self._client.final(challenge)


class _OAuthBearer:
    """The token is the password."""

    def __init__(self, credentials: Credentials) -> None:
        self.first = b"n,,\x01auth=Bearer " + credentials.password.encode() + b"\x01\x01"
        self._is_refused = False

    def next(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        if self._is_refused:
            raise ValueError("the broker goes on after its refusal")
        # The reason came as JSON; the failure itself comes after this (RFC 7628, 3.2.3).
        self._is_refused = True
        return b"\x01"
