"""A transactional producer made of single requests, for states that no library would leave behind."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from compat_tests.differential.harness import Side
from compat_tests.kit.history import Partition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import build_batch

SECONDS = 30.0
TRY_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # of Apache Kafka on a busy machine, for a topic made just now
}


def batch(
    producer_id: int, epoch: int, sequence: int, values: Iterable[bytes], timestamp_ms: int, **more: Any
) -> bytes:
    """A transactional batch."""
    records = [(n, timestamp_ms, None, value, []) for n, value in enumerate(values)]
    return bytes(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
            **more,
        )
    )


class WireProducer:
    """Speaks transaction.version 1: adds its partitions itself, or leaves that out. Or version 2, in which
    they add themselves and every end brings a new epoch.
    """

    def __init__(
        self, side: Side, transactional_id: str, timeout_ms: int = 600_000, *, version: int = 1
    ) -> None:
        self.side, self.transactional_id, self.timeout_ms = side, transactional_id, timeout_ms
        self._version = version
        self.producer_id = self.producer_epoch = -1
        self._sequences: dict[Partition, int] = {}

    def open(self) -> None:
        self._ask(FindCoordinatorRequest(coordinator_keys=[self.transactional_id], key_type=1), 4, None)
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        answer = self._ask(request, 4)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def add(self, *partitions: Partition) -> None:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()
            ],
        )

        def code(answer: Any) -> int:
            codes = [
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            return max(codes)

        self._ask(request, 3, code)

    def produce(self, partition: Partition, *values: bytes, timestamp_ms: int | None = None) -> int:
        """The offset of the first value."""
        topic, number = partition
        sequence = self._sequences.get(partition, 0)
        now_ms = int(time.time() * 1000)
        records = batch(
            self.producer_id,
            self.producer_epoch,
            sequence,
            values,
            now_ms if timestamp_ms is None else timestamp_ms,
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=number, records=records)]
                )
            ],
        )
        version = 12 if self._version == 2 else 11
        answer = self._ask(request, version, lambda one: one.responses[0].partition_responses[0].error_code)
        self._sequences[partition] = sequence + len(values)
        return int(answer.responses[0].partition_responses[0].base_offset)

    def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        if self._version == 2:
            answer = self._ask(request, 5)
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        else:
            self._ask(request, 4)

    def _ask(self, request: Any, version: int, code: Any = lambda answer: answer.error_code) -> Any:
        """The answer, once it is no error; asks again while a coordinator is not ready."""
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self.side.ask(request, version)
            found = answer.coordinators[0].error_code if code is None else code(answer)
            if found == 0:
                return answer
            assert found in TRY_AGAIN, (type(request).__name__, ErrorCode(found))
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
