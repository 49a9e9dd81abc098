"""How many connections a second have come to each listener, in the last 30 s as Kafka's own rates say it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

INTERVAL_S = 1.0
WINDOW_S = 30


class Rates:
    """Rates of counters that only grow, by name. Times in seconds, of a clock that does not jump."""

    def __init__(self) -> None:
        self._known: deque[tuple[float, dict[str, int]]] = deque(maxlen=WINDOW_S + 1)

    def note(self, now_s: float, counts: Mapping[str, int]) -> None:
        """To be called once a second."""
        self._known.append((now_s, dict(counts)))

    def rates(self, now_s: float, counts: Mapping[str, int]) -> dict[str, float]:
        """Rate of each counter per second, since the oldest note; 0 without one."""
        if not self._known or now_s <= self._known[0][0]:
            return dict.fromkeys(counts, 0.0)
        then_s, before = self._known[0]
        return {name: (count - before.get(name, 0)) / (now_s - then_s) for name, count in counts.items()}


class CreationRates:
    """Looks at the counters from its making to `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counts: Callable[[], Mapping[str, int]]) -> None:
        self._loop = loop
        self._counts = counts
        self._rates = Rates()
        self._look()

    def now(self) -> dict[str, float]:
        """New connections a second, by name of the listener."""
        return self._rates.rates(self._loop.time(), self._counts())

    def close(self) -> None:
        self._handle.cancel()

    def _look(self) -> None:
        now_s = self._loop.time()
        self._rates.note(now_s, self._counts())
        self._handle = self._loop.call_later(INTERVAL_S, self._look)
