"""Polls for the next request for a moment before the event loop sleeps.

To put a core to sleep and to wake it costs more than to serve a small request, on virtual machines several
times as much. A client that sends one request after the other (one produce in flight, a consumer at the log
end) pays that for every request. So after a turn with requests the loop polls for up to `BUSY_POLL_NS` before
it sleeps.

The cost is bounded. After a poll without an event the next ones are skipped, twice as many each time, up to
`SKIPPED_MAX` turns, so distant or slow clients cost nothing. A poll with an event halves that number: where
most polls are in vain there are soon none. Such is a leader with followers on its own core, which the polls
would delay by a sixth. Other threads and processes on this core run first at each poll (`sched_yield`); if
they run long, the poll counts as one without an event.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable

BUSY_POLL_NS = 100_000
"""About the cost of a short sleep: to sleep and to wake."""
SKIPPED_MAX = 1024


class BusyPoll:
    """To be called when a request was served: at the end of this turn of the loop it polls for the next one.

    `is_wanted()` returns whether there is no other work then. If the event loop gives no access to its events
    it does nothing.
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
        until = clock_ns() + BUSY_POLL_NS
        while True:
            if poll(0):
                self._skipped_next = max(self._skipped_next // 2, 1)
                return
            give_way()
            if clock_ns() >= until:
                break
        self._to_skip = self._skipped_next
        self._skipped_next = min(2 * self._skipped_next, SKIPPED_MAX)


def _do_nothing() -> None:
    pass


def _events_descriptor(loop: asyncio.AbstractEventLoop) -> int | None:
    """The descriptor that the loop sleeps on, readable when there are events; None if it has none."""
    try:
        of_uvloop = getattr(loop, "_get_backend_id", None)
        descriptor: int = of_uvloop() if of_uvloop is not None else loop._selector.fileno()  # type: ignore[attr-defined]
        return descriptor
    except Exception:
        return None
