"""The exchange in which a client authenticates, as a machine: frames in, decisions out.

A client may ask for ApiVersions first; then it names a mechanism (SaslHandshake) and sends tokens, in
SaslAuthenticate requests after a handshake of version 1, or bare after one of version 0. `_ACTIONS` is the
table of what may come in which state. With a session that ends, the client goes through it again, from the
handshake on (KIP-368): `begin_again`.

The machine has no clock and no socket: `receive` returns what to do. A failure is answered after a delay, so
that guessing is slow; the response and the end of the connection are one decision, `Close`. A credential ends
at a time of day, a session after a time from now on: a clock that is set changes no session.

Sources: SaslServerAuthenticator and KafkaChannel of Kafka 4.3, and the differential test, which compares each
row of the table with a running Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from odradek.server.security.sasl.mechanism import (
    AuthenticationFailed,
    Later,
    Login,
    MechanismServer,
    NewServer,
    shown,
)
from odradek.wire.codec import decoder
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import RequestHeader, read_request_header, response_parts
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.wire.schema import Message

SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
MIN_REAUTHENTICATION_INTERVAL_MS = 1_000
"""Kafka's bound (KafkaChannel)."""


class State(Enum):
    """States of the machine: what it waits for."""

    FIRST = auto()
    """ApiVersions or SaslHandshake."""
    HANDSHAKE = auto()
    """SaslHandshake; ApiVersions has been."""
    AUTHENTICATE = auto()
    """A token in SaslAuthenticate."""
    TOKEN = auto()
    """A bare token."""
    OTHER_MECHANISM = auto()
    """Anything, which closes: a client that authenticates again has named another mechanism."""
    COMPLETE = auto()
    """Nothing: the requests are not for this machine any more."""
    CLOSED = auto()
    """Nothing: the connection is about to close."""


class Send(NamedTuple):
    """Send this frame and go on."""

    frame: bytes


class Authenticated(NamedTuple):
    """Send this frame; the client is known from now on."""

    frame: bytes
    principal: str
    lifetime_ms: int | None
    """The session ends after this time; None: never."""
    is_token: bool
    is_again: bool
    """Whether the client was known before."""


class Close(NamedTuple):
    """Read no more; after the time send the frame, if there is one, and close."""

    after_ms: int
    reason: str
    """For the log: names are escaped, and it has no secret."""
    frame: bytes | None = None


class Compute(NamedTuple):
    """Take no more frames; run `call` in a worker thread, and give its result, or what it has raised, to
    `go_on`. The socket is read meanwhile: so the end of a client is noticed, and nothing computed for it."""

    call: Callable[[], bytes | None]
    go_on: Callable[[bytes | AuthenticationFailed | None, int], Effect]


Effect = Send | Authenticated | Close | Compute


class Versions(Protocol):
    """The responses that the exchange does not make itself."""

    def respond(self, header: RequestHeader, frame: bytes, position: int) -> tuple[bytes, bool]:
        """The response to ApiVersions, and whether it is one without an error. MalformedMessage: none."""

    def check(self, header: RequestHeader) -> None:
        """MalformedMessage: this version of the API is not served."""

    def refusal(self, header: RequestHeader, frame: bytes, position: int, code: ErrorCode) -> bytes | None:
        """The response that refuses any request; None if there is none. MalformedMessage: it makes no
        sense."""


@dataclass(frozen=True, slots=True)
class Settings:
    """SASL of one listener."""

    mechanisms: Mapping[str, NewServer]
    """The enabled ones, in the order of the options."""
    max_reauth_ms: Mapping[str, int]
    """`connections.max.reauth.ms` by mechanism; 0: a session has no end of its own."""
    failure_delay_ms: int = 100
    """`connection.failed.authentication.delay.ms`"""
    frame_bytes_max: int = 524_288
    """`sasl.server.max.receive.size`"""


CheckLogin = Callable[[str, str], None]
"""Takes a mechanism and a principal. Raises AuthenticationFailed."""
Action = Callable[["Exchange", RequestHeader, bytes, int, int], Effect]


