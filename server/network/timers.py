"""The clock and one heap of timers: every time-out of the broker hangs on a single event loop timer.

Deadlines are kept on the monotonic clock, so that a jump of the wall clock neither fires nor delays a
long poll. `now_ms` is the wall clock (milliseconds since 1970): it goes into records and to the machines.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from itertools import count

logger = logging.getLogger("odradek.timers")


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """For intervals: it never jumps, and says nothing about the time of day."""
    return time.monotonic_ns() // 1_000_000


def steady_clock_ms(now_ms: Callable[[], int]) -> Callable[[], int]:
    """A clock that begins at `now_ms()` and does not jump: sessions of groups are measured with it."""
    ahead_ns = now_ms() * 1_000_000 - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + ahead_ns) // 1_000_000


class Timer:
    """One pending call; `cancel` is cheap and harmless at any time."""

    __slots__ = ("_callback", "_is_in_heap", "_timers")

    def __init__(self, timers: Timers, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._is_in_heap = False
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            if self._is_in_heap:
                self._timers._note_cancelled()

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Timers:
    """Implements `apis.turn.Timers` on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_at = 0.0

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` once, `delay_ms` from now; equal deadlines run in the order they were set."""
        timer = Timer(self, callback)
        if delay_ms <= 0:
            self._loop.call_soon(timer._run)
            return timer
        deadline = self._loop.time() + delay_ms / 1000
        timer._is_in_heap = True
        heapq.heappush(self._heap, (deadline, next(self._numbers), timer))
        if self._armed is None or deadline < self._armed_at:
            self._arm(deadline)
        return timer

    def every(self, interval_ms: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` again and again until the returned function is called."""
        stopped = False
        pending: Timer

        def tick() -> None:
            nonlocal pending
            try:
                callback()
            finally:
                if not stopped:
                    pending = self.after(interval_ms, tick)

        def stop() -> None:
            nonlocal stopped
            stopped = True
            pending.cancel()

        pending = self.after(interval_ms, tick)
        return stop

    def close(self) -> None:
        """Forgets every timer."""
        self._heap.clear()
        self._cancelled = 0
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def __len__(self) -> int:
        """Timers that are still to run."""
        return len(self._heap) - self._cancelled

    def _arm(self, deadline: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_at = deadline
        self._armed = self._loop.call_at(deadline, self._run_due)

    def _note_cancelled(self) -> None:
        # Most long polls are woken before their deadline: without this the heap would keep half a second's
        # worth of dead timers.
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2]._callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _run_due(self) -> None:
        self._armed = None
        # The loop's own timers have a resolution of a millisecond: what is due within it runs now.
        horizon = self._loop.time() + 0.001
        while self._heap and self._heap[0][0] <= horizon:
            timer = heapq.heappop(self._heap)[2]
            timer._is_in_heap = False
            if timer._callback is None:
                self._cancelled -= 1
                continue
            try:
                timer._run()
            except Exception:
                logger.exception("a timer failed")
        # A callback that set a timer armed us for that one; one that was set before it may be due earlier.
        if self._heap and (self._armed is None or self._heap[0][0] < self._armed_at):
            self._arm(self._heap[0][0])
