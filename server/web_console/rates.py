"""Reads counters of a serving broker each ten seconds and notes rates in its history (`history.py`)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.server.metrics.disk_space import DiskSpace
from odradek.server.metrics.durations import quantile_ms
from odradek.server.network.slow_requests import WAITS_ON_PURPOSE
from odradek.server.web_console.history import STEP_S, History
from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.server.metrics.observed import Hosted
    from odradek.server.network._pipeline import Route

PAUSE_PARTITIONS = 250
"""Partitions that are looked at without a pause."""
TOPIC_IN, TOPIC_OUT = "topic_in/", "topic_out/"
"""Begin the names of series of topics, in bytes a second."""
_FINE = ErrorCode.NONE.value


class Rates:
    """Notes from `start` to `close`, on the event loop."""

    def __init__(self, server: Hosted, now_ms: Callable[[], int]) -> None:
        self._server, self._now_ms = server, now_ms
        self.history = History()
        self._traffic: dict[str, tuple[int, int, int]] = {}
        self._counts = (0, 0)
        self._times: list[int] = []
        self._noted_s: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, each: Callable[[], object]) -> None:
        """`each` is called in every step."""
        loop = asyncio.get_running_loop()
        self.disks = DiskSpace(loop, self._usable_directories)
        self._task = loop.create_task(self._run(each))

    async def close(self) -> None:
        """Notes no more."""
        self.disks.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _usable_directories(self) -> list[str]:
        if not self._server.is_serving:
            return []
        store = self._server.store
        failures = store.failing_disks.failures
        return [path for path in store.directories if path not in failures]

    async def _run(self, each: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            if self._server.is_serving:
                await self.note(loop.time())
                each()
            due_s = max(due_s + STEP_S, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def note(self, now_s: float) -> None:
        """A step at a time in seconds of a clock that does not jump. The first one only reads."""
        connections = self._server.connections
        traffic = await self._read_traffic()
        routes = list(connections.dispatcher.routes.found.values())
        counts = sum(one.requests for one in routes), sum(_errors(routes))
        times = _times(routes)
        before_s, self._noted_s = self._noted_s, now_s
        if before_s is not None and now_s > before_s:
            passed_s = now_s - before_s
            values = self._traffic_rates(traffic, passed_s)
            values["requests"] = max(0, counts[0] - self._counts[0]) / passed_s
            values["errors"] = max(0, counts[1] - self._counts[1]) / passed_s
            new = [max(0, now - then) for now, then in itertools.zip_longest(times, self._times, fillvalue=0)]
            values["p99_ms"] = quantile_ms(new, 0.99) if any(new) else 0.0
            values["connections"] = len(connections)
            values["disk_used"] = self._disk_used()
            self.history.note(self._now_ms(), values)
        self._traffic, self._counts, self._times = traffic, counts, times

    def _traffic_rates(self, traffic: dict[str, tuple[int, int, int]], passed_s: float) -> dict[str, float]:
        """Rates of all topics, then of each, those with the most traffic first: they get series first."""
        changes = {}
        for topic, now in traffic.items():
            before = self._traffic.get(topic, (0, 0, 0))
            changes[topic] = [max(0, one - other) / passed_s for one, other in zip(now, before, strict=True)]
        values = {
            name: sum(of_topic[place] for of_topic in changes.values())
            for place, name in enumerate(("records_in", "bytes_in", "bytes_out"))
        }
        for topic in sorted(changes, key=lambda name: -sum(changes[name][1:])):
            values[TOPIC_IN + topic], values[TOPIC_OUT + topic] = changes[topic][1:]
        return values

    async def _read_traffic(self) -> dict[str, tuple[int, int, int]]:
        """Records and bytes in, bytes out by topic, of the partitions that are open: another has none."""
        found: dict[str, tuple[int, int, int]] = {}
        for number, place in enumerate(list(self._server.store.places.by_key.values())):
            log = place.partition
            if log is not None:
                records, taken, given = found.get(log.topic, (0, 0, 0))
                traffic = log.traffic
                found[log.topic] = (
                    records + traffic.records_in,
                    taken + traffic.bytes_in,
                    given + traffic.bytes_out,
                )
            if number % PAUSE_PARTITIONS == PAUSE_PARTITIONS - 1:
                await asyncio.sleep(0)
        return found

    def _disk_used(self) -> float:
        """Part of the fullest file system that is used."""
        spaces = [self.disks.space(path) for path in self._usable_directories()]
        used = [1 - one.free_bytes / one.total_bytes for one in spaces if one is not None and one.total_bytes]
        return max(used, default=0.0)


def _errors(routes: Iterable[Route]) -> Iterable[int]:
    return (count for route in routes for code, count in route.errors.items() if code != _FINE)


def _times(routes: Iterable[Route]) -> list[int]:
    """Counts of the buckets of durations, of requests that do not wait on purpose."""
    columns = zip(*(one.times for one in routes if one.api_name not in WAITS_ON_PURPOSE), strict=True)
    return [sum(column) for column in columns]
