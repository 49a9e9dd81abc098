"""AlterReplicaLogDirs (key 34, versions 0 to 2): moves replicas between directories.

A partition is moved while clients write and read it; the response means only that the move has begun. A move
to the present directory ends a move to another one. For a partition that does not exist, the directory is
remembered until the partition is created or the broker is restarted.

A cordoned directory is refused, also for a partition that is already there.

Source: ReplicaManager.alterReplicaLogDirs of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.declaration import Api
from odradek.apis.refusals import Refusal
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import ApiParts
    from odradek.apis.refusals import Item
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.storage.directories.store import LogStore

FUTURE_NAME_BYTES_MAX = 255
FUTURE_ENDING_BYTES = len(".") + 32 + len("-future")


class AlterReplicaLogDirs:
    """The handler. `begin` starts the moves in the background."""

    __slots__ = ("_begin", "_current_view", "_store")

    def __init__(
        self, current_view: Callable[[], ClusterView], store: LogStore, begin: Callable[[], object]
    ) -> None:
        self._current_view = current_view
        self._store = store
        self._begin = begin

    def __call__(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        # If a partition is named twice, the last directory counts, as in Kafka.
        wanted = {
            (topic.name, index): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for (name, index), path in wanted.items():
            code = ErrorCode.NONE
            try:
                self._move(name, index, path)
            except KafkaError as error:
                code = error.code
            topic = results.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name, partitions=[]))
            topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
        if self._store.relocation.has_moves:
            self._begin()
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _move(self, name: str, index: int, path: str) -> None:
        if len(f"{name}-{index}") + FUTURE_ENDING_BYTES > FUTURE_NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The name of the topic is too long.")
        directory = next((one for one in self._store.directories if os.path.abspath(one) == path), None)
        if directory is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs.")
        if directory in self._store.failing_disks.failures:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline.")
        if directory in self._store.creating.cordoned:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned.")
        try:
            self._store.relocation.begin(name, index, directory)
        except KafkaError as error:
            is_known = self._current_view().partition(name, index) is not None
            if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and not is_known:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from error
            raise


def _make(parts: ApiParts) -> AlterReplicaLogDirs:
    return AlterReplicaLogDirs(parts.node.current_view, parts.node.store, parts.node.begin_moves)


def _results_of_directories(request: AlterReplicaLogDirsRequest) -> list[Item]:
    """A topic for each directory that has it."""
    return [
        (
            {"topic_name": topic.name},
            ("partitions", [({"partition_index": index}, None) for index in topic.partitions]),
        )
        for directory in request.dirs
        for topic in directory.topics
    ]


API = Api(
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    make=_make,
    needs=(on_cluster(Operation.ALTER),),
    changes=True,
    refusal=Refusal(results=("results", _results_of_directories)),
)
