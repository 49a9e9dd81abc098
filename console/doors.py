"""Sessions by cookies, and the login, which is SASL at a broker with what a person typed.
Nothing of that is kept but the open connections, and what opens them again."""

from collections.abc import Callable
from dataclasses import replace

from odradek.client.client_error import ClientError
from odradek.client.cluster import ANY_NODE
from odradek.config.credentials import Credentials
from odradek.config.secret import Secret
from odradek.console.access import Access
from odradek.console.sessions import Failures, Session, Sessions
from odradek.console.settings import ConsoleSettings, patient
from odradek.security.client_security import ClientSecurity
from odradek.wire.errors import ErrorCode

WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms of the login."""
USER_CHARACTERS_MAX = 1_000
PASSWORD_CHARACTERS_MAX = 10_000


class WrongLogin(ClientError):
    """The brokers do not take user and password."""


class Doors:
    """The sessions of a console; for the event loop, except `enter`. `clock` gives seconds that only grow."""

    def __init__(self, settings: ConsoleSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self.sessions = Sessions(clock)
        self._visitors = Sessions(clock)
        """Sessions before the login: however many of them there are, they end no other session."""
        self._common = None if settings.has_login else self._access(settings.client.security)
        self.failures = Failures(clock)

    def session_of(self, cookie: str | None) -> Session:
        """The session of a cookie, a new one if there is none."""
        return self.sessions.find(cookie) or self._visitors.find(cookie) or self._visitors.begin(self._common)

    def enter(self, user: str, password: str) -> Access:
        """The access of a person whom the brokers take; blocks. WrongLogin, or another ClientError."""
        if not user or len(user) > USER_CHARACTERS_MAX or len(password) > PASSWORD_CHARACTERS_MAX:
            raise WrongLogin("a user name and a password are needed")
        credentials = Credentials(self._settings.mechanism, user, Secret(password))
        access = self._access(
            replace(self._settings.client.security, credentials=credentials, token_path=None)
        )
        try:
            with access.cluster() as cluster:
                cluster.connect(ANY_NODE)
        except BaseException as error:
            access.close()
            if isinstance(error, ClientError) and error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise WrongLogin(str(error), error.code) from None
            raise
        return access

    def log_in(self, session: Session, access: Access, user: str) -> Session:
        """A new session, with another cookie and token, in place of one without a login."""
        self.log_out(session)
        return self.sessions.begin(access, user)

    def log_out(self, session: Session) -> None:
        """Ends the session."""
        self.sessions.end(session)
        self._visitors.end(session)

    def close(self) -> None:
        """Ends all sessions."""
        self.sessions.close()
        if self._common is not None:
            self._common.close()

    def _access(self, security: ClientSecurity) -> Access:
        settings = self._settings
        return Access(
            patient(replace(settings.client, security=security)),
            read_only=settings.read_only,
            hides_messages=settings.hides_messages,
        )
