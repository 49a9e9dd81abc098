"""aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from compat_tests.clients.aio import _start as start_aiokafka
from compat_tests.groups.libraries import HEARTBEAT_MS, POLL_SECONDS, RECORDS_A_POLL, Program, say


class AiokafkaProgram(Program, aiokafka.ConsumerRebalanceListener):
    ASSIGNORS = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=self.session_ms,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(self.ASSIGNORS[self.assignor],),
        )
        self._consumer.subscribe([self.topic], listener=self)
        await start_aiokafka(self._consumer)
        say("startup_complete")
        while not self.is_stopping:
            batches = await self._consumer.getmany(
                timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_A_POLL
            )
            # Nothing awaits before this is told: a rebalance cannot come in between.
            for where, records in batches.items():
                for record in records:
                    self.take(where.partition, record.offset)
            self.tell_taken()
            if self.positions:
                await self._commit(dict(self.positions))
        say("stopping")
        await self._consumer.stop()
        say("shutdown_complete")

    async def _commit(self, offsets: dict[int, int]) -> None:
        wanted = {aiokafka.TopicPartition(self.topic, one): offset for one, offset in offsets.items()}
        try:
            await self._consumer.commit(wanted)
        except (CommitFailedError, IllegalStateError):
            return
        except KafkaError as error:
            if not getattr(error, "retriable", False):
                raise
            return
        self.committed(offsets)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned(one.partition for one in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked(one.partition for one in revoked)

    def generation(self) -> int | None:
        generation = int(self._consumer._coordinator.generation)
        return generation if generation > 0 else None


PROGRAM = AiokafkaProgram
