"""Timers: every time-out of the broker hangs on one of two timers of the event loop.

`Timers` are by the system's clock, for whoever waits: long polls, retries, sockets. `ClockTimers` are by the
broker's clock (`_clock.pyx`), which a test may move: sessions, transactions, retention, quotas.
Deadlines are kept on the monotonic clock, so that a jump of the wall clock neither fires nor delays one of
them. `now_ms` is the wall clock (milliseconds since 1970): it goes into records and to the machines.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.server.network._clock import Clock

logger = logging.getLogger("odradek.timers")

NS_PER_MS = 1_000_000


def wall_clock_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """For intervals: it never jumps, and says nothing about the time of day."""
    return time.monotonic_ns() // 1_000_000


def steady_clock_ms(clock: Clock) -> Callable[[], int]:
    """A clock that begins at `clock.now_ms()` and does not jump: sessions of groups are measured with it."""
    monotonic_ns = clock.monotonic_ns
    ahead_ns = clock.now_ms() * NS_PER_MS - monotonic_ns()
    return lambda: (monotonic_ns() + ahead_ns) // NS_PER_MS


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
        self._time: Callable[[], float] = loop.time
        # The loop's own timers have a resolution of a millisecond: what is due within it runs at once.
        self._early = 0.001
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

    def look_after(self, delay_ms: float, look: Callable[[], None]) -> Timer:
        """Calls `look` later, which looks for something to do; the next one would do as well."""
        return self.after(delay_ms, look)

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
                    pending = self.look_after(interval_ms, tick)

        def stop() -> None:
            nonlocal stopped
            stopped = True
            pending.cancel()

        pending = self.look_after(interval_ms, tick)
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
        horizon = self._time() + self._early
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


class ClockTimers(Timers):
    """Timers of the broker's clock, with deadlines in nanoseconds. While it is frozen they run by `run_due`
    alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        super().__init__(loop)
        self._clock = clock
        self._time, self._early = clock.monotonic_ns, NS_PER_MS
        self._put_off: list[tuple[float, Timer]] = []
        self.soon = 0
        """Timers without a delay that are to run in the next turn of the loop."""
        self.look_ms_min = self.delay_ms_min = 0.0
        """The shortest delays of looks and of all timers: a test that moves the clock by a day need not have
        86,400 of each look."""

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """See `Timers`. Without a delay it runs in the next turn, also while the clock is frozen."""
        if delay_ms > 0:
            return self._after(delay_ms, self.delay_ms_min, callback)
        timer = Timer(self, callback)
        self.soon += 1
        self._loop.call_soon(self._run_soon, timer)
        return timer

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """`after` with asyncio's signature."""
        return self.after(delay_s * 1000, callback)

    def look_after(self, delay_ms: float, look: Callable[[], None]) -> Timer:
        """See `Timers`; not sooner than after `look_ms_min`."""
        return self._after(delay_ms, self.look_ms_min, look)

    def _after(self, delay_ms: float, delay_ms_min: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        timer._is_in_heap = True
        now_ns = self._time()
        deadline = now_ns + max(delay_ms, delay_ms_min) * NS_PER_MS
        heapq.heappush(self._heap, (deadline, next(self._numbers), timer))
        if self._armed is None or deadline < self._armed_at:
            self._arm(deadline)
        if delay_ms < delay_ms_min:
            self._put_off.append((now_ns + delay_ms * NS_PER_MS, timer))
        return timer

    def hasten(self) -> None:
        """End the shortest delays: what they have put off is due when it would be without them, or now."""
        self.look_ms_min = self.delay_ms_min = 0.0
        put_off, self._put_off = self._put_off, []
        now_ns = self._time()
        for deadline, timer in put_off:
            if timer._callback is not None:
                # The later entry of the two counts as a cancelled one.
                heapq.heappush(self._heap, (max(deadline, now_ns), next(self._numbers), timer))
                self._cancelled += 1

    @property
    def next_ns(self) -> float | None:
        """The first deadline, by `Clock.monotonic_ns`; None without one."""
        while self._heap and self._heap[0][2]._callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def run_due(self) -> None:
        """Run what is due by the clock."""
        self._run_due()

    def clock_changed(self) -> None:
        """The clock was moved, frozen or unfrozen."""
        self._early = 0 if self._clock.is_frozen else NS_PER_MS
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        if self._heap:
            self._arm(self._heap[0][0])

    def _arm(self, deadline: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        if not self._clock.is_frozen:
            self._armed_at = deadline
            self._armed = self._loop.call_later(max(deadline - self._time(), 0) / 1e9, self._run_due)

    def _run_soon(self, timer: Timer) -> None:
        self.soon -= 1
        timer._run()
