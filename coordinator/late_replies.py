"""Replies that wait too long for the other replicas of a coordinator's log: they are refused.

The machine keeps what it has decided, and the records stay in the log: they may count later all the same, as
with any response that a client did not get. Kafka: `offsets.commit.timeout.ms`, CoordinatorRuntime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from odradek.coordinator.effects import Effect, Reply


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
"""asyncio's `loop.call_later`: seconds, function."""


class LateReplies:
    """Limit to the wait of one partition's replies. `held` has a list of effects for each append under way,
    the oldest first; `refuse` gets the replies among them that have waited for `patience_ms` or a little
    longer."""

    __slots__ = ("_call_later", "_clock_ms", "_deadlines", "_held", "_patience_ms", "_refuse", "_timer")

    def __init__(
        self,
        held: deque[list[Effect]],
        patience_ms: Callable[[], int],
        clock_ms: Callable[[], int],
        call_later: CallLater,
        refuse: Callable[[list[Reply]], None],
    ) -> None:
        self._held = held
        self._patience_ms = patience_ms
        self._clock_ms = clock_ms
        self._call_later = call_later
        self._refuse = refuse
        self._deadlines: deque[int] = deque()
        """Deadlines of the last appends that are under way."""
        self._timer: TimerHandle | None = None

    def limit(self) -> None:
        """The newest append waits for other replicas."""
        patience_ms = self._patience_ms()
        self._deadlines.append(self._clock_ms() + patience_ms)
        if self._timer is None:
            self._timer = self._call_later(patience_ms / 1000, self._look)

    def close(self) -> None:
        """Nobody waits any more."""
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        deadlines, now_ms = self._deadlines, self._clock_ms()
        while len(deadlines) > len(self._held):
            deadlines.popleft()
        if not deadlines:
            return
        late: list[Reply] = []
        # What comes after a late append, and has none of its own, waits with it: it is looked at again.
        next_ms = now_ms + self._patience_ms()
        for deadline_ms, effects in zip(
            deadlines, islice(self._held, len(self._held) - len(deadlines), None), strict=True
        ):
            if deadline_ms > now_ms:
                next_ms = min(next_ms, deadline_ms)
                break
            late += [effect for effect in effects if isinstance(effect, Reply)]
            effects[:] = [effect for effect in effects if not isinstance(effect, Reply)]
        self._timer = self._call_later((next_ms - now_ms) / 1000, self._look)
        if late:
            self._refuse(late)
