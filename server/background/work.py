"""Long work on the event loop: one after the other, a few milliseconds in each turn.

What a step of it hands out to be called elsewhere (see `wire/work.py`) runs in one worker thread; the loop
goes on serving meanwhile. Works of one queue never overlap, so they may change what they share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.wire.work import Work

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

logger = logging.getLogger("odradek.work")

SLICE_S = 0.002
"""Length of one turn; a step that has begun is finished, so a turn may take that much longer."""


class _Entry(NamedTuple):
    work: Work[Any]
    done: Callable[[Any], None]
    failed: Callable[[Exception], None]


class WorkQueue:
    """Implements `apis.turn.WorkQueue`."""

    __slots__ = ("_current", "_executor", "_is_closed", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor: ThreadPoolExecutor | None = None
        self._waiting: deque[_Entry] = deque()
        self._current: _Entry | None = None
        self._is_closed = False

    def __len__(self) -> int:
        """Works that have not come to their end."""
        return len(self._waiting) + (self._current is not None)

    def run(self, work: Work[Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Does the work when its turn comes, at once if nothing is before it; then calls `done(result)`, or
        `failed(error)` if it raised something."""
        assert not self._is_closed
        self._waiting.append(_Entry(work, done, failed))
        if self._current is None:
            self._begin()

    def close(self) -> None:
        """Ends what is under way as a crash would, but waits for the worker; nothing of it is told."""
        self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None
        entries = [*self._waiting] if self._current is None else [self._current, *self._waiting]
        self._current = None
        self._waiting.clear()
        for entry in entries:
            try:
                entry.work.close()
            except Exception:
                logger.exception("ending a work failed")

    def _begin(self) -> None:
        self._current = self._waiting.popleft()
        self._go_on(None, None)

    def _go_on(self, result: Any, error: Exception | None) -> None:
        """Goes on for a slice of time, from where a step has given `result` or raised `error`."""
        entry = self._current
        if entry is None or self._is_closed:
            return
        work, clock = entry.work, self._loop.time
        deadline = clock() + SLICE_S
        try:
            step = work.send(result) if error is None else work.throw(error)
            while step is None:
                if clock() >= deadline:
                    self._loop.call_soon(self._go_on, None, None)
                    return
                step = work.send(None)
        except StopIteration as end:
            self._end(entry.done, end.value)
        except Exception as failure:
            self._end(entry.failed, failure)
        else:
            self._call_elsewhere(step)

    def _end(self, tell: Callable[[Any], None], value: Any) -> None:
        self._current = None
        try:
            tell(value)
        except Exception:
            logger.exception("a callback after a work failed")
        # In a turn of its own: what has just been answered is to be sent first.
        if self._waiting and self._current is None:
            self._current = self._waiting.popleft()
            self._loop.call_soon(self._go_on, None, None)

    def _call_elsewhere(self, function: Callable[[], Any]) -> None:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # not before there is such work

            self._executor = ThreadPoolExecutor(1, "odradek-work")
        self._executor.submit(self._call, function)

    def _call(self, function: Callable[[], Any]) -> None:
        """In the worker."""
        result, error = None, None
        try:
            result = function()
        except Exception as raised:
            error = raised
        try:
            self._loop.call_soon_threadsafe(self._go_on, result, error)
        except RuntimeError:
            logger.warning("the event loop closed during %s", function)


class Detached:
    """Calls, each in a thread of its own, for what may hang: an authority, a mount. Nobody waits for them,
    not even the end of the process."""

    __slots__ = ("_is_closed", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_closed = False

    def run(
        self, function: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """Then `done(result)`, or `failed(error)`, is called on the loop."""
        from threading import Thread

        def call() -> None:
            try:
                tell, value = done, function()
            except Exception as error:
                tell, value = failed, error
            if not self._is_closed:
                with contextlib.suppress(RuntimeError):  # the loop has closed
                    self._loop.call_soon_threadsafe(self._tell, tell, value)

        Thread(target=call, name="odradek-detached", daemon=True).start()

    def close(self) -> None:
        """Nothing is told any more."""
        self._is_closed = True

    def _tell(self, tell: Callable[[Any], None], value: Any) -> None:
        if not self._is_closed:
            tell(value)


class WorkQueues:
    """Some queues of works that have nothing in common: a work goes where the fewest are before it.

    For works that wait for a disk each: one that waits long keeps only those behind it.
    """

    __slots__ = ("_queues",)

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._queues = [WorkQueue(loop) for _ in range(count)]

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __iter__(self) -> Iterator[WorkQueue]:
        return iter(self._queues)

    def run(self, work: Work[Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """See `WorkQueue.run`."""
        min(self._queues, key=len).run(work, done, failed)

    def close(self) -> None:
        """See `WorkQueue.close`."""
        for queue in self._queues:
            queue.close()
