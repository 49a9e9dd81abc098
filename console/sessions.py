"""Sessions: who looks, with which access, for how long. They are in memory alone, and end with the process.

A session begins with a cookie, a random number of 256 bits, and gets a new one at login. Who has no session
but needs none (no login is asked for) shares one access with all others of that kind, but has a token of
their own.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.console.access import Access

IDLE_S = 30 * 60.0
SESSIONS_MAX = 1_000
"""The one that was used longest ago goes when there are more."""
SECRET_BYTES = 32
FREE_FAILURES = 2
"""Failed logins before the next one has to wait."""
WAIT_S_MAX = 60.0
FAILURES_MAX = 10_000
"""Names and addresses whose failures are remembered."""


def new_secret() -> str:
    """A random number of 256 bits as text."""
    return secrets.token_urlsafe(SECRET_BYTES)


@dataclass(slots=True)
class Session:
    """One browser. `access` is None before the login."""

    access: Access | None
    user: str = ""
    cookie: str = field(default_factory=new_secret, repr=False)
    token: str = field(default_factory=new_secret, repr=False)
    """In every form: who can make a browser send a form cannot read it."""
    used_s: float = 0.0
    is_new: bool = True
    """Whether the browser has not shown the cookie yet."""
    memory: dict[object, object] = field(default_factory=dict, repr=False)
    """Notes of screens between two views, such as the last offsets of a group; bounded by them."""

    def has_token(self, text: str) -> bool:
        """Compares in a time that says nothing."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


class Sessions:
    """The sessions by their cookies. `clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, cookie: str | None) -> Session | None:
        """The session of a cookie, which is used now; None if there is none, or none any more."""
        self._end_idle()
        session = self._sessions.get(cookie or "")
        if session is not None:
            session.used_s = self._clock()
            session.is_new = False
            self._sessions.move_to_end(session.cookie)
        return session

    def begin(self, access: Access | None, user: str = "") -> Session:
        """A new session."""
        session = Session(access, user, used_s=self._clock())
        self._sessions[session.cookie] = session
        while len(self._sessions) > SESSIONS_MAX:
            self.end(next(iter(self._sessions.values())))
        return session

    def end(self, session: Session) -> None:
        """Forgets the session, and closes the access that was its own."""
        self._sessions.pop(session.cookie, None)
        if session.access is not None and session.user:
            session.access.close()

    def close(self) -> None:
        """Ends all."""
        for session in [*self._sessions.values()]:
            self.end(session)

    def _end_idle(self) -> None:
        before = self._clock() - IDLE_S
        while self._sessions and next(iter(self._sessions.values())).used_s < before:
            self.end(next(iter(self._sessions.values())))


class Failures:
    """Failed logins by user and by address: after some of them the next one has to wait, twice as long each
    time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_s(self, *names: str) -> float:
        """Seconds until the next attempt of these may be made; 0: now."""
        until = max((self._failures.get(name, (0, 0.0))[1] for name in names), default=0.0)
        return max(0.0, until - self._clock())

    def failed(self, *names: str) -> None:
        """Counts a failure for each."""
        for name in names:
            count = self._failures.pop(name, (0, 0.0))[0] + 1
            pause_s = min(WAIT_S_MAX, 2.0 ** (count - FREE_FAILURES)) if count >= FREE_FAILURES else 0.0
            self._failures[name] = count, self._clock() + pause_s
        while len(self._failures) > FAILURES_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, *names: str) -> None:
        """Forgets the failures."""
        for name in names:
            self._failures.pop(name, None)