class Exchange:
    """The exchange of one connection."""

    def __init__(
        self,
        settings: Settings,
        versions: Versions,
        check_login: Callable[[], CheckLogin | None] = lambda: None,
    ) -> None:
        """`check_login` returns what may refuse a client whose credentials are right."""
        self.state = State.FIRST
        self._check_login = check_login
        self._settings = settings
        self._versions = versions
        self._server: MechanismServer | None = None
        self._mechanism = ""
        self._principal = ""
        """The principal of the session; empty before the first authentication is complete."""
        self._has_end = False
        """Whether the session ends."""
        self._began_again_ms: int | None = None

    @property
    def frame_bytes_max(self) -> int:
        return self._settings.frame_bytes_max

    def receive(self, frame: bytes, now_ms: int) -> Effect:
        """A frame of the client, without its size."""
        if self.state is State.TOKEN:
            return self._token(frame, now_ms)
        if self.state is State.OTHER_MECHANISM:
            return self._close("another mechanism than before", after_ms=self._settings.failure_delay_ms)
        assert self.state not in (State.COMPLETE, State.CLOSED)
        try:
            header, position = read_request_header(frame, 0)
            action = _ACTIONS[self.state].get(header.api_key, _OTHERWISE[self.state])
            return action(self, header, frame, position, now_ms)
        except MalformedMessage as error:
            return self._close(f"no request that belongs here: {error}")

    def refuse_length(self, reason: str) -> Close:
        """The client announces a frame with a length that is not allowed."""
        return self._close(reason, after_ms=self._settings.failure_delay_ms)

    def begin_again(
        self, mechanism: str, version: int, steady_ms: int
    ) -> SaslHandshakeResponse | Close | None:
        """A handshake of a client that has authenticated. None: it cannot do so again now, and stays who it
        is. `steady_ms` is of a clock that does not jump."""
        assert self.state is State.COMPLETE
        began_ms = self._began_again_ms
        if not self._has_end:
            return None
        if began_ms is not None and steady_ms - began_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return None
        self._began_again_ms = steady_ms
        if mechanism not in self._settings.mechanisms:
            return self._close(f"it asks for the mechanism {shown(mechanism)}, which is not enabled")
        self._use(mechanism, version)
        if mechanism != self._mechanism:
            self.state = State.OTHER_MECHANISM
        return self._chosen()

    # The actions

    def _respond_with_versions(
        self, header: RequestHeader, frame: bytes, position: int, now_ms: int
    ) -> Effect:
        response, is_accepted = self._versions.respond(header, frame, position)
        if is_accepted:
            self.state = State.HANDSHAKE
        return Send(response)

    def _handshake(self, header: RequestHeader, frame: bytes, position: int, now_ms: int) -> Effect:
        self._versions.check(header)
        request = decoded(SaslHandshakeRequest, header, frame, position)
        mechanism: str = request.mechanism
        if mechanism not in self._settings.mechanisms:
            refusal = self._chosen(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            return self._close(
                f"it asks for the mechanism {shown(mechanism)}, which is not enabled",
                after_ms=self._settings.failure_delay_ms,
                frame=encoded(refusal, header),
            )
        self._mechanism = mechanism
        self._use(mechanism, header.api_version)
        return Send(encoded(self._chosen(), header))

    def _authenticate(self, header: RequestHeader, frame: bytes, position: int, now_ms: int) -> Effect:
        self._versions.check(header)
        token = bytes(decoded(SaslAuthenticateRequest, header, frame, position).auth_bytes)
        return self._respond(token, now_ms, header)

    def _token(self, token: bytes, now_ms: int) -> Effect:
        return self._respond(token, now_ms, None)

    def _refuse(self, header: RequestHeader, frame: bytes, position: int, now_ms: int) -> Effect:
        return self._close(
            f"a request with the API key {header.api_key} in the middle of the authentication",
            after_ms=self._settings.failure_delay_ms,
            frame=self._versions.refusal(header, frame, position, ErrorCode.ILLEGAL_SASL_STATE),
        )

    def _close_at_once(self, header: RequestHeader, frame: bytes, position: int, now_ms: int) -> Effect:
        return self._close(f"a request with the API key {header.api_key} before the authentication")

    # Tokens

    def _use(self, mechanism: str, version: int) -> None:
        self._server = self._settings.mechanisms[mechanism]()
        self.state = State.TOKEN if version == 0 else State.AUTHENTICATE

    def _chosen(self, code: ErrorCode = ErrorCode.NONE) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=code, mechanisms=list(self._settings.mechanisms))

    def _respond(self, token: bytes, now_ms: int, header: RequestHeader | None) -> Effect:
        """`header` None: the token came bare."""
        assert self._server is not None
        try:
            challenge = self._server.respond(token, now_ms)
            if isinstance(challenge, Later):
                return Compute(
                    challenge.call, lambda result, later_ms: self._computed(result, later_ms, header)
                )
            return self._challenge(challenge, now_ms, header)
        except AuthenticationFailed as error:
            return self._failed(error, header)

    def _computed(
        self, result: bytes | AuthenticationFailed | None, now_ms: int, header: RequestHeader | None
    ) -> Effect:
        if isinstance(result, AuthenticationFailed):
            return self._failed(result, header)
        try:
            return self._challenge(result, now_ms, header)
        except AuthenticationFailed as error:
            return self._failed(error, header)

    def _challenge(self, challenge: bytes | None, now_ms: int, header: RequestHeader | None) -> Effect:
        assert self._server is not None
        login = self._server.login
        if login is None:
            return Send(_framed(challenge, header))
        principal = f"User:{login.name}"
        if self._principal and principal != self._principal:
            raise AuthenticationFailed(
                f"{shown(principal)} in place of {shown(self._principal)}",
                f"The connection belongs to {self._principal} and cannot become one of {principal}.",
            )
        check = self._check_login()
        if check is not None:
            check(self._mechanism, principal)
        lifetime_ms = self._lifetime_ms(login, now_ms)
        self._has_end = lifetime_ms is not None
        is_again, self._principal = bool(self._principal), principal
        self.state, self._server = State.COMPLETE, None
        return Authenticated(
            _framed(challenge, header, lifetime_ms or 0),
            principal,
            lifetime_ms,
            login.is_token,
            is_again,
        )

    def _lifetime_ms(self, login: Login, now_ms: int) -> int | None:
        """None: without an end."""
        limit_ms = self._settings.max_reauth_ms.get(self._mechanism, 0)
        lifetimes = [limit_ms] if limit_ms > 0 else []
        if login.ends_ms is not None:
            lifetimes.append(max(login.ends_ms - now_ms, 0))
        return min(lifetimes, default=None)

    def _failed(self, error: AuthenticationFailed, header: RequestHeader | None) -> Close:
        frame = None
        if header is not None and not error.is_silent:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=error.message or self._usual_message(),
                auth_bytes=b"",
            )
            frame = encoded(refusal, header)
        return self._close(
            f"{self._mechanism}: {error.reason}",
            after_ms=self._settings.failure_delay_ms,
            frame=frame,
        )

    def _usual_message(self) -> str:
        again = " again" if self._principal else ""
        return f"The client could not be authenticated{again} with {self._mechanism}."

    def _close(self, reason: str, *, after_ms: int = 0, frame: bytes | None = None) -> Close:
        self.state, self._server = State.CLOSED, None
        return Close(after_ms, reason, frame)


