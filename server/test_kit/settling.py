"""The end of all work of a broker that follows from what has happened so far.

A broker has settled when the event loop has made some turns in a row in which nothing was under way: no
records that wait for their commit, no responses that are ready, no flush, no work in a queue, no round of
compaction, no timer that runs in the next turn. Whatever follows from something else is one of these no later
than two turns after it. Nobody sleeps: where a thread or a process works, its end is waited for.

Clients may go on all the time, and then a broker never rests. So there is a bound; a chain of consequences
(a timed out transaction: its abort, its markers, their records, the end) has ended long before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from odradek.wire.work import Work

if TYPE_CHECKING:
    from odradek.server.background.schedule import Schedule
    from odradek.server.background.work import WorkQueue
    from odradek.server.test_kit.tested import Tested

QUIET_TURNS = 4
TURNS_MAX = 200
"""Limit while clients keep the broker busy."""
FLUSHES_S_MAX = 1.0
"""Limit where their records wait for the disk: there is always a flush then."""


async def settled(server: Tested) -> None:
    """Returns when it has settled."""
    schedule = server.schedule
    quiet = 0
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
        if schedule.is_idle and not schedule.clock_timers.soon and not _is_compacting(server):
            quiet += 1
            if quiet == QUIET_TURNS:
                return
            continue
        quiet = 0
        for queue in _busy_queues(schedule):
            await _reached(queue)
        await _flushed(schedule)
        await _compacted(server)


def _busy_queues(schedule: Schedule) -> Iterator[WorkQueue]:
    for queue in (
        schedule.changes,
        schedule.views,
        schedule.upkeep,
        schedule.searches,
        schedule.saves,
        *schedule.reads,
        *schedule.conversions,
    ):
        if len(queue):
            yield queue


async def _reached(queue: WorkQueue) -> None:
    """All work that is in it now has ended."""
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    queue.run(_nothing(), lambda _: _end(reached), lambda _: _end(reached))
    await reached


def _nothing() -> Work[None]:
    return
    yield None


async def _flushed(schedule: Schedule) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + FLUSHES_S_MAX
    while schedule.turn.is_flushing and loop.time() < deadline_s:
        await asyncio.sleep(0)


def _is_compacting(server: Tested) -> bool:
    compaction = server.compaction
    return compaction is not None and compaction.cleaner is not None and compaction.cleaner.is_at_work


async def _compacted(server: Tested) -> None:
    """The next of the rounds that are under way has ended."""
    if _is_compacting(server):
        assert server.compaction is not None
        assert server.compaction.cleaner is not None
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        server.compaction.cleaner.when_round_ends(partial(_end, ended))
        await ended


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
