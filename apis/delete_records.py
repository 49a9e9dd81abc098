"""DeleteRecords (key 21, versions 0 to 2): the log of a partition begins at a later offset from now on.

The answer comes when the new start offsets are flushed: no crash and no loss of power undoes them. (Kafka
stores them once a minute, so a crash before that brings the records back.) The request's time-out has no
effect, as in Kafka with one replica: there are no followers to wait for. Segments before the new start are
deleted by the next retention.

Source: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords and Partition.deleteRecordsOnLeader
of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.apis.api import WorkAnswer
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.wire.work import finish

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import WorkQueue
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

INVALID_LOW_WATERMARK = -1


class DeleteRecords:
    """The handler."""

    __slots__ = ("_leadership", "_store", "_work")

    def __init__(self, leadership: Leadership, store: LogStore, work: WorkQueue) -> None:
        self._leadership = leadership
        self._store = store
        self._work = work

    def __call__(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> DeleteRecordsResponse | WorkAnswer:
        # If a partition is named twice, the last offset counts, as in Kafka.
        wanted = {
            (topic.name, requested.partition_index): requested.offset
            for topic in request.topics
            for requested in topic.partitions
        }
        done: dict[tuple[str, int], Partition] = {}
        results = {}
        for key, offset in wanted.items():
            try:
                partition = self._partition(*key)
                results[key] = _result(key, partition.retention.delete_records(offset))
                # Also when the start did not change: another request may still wait for its flush.
                done[key] = partition
            except KafkaError as error:
                results[key] = _result(key, INVALID_LOW_WATERMARK, error.code)
        answering = self._answering(results, done)
        return WorkAnswer(self._work, answering, context) if done else finish(answering)

    def _partition(self, topic: str, index: int) -> Partition:
        if topic in INTERNAL_TOPICS and self._leadership.view.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return self._leadership.lead(topic, index).log

    def _answering(
        self,
        results: dict[tuple[str, int], DeleteRecordsPartitionResult],
        done: dict[tuple[str, int], Partition],
    ) -> Work[DeleteRecordsResponse]:
        for partition in (yield from self._store.checkpointing.saving_starts(done.values())):
            key = (partition.topic, partition.index)
            results[key] = _result(key, INVALID_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
        topics: dict[str, DeleteRecordsTopicResult] = {}
        for (name, _), result in results.items():
            topics.setdefault(name, DeleteRecordsTopicResult(name=name, partitions=[])).partitions.append(
                result
            )
        return DeleteRecordsResponse(topics=list(topics.values()))


def _result(
    key: tuple[str, int], low_watermark: int, code: ErrorCode = ErrorCode.NONE
) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=key[1], low_watermark=low_watermark, error_code=code)
