"""SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows the password, without sending it.

A user that does not exist fails at the end, as one with a wrong password does: until then it has a salt that
stays the same, made from a secret, and the number of iterations that most users have. Kafka ends at the first
message, so that anybody can find out which users exist. The secret comes from `delegation.token.secret.key`
where that is set, and else it is of this node: then two nodes of a cluster give such a user two salts, which
tells it. `c=` has to repeat the header of the first message, as RFC 5802 asks for; Kafka does not compare it.

With the extension `tokenauth=true` the user is the id of a delegation token. Its keys are made in a worker
thread at the first use of the token; a token that does not exist costs no thread.

Sources: RFC 5802, RFC 7677; ScramMessages and ScramSaslServer of Kafka 4.3.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.coordinator.security.scram_users import ScramCredential, ScramUsers
from odradek.server.security.sasl.mechanism import AuthenticationFailed, Later, Login, shown
from odradek.wire.scram import ITERATIONS_MIN, SASL_NAME, digest_of, user_of_sasl_name, verify_proof

if TYPE_CHECKING:
    from odradek.coordinator.security.delegation_tokens import DelegationToken
    from odradek.server.security.tokens import TokenLogins

_SALT_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
SALT_LENGTH = 26
MESSAGE_BYTES_MAX = 8 * 1024
"""Before the patterns, which a client that nobody knows could keep busy. Usual ones have some hundred."""

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*+(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization_id>{SASL_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_TOKEN_EXTENSION = re.compile(r",tokenauth=[tT][rR][uU][eE](?:,|$)")
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


def salt_text(source: bytes) -> bytes:
    """A salt from at least 26 random bytes. It looks like those of Kafka's own tools: of a user that does not
    exist the salt must not tell that."""
    characters = (_SALT_CHARACTERS[byte % len(_SALT_CHARACTERS)] for byte in source[:SALT_LENGTH])
    return "".join(characters).encode()


class ScramServer:
    """One authentication. `secret` makes the salts of users that do not exist; `new_nonce` returns printable
    ASCII without a comma; `tokens` is None without delegation tokens."""

    def __init__(
        self,
        mechanism: int,
        users: Callable[[], ScramUsers],
        secret: bytes,
        new_nonce: Callable[[], str],
        tokens: TokenLogins | None = None,
    ) -> None:
        self.login: Login | None = None
        self._mechanism = mechanism
        self._users = users
        self._secret = secret
        self._new_nonce = new_nonce
        self._user = ""
        self._header = b""
        self._nonce = ""
        self._messages = b""
        """The first part of the AuthMessage; empty before the first message."""
        self._credential: ScramCredential | None = None
        self._exists = False
        self._tokens = tokens
        self._token: DelegationToken | None = None
        self._is_token = False
        """Whether the client has named a delegation token."""

    def respond(self, token: bytes, now_ms: int) -> bytes | Later:
        if len(token) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("a message of SCRAM is too long")
        try:
            # As the patterns are: ASCII.
            message = token.decode("ascii")
        except UnicodeDecodeError:
            raise AuthenticationFailed("a message of SCRAM is not ASCII") from None
        return self._final(message, now_ms) if self._messages else self._first(message, now_ms)

    def _first(self, message: str, now_ms: int) -> bytes | Later:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise AuthenticationFailed("the first message of SCRAM makes no sense")
        self._user = user = user_of_sasl_name(found["name"])
        authorization_id = found["authorization_id"]
        if authorization_id is not None and user_of_sasl_name(authorization_id) != user:
            raise AuthenticationFailed(f"user {self._shown} asks for the rights of another")
        self._header = found["header"].encode()
        self._nonce = found["nonce"] + self._new_nonce()
        bare = found["bare"].encode()
        self._is_token = _TOKEN_EXTENSION.search(found["extensions"]) is not None
        if self._is_token:
            return self._first_of_token(bare, now_ms)
        users = self._users()
        credential = users.credential(user, self._mechanism)
        self._exists = credential is not None and credential.iterations >= ITERATIONS_MIN
        iterations = users.usual_iterations[self._mechanism]
        return self._challenge(bare, credential if self._exists and credential else self._made_up(iterations))

    def _first_of_token(self, bare: bytes, now_ms: int) -> bytes | Later:
        tokens = self._tokens
        made_up = self._made_up(ITERATIONS_MIN)
        self._token = None if tokens is None else tokens.find(self._user, now_ms)
        if tokens is None or self._token is None:
            return self._challenge(bare, made_up)
        self._exists = True
        wanted = self._user, self._mechanism, made_up.salt
        known = tokens.known_credential(*wanted)
        if known is not None:
            return self._challenge(bare, known)
        return Later(lambda: self._challenge(bare, tokens.credential(*wanted)))

    def _challenge(self, bare: bytes, credential: ScramCredential) -> bytes:
        self._credential = credential
        salt = base64.b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={credential.iterations}".encode()
        self._messages = bare + b"," + challenge + b","
        return challenge

    def _final(self, message: str, now_ms: int) -> bytes:
        credential, self._credential = self._credential, None
        if credential is None:
            raise AuthenticationFailed("a message of SCRAM after the last one")
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            raise AuthenticationFailed(f"the last message of SCRAM of user {self._shown} makes no sense")
        is_same = hmac.compare_digest(found["nonce"], self._nonce)
        is_bound = hmac.compare_digest(base64.b64decode(found["binding"]), self._header)
        messages = self._messages + found["without_proof"].encode()
        proof = base64.b64decode(found["proof"])
        is_proven = verify_proof(self._mechanism, credential.stored_key, messages, proof)
        if not (self._exists and is_same and is_bound and is_proven):
            kind = "delegation token" if self._is_token else "user"
            raise AuthenticationFailed(f"wrong user or password for {kind} {self._shown}")
        self.login = self._login_of_token(now_ms) if self._is_token else Login(self._user)
        signature = digest_of(self._mechanism, credential.server_key, messages)
        return b"v=" + base64.b64encode(signature)

    def _login_of_token(self, now_ms: int) -> Login:
        """Login with the token. AuthenticationFailed: it has ended since the first message."""
        token = None if self._tokens is None else self._tokens.find(self._user, now_ms)
        if token is None:
            raise AuthenticationFailed(f"the delegation token {self._shown} has ended")
        return Login(token.owner.partition(":")[2], token.expiry_ms, is_token=True)

    @property
    def _shown(self) -> str:
        return shown(self._user)

    def _made_up(self, iterations: int) -> ScramCredential:
        """For a user or token that does not exist: the same at each attempt. The salt of a token is this
        one, too."""
        kind = "token " if self._is_token else ""
        source = digest_of(2, self._secret, f"{kind}{self._mechanism} {self._user}".encode())
        stored_key = digest_of(self._mechanism, self._secret, b"stored " + source)
        return ScramCredential(salt_text(source), stored_key, stored_key, iterations)
