"""Delegation tokens: passwords that live for a while, with which other clients act as their owner.

The id of a token is its user name, and the HMAC of the id, by a secret of the cluster, is its password. The
HMAC is never stored: whoever has the secret can make it again. `DelegationTokens` is an immutable table that
a `ClusterView` holds; `TokenRules` judges requests and returns refusals, or the new state of one token, or
None for its removal. Times are ms since 1970. Texts of rows are made and read here.

Principals are texts as `User:ann`.

Sources: KIP-48, KIP-373, KIP-900; DelegationTokenControlManager and TokenInformation of Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.wire.errors import ErrorCode, KafkaError

USER = "User"
"""The only type of principals that may renew, or log in."""
TIME_MAX_MS = 2**63 - 1
TOKENS_OF_ONE_MAX = 10_000
"""Tokens that one principal has asked for and that are still there; Kafka has no bound."""
PRINCIPALS_LENGTH_MAX = 4_096
"""Characters of the owner and of all renewers of a token."""
_EMPTY: Mapping[Any, Any] = MappingProxyType({})


class DelegationToken(NamedTuple):
    """Stored fields of a token. Its HMAC is not among them."""

    token_id: str
    owner: str
    requester: str
    """Principal that has asked for it: the owner, or one who may create tokens for the owner."""
    renewers: tuple[str, ...]
    """Principals that may renew and expire it, besides the owner."""
    issued_ms: int
    max_ms: int
    """No renewal goes beyond."""
    expiry_ms: int

    def is_over(self, now_ms: int) -> bool:
        """Whether it has expired."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def may_be_changed_by(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether the principal sees it without a permission."""
        return principal == self.requester or self.may_be_changed_by(principal)

    def concerns_any(self, principals: Set[str]) -> bool:
        return not principals.isdisjoint((self.requester, self.owner, *self.renewers))


class Change(NamedTuple):
    """A token as it is from now on."""

    token_id: str
    token: DelegationToken | None
    """None: it is removed."""
    expiry_ms: int
    """For the response."""


@dataclass(frozen=True)
class DelegationTokens:
    """All tokens; never changed."""

    by_id: Mapping[str, DelegationToken] = field(default_factory=lambda: _EMPTY)

    def get(self, token_id: str) -> DelegationToken | None:
        return self.by_id.get(token_id)

    def with_changes(self, changes: Mapping[str, DelegationToken | None]) -> DelegationTokens:
        """The table after changes; None: removed."""
        after = {**self.by_id, **changes}
        return DelegationTokens({key: one for key, one in after.items() if one is not None})

    def of(self, owners: Set[str] | None) -> list[DelegationToken]:
        """Tokens that concern any of the owners; None: all."""
        return [one for one in self.by_id.values() if owners is None or one.concerns_any(owners)]

    def over(self, now_ms: int) -> list[DelegationToken]:
        """Tokens that have expired."""
        return [one for one in self.by_id.values() if one.is_over(now_ms)]


NO_TOKENS = DelegationTokens()


class TokenSecret:
    """`delegation.token.secret.key`: makes the HMAC of a token, and finds the token of an HMAC."""

    def __init__(self, secret: str) -> None:
        assert secret
        self._key = secret.encode()
        self._digests: dict[bytes, str] = {}
        """Id by the hash of the HMAC. A look-up may take longer the more of a key is right: of a hash that
        tells nothing."""
        self._known: set[str] = set()

    def __repr__(self) -> str:
        return "TokenSecret([hidden])"

    def hmac_of(self, token_id: str) -> bytes:
        """64 bytes."""
        from hmac import digest

        return digest(self._key, token_id.encode(), "sha512")

    def token_of(self, hmac: bytes, tokens: DelegationTokens) -> DelegationToken | None:
        """The token with this HMAC."""
        from hmac import compare_digest

        self._follow(tokens.by_id)
        found = tokens.get(self._digests.get(_hash_of(hmac), ""))
        return found if found and compare_digest(self.hmac_of(found.token_id), hmac) else None

    def _follow(self, by_id: Mapping[str, DelegationToken]) -> None:
        if gone := self._known - by_id.keys():
            self._known -= gone
            self._digests = {key: one for key, one in self._digests.items() if one not in gone}
        for token_id in by_id.keys() - self._known:
            self._known.add(token_id)
            self._digests[_hash_of(self.hmac_of(token_id))] = token_id


