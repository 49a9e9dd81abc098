"""The connections of clients that nobody knows yet: their time, and their memory, have bounds.

Each has `DEADLINE_MS` to authenticate. All together may hold `BYTES_MAX` bytes of incomplete frames beyond
the buffer that every connection has: when they are over it, the one with the most of them is closed, so that
a client with an ordinary frame is not the one who pays. Failures go to the log once a minute for each
address.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from odradek.server.network.failure_log import INTERVAL_MS, FailureLog
from odradek.server.network.timers import Timers

logger = logging.getLogger("odradek.authentication")

DEADLINE_MS = 30_000
"""Kafka has no limit but `connections.max.idle.ms`."""
BYTES_MAX = 64 * 1024 * 1024


class Stranger(Protocol):
    """A connection whose client is not known yet."""

    @property
    def address(self) -> str: ...

    def give_up(self) -> None:
        """Closes at once."""


class Unauthenticated:
    """All of a broker; made with the first listener that needs it."""

    def __init__(
        self,
        timers: Timers,
        now_ms: Callable[[], int],
        *,
        deadline_ms: int = DEADLINE_MS,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`now_ms` is of a clock that does not jump."""
        self._timers = timers
        self._now_ms = now_ms
        self._deadline_ms = deadline_ms
        self._bytes_max = bytes_max
        self._deadlines: dict[Stranger, int] = {}
        """The oldest first."""
        self._held_bytes: dict[Stranger, int] = {}
        self._log, self._faults = FailureLog(), FailureLog()
        self._is_armed = self._tells_later = False
        self.held_bytes = 0
        """Bytes that all of them hold."""
        self.failures = 0
        """Authentications that have failed since the start, and connections that broke the protocol of it."""
        self.successes = 0
        self.expired = 0
        """Connections closed because they did not authenticate again in time."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, stranger: Stranger) -> None:
        self._deadlines[stranger] = self._now_ms() + self._deadline_ms
        if not self._is_armed:
            self._is_armed = True
            self._timers.after(self._deadline_ms, self._expire)

    def remove(self, stranger: Stranger) -> None:
        """Forgets a client that has authenticated, or is gone. Harmless a second time."""
        self._deadlines.pop(stranger, None)
        self.held_bytes -= self._held_bytes.pop(stranger, 0)

    def note_held(self, stranger: Stranger, held_bytes: int) -> None:
        """Notes how many bytes a client holds now, beyond the first buffer. May close it, or another one."""
        if held_bytes == self._held_bytes.get(stranger, 0) or stranger not in self._deadlines:
            return
        self.held_bytes += held_bytes - self._held_bytes.get(stranger, 0)
        if held_bytes:
            self._held_bytes[stranger] = held_bytes
        else:
            self._held_bytes.pop(stranger, None)
        while self.held_bytes > self._bytes_max:
            largest = max(self._held_bytes, key=self._held_bytes.__getitem__)
            self.remove(largest)
            self._give_up(largest, f"clients before authentication hold more than {self._bytes_max} bytes")

    def note_failure(self, address: str, reason: str) -> None:
        """For the log, and for the count."""
        self.failures += 1
        line = self._log.note(address, reason, self._now_ms())
        if line is not None:
            logger.warning("authentication failed: %s", line)
        self._tell_later()

    def note_fault(self, listener: str, error: Exception) -> None:
        """A fault of ours: any client may be able to repeat it."""
        line = self._faults.note(f"listener {listener}", type(error).__name__, self._now_ms())
        if line is not None:
            logger.error("a SASL mechanism failed: %s", line, exc_info=error)
        self._tell_later()

    def _expire(self) -> None:
        now_ms = self._now_ms()
        for stranger, deadline_ms in list(self._deadlines.items()):
            if now_ms < deadline_ms:
                self._timers.after(deadline_ms - now_ms, self._expire)
                return
            self.remove(stranger)
            self._give_up(stranger, f"no authentication within {self._deadline_ms} ms")
        self._is_armed = False

    def _give_up(self, stranger: Stranger, reason: str) -> None:
        self.note_failure(stranger.address, reason)
        stranger.give_up()

    def _tell_later(self) -> None:
        if not self._tells_later:
            self._tells_later = True
            self._timers.after(INTERVAL_MS, self._tell)

    def _tell(self) -> None:
        now_ms = self._now_ms()
        for line in self._log.due(now_ms):
            logger.warning("authentication failed: %s", line)
        for line in self._faults.due(now_ms):
            logger.error("a SASL mechanism failed: %s", line)
        self._tells_later = False
        if len(self._log) or len(self._faults):
            self._tell_later()
