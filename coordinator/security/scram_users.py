"""Users with passwords for SCRAM: what is stored of a password, and the changes that clients may ask for.

Of a password only a salt, a number of iterations and two keys are stored, from which the password does not
follow. `ScramUsers` is an immutable table that a `ClusterView` holds; `alterations` judges a request and
returns a refusal or the new credentials for each user. Texts of rows are made and read here.

Sources: RFC 5802; KIP-84, KIP-554; ScramImage and ScramControlManager of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_NAMES,
    MECHANISM_NUMBERS,
    key_size,
    keys_of,
)


class ScramCredential(NamedTuple):
    """Stored form of one password of one user. Whoever has the keys can pretend to be the server, so they are
    not printed."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, [hidden])"


def credential_of(mechanism: int, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    keys = keys_of(mechanism, salted)
    return ScramCredential(salt, keys.stored, keys.server, iterations)


class Deletion(NamedTuple):
    """Removes one credential."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """Makes one credential, or replaces it."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism}, [hidden])"


Key = tuple[str, int]
"""User and mechanism."""


class Changes(NamedTuple):
    """The response to a request of changes."""

    results: Mapping[str, KafkaError | None]
    """By user; None: as asked for."""
    credentials: Mapping[Key, ScramCredential | None]
    """New credentials; None: removed."""


_EMPTY: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class ScramUsers:
    """All credentials; never changed."""

    credentials: Mapping[Key, ScramCredential] = field(default_factory=lambda: _EMPTY)

    def credential(self, user: str, mechanism: int) -> ScramCredential | None:
        return self.credentials.get((user, mechanism))

    def with_changes(self, changes: Mapping[Key, ScramCredential | None]) -> ScramUsers:
        """The table after changes."""
        after = {**self.credentials, **changes}
        return ScramUsers({key: one for key, one in after.items() if one is not None})

    @cached_property
    def of_users(self) -> Mapping[str, Mapping[int, ScramCredential]]:
        """By user and mechanism, both sorted."""
        users: dict[str, dict[int, ScramCredential]] = {}
        for (user, mechanism), credential in sorted(self.credentials.items(), key=lambda one: one[0]):
            users.setdefault(user, {})[mechanism] = credential
        return users

    @cached_property
    def usual_iterations(self) -> Mapping[int, int]:
        """The most frequent number of iterations by mechanism: also for users that do not exist."""
        counts: dict[int, Counter[int]] = {number: Counter() for number in MECHANISM_NAMES}
        for (_, mechanism), credential in self.credentials.items():
            # Kafka's controllers may know a mechanism that is not known here, and have had other bounds.
            if credential.iterations >= ITERATIONS_MIN:
                counts.setdefault(mechanism, Counter())[credential.iterations] += 1
        return {
            mechanism: max(found, key=lambda one: (found[one], -one), default=ITERATIONS_MIN)
            for mechanism, found in counts.items()
        }

    def described(
        self, users: Sequence[str] | None
    ) -> Mapping[str, KafkaError | Mapping[int, ScramCredential]]:
        """The credentials of each of these users; None or nothing: of all users."""
        if not users:
            return dict(self.of_users)
        found: dict[str, KafkaError | Mapping[int, ScramCredential]] = {}
        for user, count in Counter(users).items():
            if count > 1:
                found[user] = KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, f"The request names the user {user!r} more than once."
                )
            elif user in self.of_users:
                found[user] = self.of_users[user]
            else:
                found[user] = KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no SCRAM user {user!r}.")
        return found

    def alterations(
        self, deletions: Iterable[Deletion], upsertions: Iterable[Upsertion], *, are_supported: bool
    ) -> Changes:
        """Changes of a request: each user has one result. As in Kafka, the first refusal of a user stays, a
        second valid change of a user refuses both, and users that are not refused are changed.

        `are_supported`: whether the cluster's metadata.version has users.
        """
        results: dict[str, KafkaError | None] = {}
        credentials: dict[str, tuple[Key, ScramCredential | None]] = {}
        changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
        for one in changes:
            if results.get(one.user) is not None:
                continue
            try:
                if one.user in results:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE, "A request may change one credential of a user only."
                    )
                if not are_supported:
                    raise KafkaError(
                        ErrorCode.UNSUPPORTED_VERSION, "The present metadata.version has no SCRAM users."
                    )
                credentials[one.user] = self._change(one)
                results[one.user] = None
            except KafkaError as error:
                results[one.user] = error
                credentials.pop(one.user, None)
        return Changes(results, dict(credentials.values()))

    def _change(self, one: Deletion | Upsertion) -> tuple[Key, ScramCredential | None]:
        if not one.user:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The name of the user is empty.")
        if one.mechanism not in MECHANISM_NAMES:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "There is no such SCRAM mechanism.")
        key = one.user, one.mechanism
        if isinstance(one, Deletion):
            if key not in self.credentials:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "There is no such credential to delete.")
            return key, None
        if not ITERATIONS_MIN <= one.iterations <= ITERATIONS_MAX:
            raise KafkaError(
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"The number of iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}.",
            )
        return key, credential_of(one.mechanism, one.salt, one.salted_password, one.iterations)


NO_USERS = ScramUsers()


def from_row(key: str, value: str) -> tuple[Key, ScramCredential]:
    """The credential of a row. ValueError: it is none."""
    name, _, user = key.partition("/")
    if name not in MECHANISM_NUMBERS or not user:
        raise ValueError(f"{key!r} names no SCRAM user")
    mechanism = MECHANISM_NUMBERS[name]
    iterations, *texts = value.split(" ")
    salt, stored_key, server_key = map(bytes.fromhex, texts)
    size_bytes = key_size(mechanism)
    if len(stored_key) != size_bytes or len(server_key) != size_bytes:
        raise ValueError(f"the keys of {key!r} have a wrong size")
    return (user, mechanism), ScramCredential(salt, stored_key, server_key, int(iterations))
