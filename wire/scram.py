"""SCRAM (RFC 5802, RFC 7677): its keys, its proofs, and the client's side of it.

Randomness is an argument, and nothing is stored: `coordinator/security/scram_users.py` has the users.
Mechanisms have the numbers of requests and records. Every broker reads this module at its start, so libraries
of hashes come with their first use.
"""

import re
from binascii import Error as BinasciiError
from binascii import a2b_base64, b2a_base64
from typing import NamedTuple

MECHANISM_NAMES = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MECHANISM_NUMBERS = {name: number for number, name in MECHANISM_NAMES.items()}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""Kafka's bounds. A client that took any number would compute for as long as a server likes."""
SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)++"
"""The pattern of a user's name in a message. Possessive: a group that may give back keeps a record for each
character, and names have any length."""
_HASHES = {1: "sha256", 2: "sha512"}
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2}),i=(?P<iterations>[0-9]{1,9})(?:,.*)?"
)
_SERVER_FINAL = re.compile(r"v=(?P<signature>[A-Za-z0-9+/]+={0,2})(?:,.*)?")
_NO_BINDING = "n,,"


class ScramError(ValueError):
    """The server's messages make no sense, or it does not know the password itself."""


class Keys(NamedTuple):
    """The keys that follow from a salted password."""

    client: bytes
    stored: bytes
    server: bytes

    def __repr__(self) -> str:
        return "Keys([hidden])"


def digest_of(mechanism: int, key: bytes, message: bytes) -> bytes:
    """The HMAC of a mechanism."""
    from hmac import digest

    return digest(key, message, _HASHES[mechanism])


def key_size(mechanism: int) -> int:
    """In bytes."""
    return len(_hash_of(mechanism, b""))


def salted_password(mechanism: int, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes some milliseconds."""
    from hashlib import pbkdf2_hmac

    return pbkdf2_hmac(_HASHES[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: int, salted: bytes) -> Keys:
    """The keys of a salted password."""
    client_key = digest_of(mechanism, salted, b"Client Key")
    return Keys(client_key, _hash_of(mechanism, client_key), digest_of(mechanism, salted, b"Server Key"))


def verify_proof(mechanism: int, stored_key: bytes, message: bytes, proof: bytes) -> bool:
    """Whether the maker of the proof knows the password; `message` is the AuthMessage of RFC 5802."""
    signature = digest_of(mechanism, stored_key, message)
    if len(proof) != len(signature):
        return False
    return _is_same(_hash_of(mechanism, _xor(signature, proof)), stored_key)


def sasl_name(user: str) -> str:
    """The name of a user as messages have it."""
    return user.replace("=", "=3D").replace(",", "=2C")


def user_of_sasl_name(name: str) -> str:
    """The user of a name in a message."""
    return name.replace("=2C", ",").replace("=3D", "=")


class ScramClient:
    """One authentication of a client: send `first`, then `final(challenge)`, then check the last response.

    `nonce` is printable ASCII without a comma, new for each authentication. `extensions` are such as
    `tokenauth=true`.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, extensions: str = "") -> None:
        self._mechanism = MECHANISM_NUMBERS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={sasl_name(user)},r={nonce}" + (f",{extensions}" if extensions else "")
        self._signature: bytes | None = None

    @property
    def first(self) -> bytes:
        """The first message."""
        return (_NO_BINDING + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        """The last message; takes some milliseconds. Raises ScramError."""
        found = _SERVER_FIRST.fullmatch(challenge.decode("ascii", "replace"))
        if found is None or not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise ScramError("the first message of the server makes no sense")
        iterations = int(found["iterations"])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(f"the server asks for {iterations} iterations")
        salted = salted_password(self._mechanism, self._password, _decoded(found["salt"]), iterations)
        keys = keys_of(self._mechanism, salted)
        binding = b2a_base64(_NO_BINDING.encode(), newline=False).decode()
        without_proof = f"c={binding},r={found['nonce']}"
        message = f"{self._bare},{found[0]},{without_proof}".encode()
        proof = _xor(keys.client, digest_of(self._mechanism, keys.stored, message))
        self._signature = digest_of(self._mechanism, keys.server, message)
        return f"{without_proof},p={b2a_base64(proof, newline=False).decode()}".encode()

    def verify(self, response: bytes) -> None:
        """Check that the server knows the password, too. Raises ScramError."""
        found = _SERVER_FINAL.fullmatch(response.decode("ascii", "replace"))
        if (
            found is None
            or self._signature is None
            or not _is_same(_decoded(found["signature"]), self._signature)
        ):
            raise ScramError("the server does not prove that it knows the password")


def _decoded(text: str) -> bytes:
    try:
        return a2b_base64(text)
    except BinasciiError:
        raise ScramError("a message of the server has no bytes in base64") from None


def _hash_of(mechanism: int, message: bytes) -> bytes:
    import hashlib

    return hashlib.new(_HASHES[mechanism], message).digest()


def _is_same(one: bytes, other: bytes) -> bool:
    from hmac import compare_digest

    return compare_digest(one, other)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
