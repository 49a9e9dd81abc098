"""What the machine itself takes: how often, and for how long, a program that only counts loses its core.

On a virtual machine the host may take a core away for milliseconds, often only while the others are busy,
too. Who measures a p99 in milliseconds has to know.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP_S = 0.001
"""A turn of the loop takes less than a microsecond."""


@dataclass(frozen=True)
class Gaps:
    """What was seen on some cores that were busy at the same time."""

    seconds: float
    """How long was looked."""
    core_count: int
    gaps_s: tuple[float, ...]
    """The times over a millisecond that a core was away, of all cores."""

    def __add__(self, other: Gaps) -> Gaps:
        """What was seen on as many cores at another time besides."""
        return Gaps(self.seconds + other.seconds, self.core_count, self.gaps_s + other.gaps_s)

    @property
    def share(self) -> float:
        """Of a core's time, 0 to 1."""
        return sum(self.gaps_s) / (self.seconds * self.core_count)

    def __str__(self) -> str:
        if not self.gaps_s:
            return "never for a millisecond"
        return (
            f"{len(self.gaps_s)} times for over a millisecond, {max(self.gaps_s) * 1000:.1f} ms at most, "
            f"{self.share:.2%} of the time"
        )


def measure(cores: Sequence[int], seconds: float) -> Gaps:
    """Keeps each of these cores busy for so long."""
    children = [_start(core, seconds) for core in cores]
    gaps_s: list[float] = []
    for pid, pipe in children:
        with os.fdopen(pipe, "rb") as file:
            told = file.read()
        os.waitpid(pid, 0)
        if not told:
            raise RuntimeError("a core could not be watched")
        gaps_s += json.loads(told)
    return Gaps(seconds, len(cores), tuple(gaps_s))


def _start(core: int, seconds: float) -> tuple[int, int]:
    pipe, child_pipe = os.pipe()
    pid = os.fork()
    if pid:
        os.close(child_pipe)
        return pid, pipe
    try:
        os.sched_setaffinity(0, {core})
        with os.fdopen(child_pipe, "w") as file:
            json.dump(gaps(seconds, time.perf_counter), file)
    finally:
        os._exit(0)


def gaps(seconds: float, clock: Callable[[], float]) -> list[float]:
    """Those over `GAP_S` between two looks at the clock, in s."""
    found: list[float] = []
    last = clock()
    end = last + seconds
    while last < end:
        now = clock()
        if now - last > GAP_S:
            found.append(now - last)
        last = now
    return found
