"""In which log directory each replica of a node is: by the metadata, and on its disks.

The controllers name a directory in a partition's record. A new replica is made in the one that they name, if
it is one of this node's. Where they name none, or another one than that which has the replica, they are told
(`coordinator/kraft/directory_assignments.py`).

Source: KIP-858; LogManager.getOrCreateLog of Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.coordinator.cluster.view import LOST, MIGRATING, UNASSIGNED
from odradek.coordinator.kraft.directory_assignments import Assignment, DirectoryAssignments
from odradek.storage.directories.store import key_of
from odradek.wire.errors import ErrorCode, KafkaError
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
    from odradek.storage.directories.store import LogStore

logger = logging.getLogger("odradek.cluster")

NO_DIRECTORY = frozenset({MIGRATING, UNASSIGNED, LOST})


class ReplicaHomes:
    """`directory_ids` are the ids of the node's log directories, by path. `has_absent` says whether the node
    had others, which may hold replicas that the records have in no directory."""

    def __init__(
        self,
        node_id: int,
        directory_ids: Mapping[str, bytes],
        store: LogStore,
        *,
        has_absent: bool = False,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._has_absent = has_absent
        self._ids = {path.rstrip("/"): directory_id for path, directory_id in directory_ids.items()}
        self._paths = {directory_id: path for path, directory_id in self._ids.items()}

    def ids_of(self, paths: Iterable[str]) -> list[bytes]:
        """Ids of the directories at `paths`, as far as they are known."""
        return [self._ids[path] for path in paths if path in self._ids]

    def directory_for(self, partition: PartitionView) -> str | None:
        """Where the record wants a new replica to be; None: the node chooses. KAFKA_STORAGE_ERROR: in a
        directory that has failed."""
        path = self._paths.get(partition.directory_of(self._node_id))
        failure = None if path is None else self._store.failing_disks.failures.get(path)
        if failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has failed: {failure}")
        return path

    def may_be_made(self, partition: PartitionView) -> bool:
        """Whether a replica that is on no disk, at a start, may begin empty. Not where its records may be on
        a disk that has failed; nor, other than in Kafka, where they are in a directory that `log.dirs` does
        not name any more and no other replica has them."""
        directory = partition.directory_of(self._node_id)
        failures = self._store.failing_disks.failures
        if directory in self._paths:
            return self._paths[directory] not in failures
        if directory in NO_DIRECTORY:
            is_complete = len(self._ids) == len(self._store.directories) and not self._has_absent
            return is_complete and not failures
        # Of those who have all that is committed (KIP-966), another one than this node.
        return not {self._node_id}.issuperset((*partition.isr, *partition.elr))

    def difference(self, topic: TopicView, partition: PartitionView) -> Assignment | None:
        """Where the replica is, if the record says something else. None, too, for one in a directory that has
        failed: the controllers learn that in another way."""
        place = self._store.places.by_key.get((topic.name, partition.index))
        if place is None or place.home.failure is not None:
            return None
        directory = self._ids.get(place.home.path)
        if directory is None or directory == partition.directory_of(self._node_id):
            return None
        return Assignment(topic.topic_id, partition.index, directory)

    def differences(self, view: ClusterView) -> list[Assignment]:
        """All replicas of this node of which the record says something else."""
        found = (self.difference(topic, partition) for topic, partition in self.replicas(view))
        return [one for one in found if one is not None]

    def replicas(self, view: ClusterView) -> Iterable[tuple[TopicView, PartitionView]]:
        """All of this node."""
        for topic in view.topics.values():
            for partition in topic.partitions:
                if self._node_id in partition.replicas:
                    yield topic, partition


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
