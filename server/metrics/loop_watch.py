"""How late the event loop is: a timer that looks at the clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

INTERVAL_S = 0.5
LOOKS_KEPT = 120
"""Looks of the last minute."""


class LoopWatch:
    """Looks from its making to `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._late_s: deque[float] = deque(maxlen=LOOKS_KEPT)
        self._set()

    @property
    def worst_s(self) -> float:
        """Seconds, of the last minute."""
        return round(max(self._late_s, default=0.0), 6)

    def close(self) -> None:
        self._handle.cancel()

    def _set(self) -> None:
        self._due = self._loop.time() + INTERVAL_S
        self._handle = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._late_s.append(max(0.0, self._loop.time() - self._due))
        self._set()
