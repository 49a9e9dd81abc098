"""The server's side of one SASL mechanism, as the exchange drives it.

`NewServer` makes one for each authentication. It gets the client's tokens one after the other and returns
challenges. A mechanism that has to wait for something (a library that reads files) returns a `Later`: its
call runs in a worker thread, and the client gets the next challenge after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

SHOWN_LENGTH = 100


class AuthenticationFailed(Exception):
    """The client is not who it says, or says nothing that makes sense.

    `message` is sent to the client: it must not say which part was wrong if that helps to guess. Empty: the
    exchange has its own sentence, the same for all reasons. `reason` is for the log, with names escaped and
    without secrets. `is_silent`: the connection closes without a response, so that the client tries again.
    """

    def __init__(self, reason: str, message: str = "", *, is_silent: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message
        self.is_silent = is_silent


@dataclass(frozen=True, slots=True)
class Login:
    """The result of a successful authentication."""

    name: str
    """Name of the user, without `User:`."""
    ends_ms: int | None = None
    """The time from which on the credential is no longer valid, in ms since 1970; None: it has no end."""
    is_token: bool = False
    """Whether it was a delegation token."""


@dataclass(frozen=True, slots=True)
class Later:
    """The challenge is the result of `call`, which may raise AuthenticationFailed, in a worker thread. None:
    the authentication is complete and the client waits for nothing; an empty challenge is a message, too."""

    call: Callable[[], bytes | None]


class MechanismServer(Protocol):
    """See the module."""

    login: Login | None
    """None as long as the authentication is not complete."""

    def respond(self, token: bytes, now_ms: int) -> bytes | Later:
        """The challenge to a token of the client. Raises AuthenticationFailed."""


NewServer = Callable[[], MechanismServer]


def shown(text: str, length_max: int = SHOWN_LENGTH) -> str:
    """Text that a client has sent, for the log: quoted, escaped and short."""
    return ascii(text[:length_max])
