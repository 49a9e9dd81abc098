"""Upkeep of logs at the word of a test: retention, compaction and new segments, done when they return."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.settling import settled
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.server.test_kit.kit import TestKit
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

ATTEMPTS_MAX = 20
"""Limit for one compaction: others may be under way, or a flush."""


class LogsPart:
    """Operations about the logs of this node."""

    operations = ("compact", "retain", "roll")

    def __init__(self, kit: TestKit) -> None:
        self._server = kit.server

    def close(self) -> None:
        """Works end with the queue of upkeep."""

    async def retain(self) -> None:
        """Deletes what `retention.ms` and `retention.bytes` do not keep, in all partitions. What is deleted
        goes from the disk after `file.delete.delay.ms`."""
        await self._do(self._server.store.upkeep.maintaining_all(self._server.clock.now_ms()))

    async def roll(self, topic: str, partition: int | None = None) -> None:
        """Begins a new segment in the partitions of a topic, or in one; an empty one stays."""
        for one in self._partitions(topic, partition):
            await self._roll(one)

    async def compact(self, topic: str) -> None:
        """Compacts a topic up to its end, however little is dirty: it begins new segments first. What
        `min.compaction.lag.ms` and open transactions keep stays."""
        partitions = self._partitions(topic, None)
        if not all(one.config.is_compacted for one in partitions):
            raise TestKitError(f"the cleanup.policy of {topic} does not include compact")
        for one in partitions:
            await self._roll(one)
            await self._compact(one)

    def _partitions(self, topic: str, index: int | None) -> list[Partition]:
        view = self._server.cluster_view.topic(topic)
        if view is None:
            raise TestKitError(f"there is no topic {topic!r}")
        wanted = range(len(view.partitions)) if index is None else [index]
        found = []
        for one in wanted:
            try:
                partition = self._server.store.get(topic, one)
            except KafkaError as error:
                raise TestKitError(f"{topic}-{one} cannot be used: {error}") from None
            if partition is not None:
                found.append(partition)
        if not found:
            raise TestKitError(f"this broker has no {topic}" + ("" if index is None else f"-{index}"))
        return found

    async def _roll(self, partition: Partition) -> None:
        self._server.schedule.turn.end()
        await self._do(_rolling(partition, self._server.clock.now_ms()))

    async def _compact(self, partition: Partition) -> None:
        """Compaction makes gaps, so a log has to be flushed before."""
        for _ in range(ATTEMPTS_MAX):
            self._server.schedule.turn.flush_in_background(partition)
            await settled(self._server)
            cleaner = self._server.store.cleaner
            if await self._do(cleaner.compacting(partition, self._server.clock.now_ms())):
                return
        raise TestKitError(f"{partition.name} could not be compacted: it changes all the time")

    async def _do(self, work: Work[Any]) -> Any:
        """The result of a work in the queue of upkeep."""
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._server.schedule.upkeep.run(work, ended.set_result, ended.set_exception)
        try:
            return await ended
        except (KafkaError, OSError) as error:
            raise TestKitError(str(error)) from None


def _rolling(partition: Partition, now_ms: int) -> Work[None]:
    while partition.log.has_staged:
        # A request came in between; the end of the turn commits it.
        yield None
    partition.log.roll(now_ms)


def make(kit: TestKit) -> LogsPart:
    return LogsPart(kit)
