"""kafka-python."""

from __future__ import annotations

from typing import Any

import kafka
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.kafka_python import JOIN_POLL_SECONDS
from compat_tests.groups.libraries import COMMIT_PATIENCE_MS, HEARTBEAT_MS, RECORDS_A_POLL, BlockingProgram


class KafkaPythonProgram(BlockingProgram, kafka.ConsumerRebalanceListener):
    ASSIGNORS = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def open(self) -> None:
        self._consumer = KafkaConsumer(
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

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned(one.partition for one in assigned)

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked(one.partition for one in revoked)

    def generation(self) -> int | None:
        generation = int(self._consumer._coordinator._generation.generation_id)
        return generation if generation > 0 else None

    def poll(self) -> None:
        try:
            timeout_ms = int(JOIN_POLL_SECONDS * 1000)
            batches = self._consumer.poll(timeout_ms=timeout_ms, max_records=RECORDS_A_POLL)
        except KafkaError as error:
            # While the broker is away it leaves it to its user to go on.
            if not error.retriable:
                raise
            return
        for where, records in batches.items():
            for record in records:
                self.take(where.partition, record.offset)

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = {
            kafka.TopicPartition(self.topic, one): OffsetAndMetadata(offset, "", -1)
            for one, offset in offsets.items()
        }
        try:
            self._consumer.commit(wanted, timeout_ms=COMMIT_PATIENCE_MS)
        except (CommitFailedError, RebalanceInProgressError):
            return
        except KafkaError as error:
            if not error.retriable:
                raise
            return
        self.committed(offsets)

    def close(self) -> None:
        self._consumer.close()


PROGRAM = KafkaPythonProgram
