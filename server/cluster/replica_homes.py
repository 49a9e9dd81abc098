"""In which log directory each replica of a node is: by the metadata, and on its disks.

The controllers name a directory in a partition's record. A new replica is made in the one that they name, if
it is one of this node's. Where they name none, or another one than that which has the replica, they are told
(`coordinator/kraft/directory_assignments.py`).

Source: KIP-858; LogManager.getOrCreateLog of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.view import LOST, MIGRATING, UNASSIGNED
from odradek.coordinator.kraft.directory_assignments import Assignment
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
    from odradek.storage.directories.store import LogStore

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
        # What is found is in the one directory that there is: a start has very many to compare.
        usual = tuple(self._paths) if len(self._paths) == len(self._store.directories) == 1 else None
        replicas = (one for one in self.replicas(view) if one[1].directories != usual)
        found = (self.difference(topic, partition) for topic, partition in replicas)
        return [one for one in found if one is not None]

    def replicas(self, view: ClusterView) -> Iterable[tuple[TopicView, PartitionView]]:
        """All of this node."""
        for topic in view.topics.values():
            for partition in topic.partitions:
                if self._node_id in partition.replicas:
                    yield topic, partition
