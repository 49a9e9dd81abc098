"""Room for large responses of brokers: one message may have 100 MB, and many people may ask for one at once.

    memory = Memory()
    with memory.held() as hold, hold.used():    # in a thread
        cluster.ask(...)                        # `memory.take` is `ClientSettings.room`

A page takes its room with the first large response, and gives it back when it has been sent. Who finds no
room waits a little, and is told then. A response is in memory three times at most, until the page is made.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.console.workers import Busy

LARGE_BYTES: Final = 8 << 20
"""Smaller responses take no room: threads bound their number. Without large batches one has 4 MiB."""
BYTES_MAX: Final = 128 << 20
"""Large responses of all pages together. One that is larger is alone."""
PATIENCE_S: Final = 5.0
"""Longest wait for room. It is short, as the thread that waits is one of few."""
HOLD: Final = "odradek.hold"
"""The key of a request's hold in its scope."""


class Memory:
    """The room of a console; for threads."""

    def __init__(
        self, bytes_max: int = BYTES_MAX, large_bytes: int = LARGE_BYTES, patience_s: float = PATIENCE_S
    ) -> None:
        self._bytes_max, self._large_bytes, self._patience_s = bytes_max, large_bytes, patience_s
        self._taken = 0
        self._has_changed = threading.Condition()
        self._user = threading.local()

    def take(self, size_bytes: int) -> None:
        """Room for a response, for the hold that this thread uses; Busy if there is none. A hold has that of
        its largest response: it reads one after the other."""
        hold: Hold | None = getattr(self._user, "hold", None)
        if hold is None or size_bytes < self._large_bytes:
            return
        deadline = time.monotonic() + self._patience_s
        with self._has_changed:
            while not self._has_room(size_bytes, hold.taken):
                if not self._has_changed.wait(deadline - time.monotonic()):
                    raise Busy("other pages are reading messages that are as large: try again in a moment")
            self._taken += max(0, size_bytes - hold.taken)
            hold.taken = max(size_bytes, hold.taken)

    @property
    def taken_bytes(self) -> int:
        """Large responses of all pages."""
        return self._taken

    def _has_room(self, size_bytes: int, own: int) -> bool:
        others = self._taken - own
        return size_bytes <= own or others == 0 or others + size_bytes <= self._bytes_max

    @contextmanager
    def held(self) -> Iterator["Hold"]:
        """A hold, which is given back at the end."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            hold.give_back()

    def give_back(self, hold: "Hold") -> None:
        """Takes back all that a hold has."""
        with self._has_changed:
            self._taken -= hold.taken
            hold.taken = 0
            self._has_changed.notify_all()

    @contextmanager
    def used_by(self, hold: "Hold") -> Iterator[None]:
        """The hold of the responses that this thread reads."""
        self._user.hold = hold
        try:
            yield
        finally:
            self._user.hold = None


class Hold:
    """Room that one page has taken."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.taken = 0
        """Bytes."""

    def used(self) -> AbstractContextManager[None]:
        """While it lasts, responses in this thread are of this hold."""
        return self._memory.used_by(self)

    def give_back(self) -> None:
        """May be called again."""
        self._memory.give_back(self)


class Holding:
    """An ASGI middleware: each request has a hold until its response has been sent."""

    def __init__(self, app: ASGIApp, memory: Memory) -> None:
        self._app, self._memory = app, memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._memory.held() as hold:
            scope[HOLD] = hold
            await self._app(scope, receive, send)
