"""When the work of one broker runs on its event loop: the turn, the timers and the queues of work."""

from __future__ import annotations

import asyncio
import os

from odradek.server.background.work import WorkQueue, WorkQueues
from odradek.server.network._clock import Clock
from odradek.server.network._pipeline import Turn
from odradek.server.network.timers import ClockTimers, Timers

COLD_READS_AT_ONCE = 4
"""Fetches that wait for the disk, each in a thread; others wait behind these."""
CONVERSIONS_AT_ONCE_MAX = 4
"""Batches that are packed or unpacked before they are stored, each in a thread; one processor is the event
loop's."""


class Schedule:
    """Works of one queue never overlap."""

    __slots__ = (
        "changes",
        "clock_timers",
        "conversions",
        "cuts",
        "loop",
        "moves",
        "reads",
        "saves",
        "searches",
        "timers",
        "turn",
        "upkeep",
        "views",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.turn = Turn(loop)
        self.timers = Timers(loop)
        """For whoever waits, by the system's clock."""
        self.clock_timers = ClockTimers(loop, clock)
        """For time-outs of the broker's options, and for work that comes now and then."""
        self.changes = WorkQueue(loop)
        """Changes of topics and settings."""
        self.views = WorkQueue(loop)
        """Views that a node of a cluster takes in, each with its changes of partitions."""
        self.upkeep = WorkQueue(loop)
        """Background work on the logs: retention, expiry, compaction, recovery of offline partitions."""
        self.searches = WorkQueue(loop)
        """Long searches that change nothing."""
        self.saves = WorkQueue(loop)
        """Work that only waits for the disk."""
        self.moves = WorkQueue(loop)
        """Moves of partitions between data directories."""
        self.cuts = WorkQueue(loop)
        """Logs of followers that are cut, as their leaders have them."""
        self.reads = WorkQueues(loop, COLD_READS_AT_ONCE)
        """Reads of records that are not in memory."""
        self.conversions = WorkQueues(loop, _conversions_at_once())
        """Batches that are packed or unpacked before they are stored."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits but timers, clients and moves."""
        return self.turn.is_idle and not (
            len(self.changes)
            or len(self.views)
            or len(self.upkeep)
            or len(self.searches)
            or len(self.saves)
            or len(self.reads)
            or len(self.conversions)
        )

    def close(self) -> None:
        """Ends all work as a crash would, but waits for the worker threads: they may use the logs, which are
        closed next."""
        for queue in (
            self.changes,
            self.views,
            self.upkeep,
            self.searches,
            self.reads,
            self.conversions,
            self.saves,
            self.moves,
            self.cuts,
        ):
            queue.close()
        self.timers.close()
        self.clock_timers.close()
        self.turn.close()


def _conversions_at_once() -> int:
    try:
        processors = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        processors = os.cpu_count() or 1
    return max(1, min(processors - 1, CONVERSIONS_AT_ONCE_MAX))
