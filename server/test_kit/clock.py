"""The broker's clock in the hand of a test: `clock.advance`, `clock.to`, `clock.freeze`.

An advance goes from one deadline to the next: the clock is moved to it, what is due there runs, and when the
broker has settled (`settling.py`) the next one has its turn, until the time is reached. Meanwhile the clock
is frozen: however long that takes, the broker sees exactly the time that was said. So time-outs fire in
order, each at its own time, and what they cause is done before the next one.

A day has 86,400 looks for something to retain, as many for something to flush, and so on. In an advance each
kind of look comes at most `STEPS_MAX` times, and once more at its end. Nor are other timers set to come more
often than that in the time that the advance has gone so far: those of the first minutes fire at their time,
those that come again and again all day are late by some minutes in the end.
"""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING

from odradek.server.network.timers import NS_PER_MS
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.settling import settled

if TYPE_CHECKING:
    from odradek.server.test_kit.kit import TestKit

STEPS_MAX = 300
LAST_MS = 7_258_118_400_000
"""The year 2200: times are kept in 64 bits of nanoseconds."""


class ClockPart:
    """Operations about the clock. Each returns the time after it, in milliseconds since 1970."""

    operations = ("advance", "freeze", "now", "to", "unfreeze")

    def __init__(self, kit: TestKit) -> None:
        self._server = kit.server
        self._clock = kit.server.clock
        self._timers = kit.server.schedule.clock_timers
        self._moving = asyncio.Lock()
        # Nanoseconds, and the milliseconds among them that the connections know.
        self._ahead_ns = self._told_ms = 0

    def close(self) -> None:
        """Nothing is left of an advance that the kit has cancelled."""

    async def advance(
        self,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> int:
        """Let so much time pass; everything that is due in it is done before the return."""
        try:
            passing = timedelta(
                days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
            )
        except (TypeError, ValueError, OverflowError) as error:
            raise TestKitError(f"clock.advance: {error}") from None
        if passing < timedelta(0):
            raise TestKitError(f"the clock does not go backwards: {passing} is less than no time")
        return await self._pass(passing // timedelta(microseconds=1) * 1000)

    async def to(self, when: float) -> int:
        """Let time pass until the clock says `when`: milliseconds since 1970."""
        if isinstance(when, bool) or not isinstance(when, int | float) or not math.isfinite(when):
            raise TestKitError(f"clock.to needs milliseconds since 1970, not {when!r}")
        now_ms = self._clock.now_ms()
        if when < now_ms:
            raise TestKitError(f"the clock does not go backwards: it is {now_ms} ms, after {when:g}")
        return await self._pass(round((when - now_ms) * NS_PER_MS))

    async def freeze(self) -> int:
        """Stop time until `unfreeze`, apart from `advance` and `to`."""
        async with self._moving:
            self._clock.freeze()
            self._timers.clock_changed()
            return self._clock.now_ms()

    async def unfreeze(self) -> int:
        """Let time go on from where it is."""
        async with self._moving:
            self._clock.unfreeze()
            self._timers.clock_changed()
            return self._clock.now_ms()

    async def now(self) -> int:
        """The time."""
        return self._clock.now_ms()

    async def _pass(self, passing_ns: int) -> int:
        if self._clock.now_ms() + passing_ns // NS_PER_MS > LAST_MS:
            raise TestKitError("the clock goes to the year 2200 and no further")
        async with self._moving:
            was_frozen = self._clock.is_frozen
            self._clock.freeze()
            self._timers.clock_changed()
            try:
                await self._pass_frozen(passing_ns)
            finally:
                if not was_frozen:
                    self._clock.unfreeze()
                self._timers.clock_changed()
            return self._clock.now_ms()

    async def _pass_frozen(self, passing_ns: int) -> None:
        end_ns = self._clock.monotonic_ns() + passing_ns
        # A broker that has just started has read nothing of its groups and transactions yet.
        self._server.coordinators.load()
        await settled(self._server)
        begun_ns = self._clock.monotonic_ns()
        self._timers.look_ms_min = passing_ns / NS_PER_MS / STEPS_MAX
        try:
            await self._run_until(end_ns, begun_ns)
        finally:
            self._timers.hasten()
        await self._run_until(end_ns, end_ns)

    async def _run_until(self, end_ns: int, begun_ns: int) -> None:
        while (due_ns := self._timers.next_ns) is not None and due_ns <= end_ns:
            self._move(math.ceil(due_ns))
            self._timers.delay_ms_min = max(due_ns - begun_ns, 0) / NS_PER_MS / STEPS_MAX
            self._timers.run_due()
            await settled(self._server)
        self._move(end_ns)

    def _move(self, to_ns: int) -> None:
        by_ns = to_ns - self._clock.monotonic_ns()
        if by_ns <= 0:
            return
        self._clock.move(by_ns)
        self._ahead_ns += by_ns
        by_ms = self._ahead_ns // NS_PER_MS - self._told_ms
        if by_ms:
            self._told_ms += by_ms
            self._server.connections.clock_moved(by_ms)


def make(kit: TestKit) -> ClockPart:
    return ClockPart(kit)