def _hash_of(hmac: bytes) -> bytes:
    from hashlib import sha256

    return sha256(hmac).digest()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Rules of tokens. Refusals are raised, in Kafka's order."""

    secret: TokenSecret | None
    """None: there are no tokens."""
    life_ms_max: int = 604_800_000
    """`delegation.token.max.lifetime.ms`"""
    renewal_ms: int = 86_400_000
    """`delegation.token.expiry.time.ms`"""

    def create(
        self,
        token_id: str,
        owner: str,
        requester: str,
        renewers: Iterable[str],
        life_ms: int,
        now_ms: int,
        *,
        tokens: DelegationTokens,
        are_supported: bool,
    ) -> tuple[DelegationToken, bytes]:
        """A new token beside `tokens`, and its HMAC. `life_ms` 0 or less: as long as it may be.
        `are_supported`: whether the cluster's metadata.version has tokens."""
        secret = self._checked(are_supported)
        renewers = tuple(renewers)
        _check_bounds(owner, requester, renewers, tokens)
        life_ms = min(self.life_ms_max, life_ms) if life_ms > 0 else self.life_ms_max
        max_ms = _sum(now_ms, life_ms)
        expiry_ms = min(max_ms, _sum(now_ms, self.renewal_ms))
        token = DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expiry_ms)
        return token, secret.hmac_of(token_id)

    def renew(
        self,
        hmac: bytes,
        principal: str,
        renewal_ms: int,
        tokens: DelegationTokens,
        now_ms: int,
        *,
        are_supported: bool,
    ) -> Change:
        """`renewal_ms` 0 or less: as long as it may be."""
        token = self._found(hmac, tokens, are_supported)
        if token.is_over(now_ms):
            raise _expired()
        _check_may_change(token, principal)
        renewal_ms = min(self.renewal_ms, renewal_ms) if renewal_ms > 0 else self.renewal_ms
        return _expiring(token, min(token.max_ms, _sum(now_ms, renewal_ms)))

    def expire(
        self,
        hmac: bytes,
        principal: str,
        period_ms: int,
        tokens: DelegationTokens,
        now_ms: int,
        *,
        are_supported: bool,
    ) -> Change:
        """`period_ms` below 0: the token is removed, whether it has expired or not."""
        token = self._found(hmac, tokens, are_supported)
        _check_may_change(token, principal)
        if period_ms < 0:
            return Change(token.token_id, None, now_ms)
        if token.is_over(now_ms):
            raise _expired()
        return _expiring(token, min(token.max_ms, _sum(now_ms, period_ms)))

    def _checked(self, are_supported: bool) -> TokenSecret:
        if self.secret is None:
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "There is no delegation.token.secret.key."
            )
        if not are_supported:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "The present metadata.version has no delegation tokens."
            )
        return self.secret

    def _found(self, hmac: bytes, tokens: DelegationTokens, are_supported: bool) -> DelegationToken:
        token = self._checked(are_supported).token_of(hmac, tokens)
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "There is no such token.")
        return token


def from_row(token_id: str, text: str) -> DelegationToken:
    """The token of a row. ValueError: it is none."""
    import json

    fields = json.loads(text)
    if not isinstance(fields, list) or [type(one) for one in fields] != [str, str, list, int, int, int]:
        raise ValueError(f"the row of the delegation token {token_id!r} makes no sense")
    owner, requester, renewers, *times = fields
    if not all(isinstance(one, str) for one in renewers):
        raise ValueError(f"the renewers of the delegation token {token_id!r} make no sense")
    return DelegationToken(token_id, owner, requester, tuple(renewers), *times)


def _expiring(token: DelegationToken, expiry_ms: int) -> Change:
    return Change(token.token_id, token._replace(expiry_ms=expiry_ms), expiry_ms)


def _check_may_change(token: DelegationToken, principal: str) -> None:
    if not token.may_be_changed_by(principal):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "The client is neither the owner nor a renewer."
        )


def _check_bounds(owner: str, requester: str, renewers: Collection[str], tokens: DelegationTokens) -> None:
    if len(owner) + sum(map(len, renewers)) > PRINCIPALS_LENGTH_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The owner and the renewers have more than {PRINCIPALS_LENGTH_MAX} characters.",
        )
    if sum(one.requester == requester for one in tokens.by_id.values()) >= TOKENS_OF_ONE_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"The client has {TOKENS_OF_ONE_MAX} tokens: expire some of them."
        )


def _expired() -> KafkaError:
    return KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "The token has expired.")


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, TIME_MAX_MS)
