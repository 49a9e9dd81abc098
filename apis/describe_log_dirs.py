"""DescribeLogDirs (key 35, versions 0 to 5): the data directories and their replicas.

While a partition moves it shows a future replica in the new directory.

Source: ReplicaManager.describeLogDirs of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from shutil import disk_usage
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.declaration import Api
from odradek.coordinator.cluster.features import knows_cordons
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.storage.directories.store import LogStore


class DescribeLogDirs:
    """The handler."""

    def __init__(self, store: LogStore, current_view: Callable[[], ClusterView]) -> None:
        self._store = store
        self._current_view = current_view

    def __call__(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        wanted: set[tuple[str, int]] | None = None
        if request.topics is not None:
            wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
        topics: dict[str, dict[str, DescribeLogDirsTopic]] = {one: {} for one in self._store.directories}
        cordoned = self._store.creating.cordoned
        if not knows_cordons(self._current_view().features):
            cordoned = frozenset()
        unreadable = set(self._store.failing_disks.failures)

        def add(directory: str, name: str, index: int, size_bytes: int, lag: int, is_future: bool) -> None:
            topic = topics[directory].setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=index, partition_size=size_bytes, offset_lag=lag, is_future_key=is_future
                )
            )

        for directory, name, index, size_bytes in self._store.places.sizes():
            if wanted is not None and (name, index) not in wanted:
                continue
            if size_bytes is None:
                unreadable.add(directory)
                continue
            add(directory, name, index, size_bytes, 0, False)
        for directory, name, index, size_bytes, lag in self._store.relocation.moves():
            if wanted is None or (name, index) in wanted:
                add(directory, name, index, size_bytes, lag, True)
        return DescribeLogDirsResponse(
            results=[
                _unreadable(directory)
                if directory in unreadable
                else _directory(directory, found.values(), is_cordoned=directory in cordoned)
                for directory, found in topics.items()
            ]
        )


def _directory(
    directory: str, topics: Iterable[DescribeLogDirsTopic], *, is_cordoned: bool
) -> DescribeLogDirsResult:
    try:
        usage = disk_usage(directory)
    except OSError:
        return _unreadable(directory)
    return DescribeLogDirsResult(
        error_code=0,
        log_dir=os.path.abspath(directory),
        topics=list(topics),
        total_bytes=usage.total,
        usable_bytes=usage.free,
        is_cordoned=is_cordoned,
    )


def _unreadable(directory: str) -> DescribeLogDirsResult:
    """The disk failed: Kafka's response for an offline directory."""
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=os.path.abspath(directory), topics=[]
    )


API = Api(
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    make=lambda parts: DescribeLogDirs(parts.node.store, parts.node.current_view),
    needs=(on_cluster(Operation.DESCRIBE),),
)
