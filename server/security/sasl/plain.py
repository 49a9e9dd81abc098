"""PLAIN: the client sends name and password as they are. Users are options `user_NAME="password"` of the JAAS
settings.

Sources: RFC 4616; PlainSaslServer and PlainServerCallbackHandler of Kafka 4.3.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from odradek.server.security.sasl.mechanism import AuthenticationFailed, Login, shown

USER_PREFIX = "user_"
_NO_PASSWORD = "no password at all"


def users_of(options: Mapping[str, str]) -> dict[str, str]:
    """Passwords by user, from the options of a login module."""
    return {
        key.removeprefix(USER_PREFIX): password
        for key, password in options.items()
        if key.startswith(USER_PREFIX)
    }


class PlainServer:
    """One authentication."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self.login: Login | None = None
        self._users = users

    def respond(self, token: bytes, now_ms: int) -> bytes:
        """The last challenge is empty."""
        # As Java decodes it: bytes that are no UTF-8 make replacement characters, which no password has.
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise AuthenticationFailed(
                "the message of PLAIN has not three parts",
                f"PLAIN takes three parts, and the message has {len(parts)}.",
            )
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("PLAIN without a user", "PLAIN needs the name of a user.")
        if not password:
            raise AuthenticationFailed(
                f"PLAIN without a password for user {shown(user)}", "PLAIN needs a password."
            )
        if not self._is_right(user, password):
            raise AuthenticationFailed(
                f"wrong user or password for user {shown(user)}", "The user or the password is wrong."
            )
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                f"user {shown(user)} asks for the rights of another",
                "The authorization id must be the user or empty.",
            )
        self.login = Login(user)
        return b""

    def _is_right(self, user: str, password: str) -> bool:
        """Takes as long for a user that does not exist."""
        expected = self._users.get(user)
        is_equal = hmac.compare_digest(
            password.encode("utf-8", "replace"),
            (_NO_PASSWORD if expected is None else expected).encode("utf-8", "replace"),
        )
        return is_equal and expected is not None