_ACTIONS: Final[Mapping[State, Mapping[int, Action]]] = {
    State.FIRST: {API_VERSIONS: Exchange._respond_with_versions, SASL_HANDSHAKE: Exchange._handshake},
    State.HANDSHAKE: {SASL_HANDSHAKE: Exchange._handshake},
    State.AUTHENTICATE: {SASL_AUTHENTICATE: Exchange._authenticate},
}
_OTHERWISE: Final[Mapping[State, Action]] = {
    State.FIRST: Exchange._close_at_once,
    State.HANDSHAKE: Exchange._close_at_once,
    State.AUTHENTICATE: Exchange._refuse,
}


def decoded(request_class: type[Message], header: RequestHeader, frame: bytes, position: int) -> Any:
    """The request of a frame. Raises MalformedMessage."""
    versions = request_class.versions
    if not versions[0] <= header.api_version <= versions[-1]:
        raise MalformedMessage(f"{request_class.__name__} has no version {header.api_version}")
    message, _ = decoder(request_class, header.api_version)(memoryview(frame), position)
    return message


def encoded(response: Message, header: RequestHeader) -> bytes:
    """The frame that answers a request."""
    return b"".join(response_parts(response, header.api_version, header.correlation_id))


def _framed(challenge: bytes | None, header: RequestHeader | None, lifetime_ms: int = 0) -> bytes:
    if header is None:
        if challenge is None:
            return b""
        return len(challenge).to_bytes(4, "big") + challenge
    response = SaslAuthenticateResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        auth_bytes=challenge or b"",
        session_lifetime_ms=lifetime_ms,
    )
    return encoded(response, header)
