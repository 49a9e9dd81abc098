"""DeleteRecords (key 21, versions 0 to 2): the log of a partition begins at a later offset from now on.

The response comes when the new start offsets are flushed: no crash and no loss of power undoes them. (Kafka
stores them once a minute, so a crash before that brings the records back.) In a cluster it comes when the
logs of all live replicas begin there: followers learn the offset with their next fetch, and the one after it
says that they have followed. REQUEST_TIMED_OUT says that one has not; the records are gone nevertheless.
Segments before the new start are deleted by the next retention.

Source: KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords, Partition.deleteRecordsOnLeader
and DelayedDeleteRecords of Kafka 4.3.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from odradek.apis.access import each, on_topics
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.wire.work import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.apis.api import RequestContext
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts
    from odradek.apis.replicas import ReplicaKey, Replicas
    from odradek.apis.turn import TimerHandle, Timers, WorkQueue
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

INVALID_LOW_WATERMARK = -1


class DeleteRecords:
    """The handler."""

    __slots__ = ("_leadership", "_store", "_timers", "_work")

    def __init__(self, leadership: Leadership, store: LogStore, work: WorkQueue, timers: Timers) -> None:
        self._leadership = leadership
        self._store = store
        self._work = work
        self._timers = timers

    def __call__(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> DeleteRecordsResponse | WorkResponse:
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
                if context.refuses(Operation.DELETE, ResourceType.TOPIC, key[0]):
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partition = self._partition(*key)
                results[key] = _result(key, partition.retention.delete_records(offset))
                # Also when the start did not change: another request may still wait for its flush.
                done[key] = partition
            except KafkaError as error:
                results[key] = _result(key, INVALID_LOW_WATERMARK, error.code)
        responding = self._responding(results, done)
        if not done:
            return finish(responding)
        replicas = self._leadership.replicas
        if replicas is None:
            return WorkResponse(self._work, responding, context)
        deadline = partial(self._timers.after, max(request.timeout_ms, 0))
        return _UntilReplicasFollow(self._work, responding, context, replicas, wanted, deadline)

    def _partition(self, topic: str, index: int) -> Partition:
        if topic in INTERNAL_TOPICS and self._leadership.view.partition(topic, index) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return self._leadership.lead(topic, index).log

    def _responding(
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


class _UntilReplicasFollow(WorkResponse):
    """The response when, after the work, the logs of all live replicas begin at `offsets`, or at the end of
    the request's time-out."""

    __slots__ = ("_deadline", "_is_late", "_offsets", "_replicas", "_results", "_wakes")

    def __init__(
        self,
        queue: WorkQueue,
        work: Work[DeleteRecordsResponse],
        context: RequestContext,
        replicas: Replicas,
        offsets: Mapping[ReplicaKey, int],
        deadline: Callable[[Callable[[], None]], TimerHandle],
    ) -> None:
        self._replicas = replicas
        self._offsets = offsets
        self._results: DeleteRecordsResponse | None = None
        self._wakes: dict[ReplicaKey, Callable[[], None]] = {}
        self._is_late = False
        self._deadline = deadline(self._expire)
        super().__init__(queue, work, context, self._stop)

    def _done(self, response: DeleteRecordsResponse) -> None:
        if self.settled:
            return
        self._results = response
        for topic in response.topics:
            for result in topic.partitions:
                if result.error_code == ErrorCode.NONE:
                    self._begin((topic.name, result.partition_index), result)
        self._complete_if_done()

    def _begin(self, key: ReplicaKey, result: DeleteRecordsPartitionResult) -> None:
        low_watermark = self._replicas.low_watermark(key)
        if low_watermark is None:
            return  # it has one replica
        # An offset of -1 is the high watermark, where the log begins now.
        wanted = self._offsets[key] if self._offsets[key] >= 0 else result.low_watermark
        result.low_watermark = low_watermark
        if low_watermark >= wanted:
            return
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
        wake = self._wakes[key] = partial(self._look, key, result, wanted)
        self._replicas.watch_low_watermark(key, wake)

    def _look(self, key: ReplicaKey, result: DeleteRecordsPartitionResult, wanted: int) -> None:
        low_watermark = self._replicas.low_watermark(key)
        if low_watermark is None:
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            result.low_watermark = INVALID_LOW_WATERMARK
        elif low_watermark >= wanted:
            result.error_code = ErrorCode.NONE
            result.low_watermark = low_watermark
        else:
            return
        self._replicas.unwatch_low_watermark(key, self._wakes.pop(key))
        self._complete_if_done()

    def _expire(self) -> None:
        self._is_late = True
        self._complete_if_done()

    def _complete_if_done(self) -> None:
        if self._results is not None and (self._is_late or not self._wakes):
            self._stop()
            self.complete(self._results)

    def _stop(self) -> None:
        self._deadline.cancel()
        for key, wake in self._wakes.items():
            self._replicas.unwatch_low_watermark(key, wake)
        self._wakes.clear()


def _make(parts: ApiParts) -> DeleteRecords:
    node = parts.node
    return DeleteRecords(node.leadership, node.store, node.saves, node.timers)


API = Api(
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    make=_make,
    needs=(on_topics(Operation.DELETE, each("topics", "name")),),
    changes=True,
)
