"""How full the file systems of the data directories are, read in threads: a mount may hang.

Every ten seconds each directory is read in a thread of its own, unless its last read is still under way. A
scrape takes the last values and their age, and waits for nothing.

Whether a disk fills is told by what was free up to a day ago, once an hour of it is known.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from odradek.server.background.work import Detached

if TYPE_CHECKING:
    import asyncio

INTERVAL_S = 10.0
HISTORY_STEP_S = 600.0
HISTORY_MAX = 145
"""Values of a day, one in `HISTORY_STEP_S`."""
HISTORY_LEAST_S = 3600.0


class Space(NamedTuple):
    """Space of one file system."""

    free_bytes: int
    """For users other than root."""
    total_bytes: int


class FreeHistory:
    """Free bytes of one directory over time. Times in seconds, of a clock that does not jump."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: deque[tuple[float, int]] = deque(maxlen=HISTORY_MAX)

    def note(self, now_s: float, free_bytes: int) -> None:
        if not self._known or now_s - self._known[-1][0] >= HISTORY_STEP_S:
            self._known.append((now_s, free_bytes))

    def seconds_until_full(self, now_s: float, free_bytes: int) -> float | None:
        """If it goes on as since the oldest value; None: it does not fill, or that is not known yet."""
        if not self._known:
            return None
        then_s, then_bytes = self._known[0]
        taken_bytes, seconds = then_bytes - free_bytes, now_s - then_s
        if seconds < HISTORY_LEAST_S or taken_bytes <= 0:
            return None
        return free_bytes * seconds / taken_bytes


@dataclass(slots=True)
class _Read:
    """The last value of a directory."""

    space: Space
    read_s: float
    history: FreeHistory = field(default_factory=FreeHistory)


class DiskSpace:
    """Reads from its making to `close`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        paths: Callable[[], Iterable[str]],
        read: Callable[[str], Space] | None = None,
    ) -> None:
        """`paths` gives the directories that can be used. `read` blocks, and may raise OSError."""
        self._loop = loop
        self._paths = paths
        self._read = file_system if read is None else read
        self._detached = Detached(loop)
        self._known: dict[str, _Read] = {}
        self._under_way: set[str] = set()
        self._look_again()

    def close(self) -> None:
        """A read that hangs is left alone."""
        self._handle.cancel()
        self._detached.close()

    def space(self, path: str) -> Space | None:
        """The last one that was read."""
        known = self._known.get(path)
        return None if known is None else known.space

    def age_s(self, path: str) -> float:
        """Seconds since the last read, of a path that has been read."""
        return self._loop.time() - self._known[path].read_s

    def seconds_until_full(self, path: str) -> float | None:
        """See `FreeHistory`; for a path that has been read."""
        known = self._known[path]
        return known.history.seconds_until_full(known.read_s, known.space.free_bytes)

    @property
    def is_reading(self) -> bool:
        """Whether a read is under way."""
        return bool(self._under_way)

    def look(self) -> None:
        """Begins to read each directory that is not being read."""
        for path in self._paths():
            if path not in self._under_way:
                self._under_way.add(path)
                self._detached.run(
                    partial(self._read, path), partial(self._done, path), partial(self._failed, path)
                )

    def _look_again(self) -> None:
        self.look()
        self._handle = self._loop.call_later(INTERVAL_S, self._look_again)

    def _done(self, path: str, space: Space) -> None:
        self._under_way.discard(path)
        now_s = self._loop.time()
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = _Read(space, now_s)
        known.space, known.read_s = space, now_s
        known.history.note(now_s, space.free_bytes)

    def _failed(self, path: str, error: Exception) -> None:
        """The value before stays, and grows old."""
        self._under_way.discard(path)


def file_system(path: str) -> Space:
    """Blocks. OSError if the system does not say."""
    found = os.statvfs(path)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
