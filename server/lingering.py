"""A moment of looking for the next request before the event loop goes to sleep.

To put a core to sleep and to wake it costs more than to serve a small request, on virtual machines several
times as much. A client that asks, gets its answer and asks again (one produce in flight, a consumer that
looks for the end of a log) pays that for every request. So after a turn that served something the loop looks
for up to `LINGER_NS` whether more has come, and sleeps then.

What that may cost is bounded. After looking in vain it is tried less and less often, from the tenth time in a
row on once in `SKIPPED_MAX` turns, so clients that are far away or slow cost nothing. Whoever else wants to
run on this core goes first at each look (`sched_yield`), and a long absence counts as looking in vain.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable

LINGER_NS = 100_000
"""About what a sleep costs that turns out too short: sleeper and waker together."""
SKIPPED_MAX = 1024


class Lingering:
    """Call it when a request was served: at the end of this turn of the loop it looks for the next one.

    `is_wanted()` says at that time whether there is nothing better to do. Without a way to ask the event loop
    whether it has events it does nothing.
    """

    __slots__ = (
        "_is_wanted",
        "_loop",
        "_poll",
        "_scheduled",
        "_skipped_next",
        "_to_skip",
        "clock_ns",
        "give_way",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, is_wanted: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_wanted = is_wanted
        self._scheduled = False
        self._to_skip = 0  # turns until the next try
        self._skipped_next = 1  # turns to skip after the next failure
        self.clock_ns = time.monotonic_ns
        self.give_way: Callable[[], object] = getattr(os, "sched_yield", _do_nothing)
        descriptor = _events_descriptor(loop)
        self._poll: Callable[[int], list[tuple[int, int]]] | None = None
        if descriptor is not None and hasattr(os, "sched_yield"):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            self._poll = poll.poll

    def __call__(self) -> None:
        if self._to_skip:
            self._to_skip -= 1
        elif not self._scheduled and self._poll is not None:
            self._scheduled = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._scheduled = False
        if not self._is_wanted():
            return
        poll, give_way, clock_ns = self._poll, self.give_way, self.clock_ns
        assert poll is not None
        until = clock_ns() + LINGER_NS
        while True:
            if poll(0):
                self._skipped_next = 1
                return
            give_way()
            if clock_ns() >= until:
                break
        self._to_skip = self._skipped_next
        self._skipped_next = min(2 * self._skipped_next, SKIPPED_MAX)


def _do_nothing() -> None:
    pass


def _events_descriptor(loop: asyncio.AbstractEventLoop) -> int | None:
    """What the loop sleeps on, which is readable when something waits; None if it cannot be told."""
    try:
        of_uvloop = getattr(loop, "_get_backend_id", None)
        descriptor: int = of_uvloop() if of_uvloop is not None else loop._selector.fileno()  # type: ignore[attr-defined]
        return descriptor
    except Exception:
        return None
