"""Signed tokens (JWT) of OAUTHBEARER: their signature, times, audience, issuer and subject.

The algorithm of a token has to fit to the key: only asymmetric ones are there, so that no public key can be
used as a shared secret, and no token without a signature is read.

Needs the extra `odradek[security]`. Sources: RFC 7515, 7517, 7519; BrokerJwtValidator and
ClaimValidationUtils of Kafka 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import get_default_algorithms
from jwt.api_jws import PyJWS

from odradek.server.security.sasl.mechanism import Login, shown
from odradek.server.security.sasl.oauthbearer import InvalidToken, claims_of, subject_of, time_ms

if TYPE_CHECKING:
    from odradek.config.oauthbearer import SignedTokens

KEYS_MAX = 1_000
CANDIDATES_MAX = 4
"""Keys that are tried for one token."""
RSA_BITS_MIN = 2_048
_PUBLIC_MEMBERS: Final = ("kty", "n", "e", "crv", "x", "y")
_OF_RSA: Final[tuple[str, ...]] = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVES: Final[Mapping[str, tuple[str, ...]]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "secp256k1": ("ES256K",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
_CLASS_OF_TYPES: Final = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
"""An algorithm whose class reads keys of the type."""
ALGORITHMS: Final = frozenset(_OF_RSA).union(*_OF_CURVES.values())


@dataclass(frozen=True, slots=True)
class _Key:
    key_id: str | None
    algorithms: tuple[str, ...]
    public: Any


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an authority."""

    keys: tuple[_Key, ...] = ()

    def find(self, key_id: str | None, algorithm: str) -> list[Any]:
        """The keys that a token with this header may be signed with. One that names no key has to leave no
        choice."""
        fitting = [one for one in self.keys if algorithm in one.algorithms]
        if key_id is None:
            return [one.public for one in fitting] if len(fitting) == 1 else []
        return [one.public for one in fitting if one.key_id == key_id][:CANDIDATES_MAX]


def read_key_set(content: bytes) -> KeySet:
    """The keys of a JWKS that can be used. ValueError: one sentence."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ValueError("it is not JWKS")
    keys = tuple(_usable(entries[:KEYS_MAX]))
    if not keys:
        raise ValueError("it has no key for signatures")
    return KeySet(keys)


def _usable(entries: Iterable[Any]) -> Iterable[_Key]:
    for entry in entries:
        key = _key_of(entry) if isinstance(entry, dict) else None
        if key is not None:
            yield key


def _key_of(entry: Mapping[str, Any]) -> _Key | None:
    kind, key_id = entry.get("kty"), entry.get("kid")
    if not isinstance(kind, str) or kind not in _CLASS_OF_TYPES or not isinstance(key_id, str | None):
        return None
    operations = entry.get("key_ops")
    if entry.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    algorithms = _OF_RSA if kind == "RSA" else _OF_CURVES.get(str(entry.get("crv")), ())
    if (only := entry.get("alg")) is not None:
        algorithms = tuple(one for one in algorithms if one == only)
    # A private key that somebody has published by mistake is read as its public part.
    public = {name: entry[name] for name in _PUBLIC_MEMBERS if name in entry}
    try:
        key = get_default_algorithms()[_CLASS_OF_TYPES[kind]].from_jwk(public)
    except Exception:
        # Of many classes: what an authority has published here is of no use, and others may be.
        return None
    if not algorithms or (isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN):
        return None
    return _Key(key_id, algorithms, key)


class SignedValidator:
    """Implements `oauthbearer.Validator`. `keys` returns the present ones, `miss` is told of a key id that is
    not among them; both are called in any thread."""

    def __init__(
        self, settings: SignedTokens, keys: Callable[[], KeySet], miss: Callable[[str | None], None]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._miss = miss

    def validate(self, token: str, now_ms: int) -> Login:
        """See `oauthbearer.Validator`."""
        claims = claims_of(self._verified(token))
        name = subject_of(claims, self._settings.subject_claim).strip()
        expiry_ms = self._checked_expiry_ms(claims, now_ms, name)
        self._check_origin(claims, name)
        self._check_scope(claims, name)
        return Login(name, expiry_ms)

    def _verified(self, token: str) -> bytes:
        """The payload."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise InvalidToken("it is not a signed token") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise InvalidToken("its algorithm is not allowed")
        if "crit" in header or "b64" in header:
            raise InvalidToken("it has extensions that are not known")
        if not isinstance(key_id, str | None):
            raise InvalidToken("its key id is not text")
        candidates = self._keys().find(key_id, algorithm)
        if not candidates:
            self._miss(key_id)
            raise InvalidToken(f"its key {shown(key_id or '')} is not known")
        verifier = PyJWS(algorithms=[algorithm])
        for key in candidates:
            try:
                payload: bytes = verifier.decode(token, key=key, algorithms=[algorithm])
            except (jwt.PyJWTError, ValueError, TypeError):
                continue
            return payload
        raise InvalidToken("its signature is wrong")

    def _checked_expiry_ms(self, claims: Mapping[str, Any], now_ms: int, name: str) -> int:
        skew_ms = self._settings.skew_s * 1000
        expiry_ms, issued_ms, begin_ms = (time_ms(claims, one) for one in ("exp", "iat", "nbf"))
        if expiry_ms is None or issued_ms is None:
            raise InvalidToken(f"it has no time of its issue or its end, for user {shown(name)}")
        if now_ms - skew_ms >= expiry_ms:
            raise InvalidToken(f"it has expired, for user {shown(name)}")
        if issued_ms > expiry_ms or (begin_ms is not None and begin_ms > min(now_ms + skew_ms, expiry_ms)):
            raise InvalidToken(f"its times make no sense now, for user {shown(name)}")
        return expiry_ms

    def _check_origin(self, claims: Mapping[str, Any], name: str) -> None:
        audiences, issuer = claims.get("aud"), claims.get("iss")
        named = audiences if isinstance(audiences, list) else [audiences]
        wanted = self._settings.audiences
        if wanted and not any(isinstance(one, str) and one in wanted for one in named):
            raise InvalidToken(f"it is for another audience, for user {shown(name)}")
        if self._settings.issuer is not None and issuer != self._settings.issuer:
            raise InvalidToken(f"it is of another issuer, for user {shown(name)}")

    def _check_scope(self, claims: Mapping[str, Any], name: str) -> None:
        """A text, or a list without blank or equal ones; nothing depends on it."""
        scope = claims.get(self._settings.scope_claim)
        scopes = [scope] if isinstance(scope, str) else scope
        if scopes is None:
            return
        if not isinstance(scopes, list) or not all(isinstance(one, str) and one.strip() for one in scopes):
            raise InvalidToken(f"its scope makes no sense, for user {shown(name)}")
        if len({one.strip() for one in scopes}) < len(scopes):
            raise InvalidToken(f"its scope has something twice, for user {shown(name)}")
