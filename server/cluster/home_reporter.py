"""The records get the log directory of each replica of a node, where its disks say something else.

Source: KIP-858; AssignmentsManager of Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.coordinator.kraft.directory_assignments import Assignment, DirectoryAssignments
from odradek.storage.directories.store import key_of
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from concurrent.futures import Future

    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, PartitionView, TopicView
    from odradek.server.cluster.replica_homes import ReplicaHomes

logger = logging.getLogger("odradek.cluster")


class HomeReporter:
    """Sends what `ReplicaHomes` finds different. `ask` sends a request to the controller that leads."""

    def __init__(
        self,
        node_id: int,
        homes: ReplicaHomes,
        ask: Callable[[Message], Future[Any]],
        broker_epoch: Callable[[], int],
        current_view: Callable[[], ClusterView],
    ) -> None:
        self._node_id = node_id
        self._homes = homes
        self._ask = ask
        self._broker_epoch = broker_epoch
        self._current_view = current_view
        self._assignments = DirectoryAssignments()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def check_all(self) -> None:
        """At a start."""
        for topic, partition in self._homes.replicas(self._current_view()):
            self._check(topic, partition)
        self._go_on()

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """A subscriber of the cluster's metadata."""
        for one in change.changed:
            if self._node_id in one.after.replicas:
                self._check(one.topic, one.after)
            else:
                self._assignments.forget(one.topic.topic_id, one.after.index)
        for topic in change.deleted:
            for partition in topic.partitions:
                self._assignments.forget(topic.topic_id, partition.index)
        self._go_on()

    def moved(self, name: str) -> None:
        """A partition, by the name of its directory, lies in another log directory now."""
        key = key_of(name)
        topic = None if key is None else self._current_view().topic(key[0])
        if key is None or topic is None or key[1] >= len(topic.partitions):
            return
        self._check(topic, topic.partitions[key[1]])
        self._go_on()

    def _check(self, topic: TopicView, partition: PartitionView) -> None:
        wanted = self._homes.difference(topic, partition)
        if wanted is None:
            self._assignments.forget(topic.topic_id, partition.index)
        else:
            self._assignments.want(wanted, _now_ms())

    def _go_on(self) -> None:
        due_ms = self._assignments.due_ms
        if self._is_closed or due_ms is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(due_ms - _now_ms(), 0) / 1000, self._send)

    def _send(self) -> None:
        self._timer = None
        wanted = self._assignments.next_request(_now_ms())
        if not wanted:
            self._go_on()
            return
        asked = self._ask(request_of(self._node_id, self._broker_epoch(), wanted))
        asked.add_done_callback(self._hand_in)

    def _hand_in(self, asked: Future[Any]) -> None:
        """In the thread of the link."""
        try:
            self._loop.call_soon_threadsafe(partial(self._take, asked))
        except RuntimeError:
            logger.debug("the controllers have taken directories after the end")

    def _take(self, asked: Future[Any]) -> None:
        now_ms = _now_ms()
        error = None if asked.cancelled() else asked.exception()
        response = None if asked.cancelled() or error is not None else asked.result()
        if response is None or response.error_code:
            why = error if response is None else ErrorCode(response.error_code).name
            logger.warning(
                "the log directories of %d replicas were not taken: %s", len(self._assignments), why
            )
            self._assignments.failed(now_ms)
        else:
            for topic_id, index in self._assignments.answered(_errors(response), now_ms):
                name = self._current_view().topic_names.get(topic_id, topic_id.hex())
                logger.error("the controllers refuse the log directory of %s-%d for long", name, index)
        self._go_on()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def request_of(node_id: int, broker_epoch: int, wanted: Iterable[Assignment]) -> AssignReplicasToDirsRequest:
    directories: dict[bytes, dict[bytes, list[PartitionData]]] = {}
    for one in wanted:
        topics = directories.setdefault(one.directory, {})
        topics.setdefault(one.topic_id, []).append(PartitionData(partition_index=one.partition))
    return AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        directories=[
            DirectoryData(
                id=directory,
                topics=[TopicData(topic_id=id_, partitions=found) for id_, found in topics.items()],
            )
            for directory, topics in directories.items()
        ],
    )


def _errors(response: Any) -> dict[tuple[bytes, int], ErrorCode]:
    return {
        (topic.topic_id, one.partition_index): ErrorCode(one.error_code)
        for directory in response.directories
        for topic in directory.topics
        for one in topic.partitions
    }
