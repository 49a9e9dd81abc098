"""The logs of this node follow the metadata of the cluster.

The control plane decides which topics there are; here their partitions are made, deleted and configured
on this node's disks. A kill may come between a decision and the disk: the next start finishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.features import knows_cordons
from odradek.coordinator.cluster.publishing import NodeLogs
from odradek.coordinator.cluster.view import ClusterView
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import finish

if TYPE_CHECKING:
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.control_plane import ControlPlane
    from odradek.coordinator.cluster.view import ClusterChange, PartitionView, TopicView
    from odradek.server.cluster.replica_homes import ReplicaHomes
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.broker")

PARTITIONS_PER_LOAD = 256
"""New partitions that are as much to keep as a slice of groups."""
PARTITIONS_PER_STEP = 64
"""Partitions that take new settings in one step."""
STRAYS_LOGGED_MAX = 20


class TopicLookup:
    """Lookup of a log's topic in the newest view. Without metadata there are no topics."""

    def __init__(self, live: LiveConfig[LogConfig]) -> None:
        self.current_view: Callable[[], ClusterView] = ClusterView
        self._live = live

    def config_of(self, topic: str) -> LogConfig:
        found = self.current_view().topics.get(topic)
        return self._live.log_config({} if found is None else found.configs)

    def id_of(self, topic: str, index: int) -> bytes | None:
        found = self.current_view().topics.get(topic)
        return None if found is None or index >= len(found.partitions) else found.topic_id

    def leader_epoch_of(self, topic: str, index: int) -> int:
        partition = self.current_view().partition(topic, index)
        return 0 if partition is None else partition.leader_epoch

    def is_replicated(self, topic: str, index: int) -> bool:
        partition = self.current_view().partition(topic, index)
        return partition is not None and len(partition.replicas) > 1


class TopicLogs(NodeLogs):
    """`after_loading` is called now and then while many partitions are made. `directory_for` says in which
    data directory a new partition has to be.
    """

    def __init__(
        self,
        node_id: int,
        store: LogStore,
        plane: ControlPlane,
        live: LiveConfig[LogConfig],
        now_ms: Callable[[], int],
        after_loading: Callable[[], object],
        directory_for: Callable[[PartitionView], str | None],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._plane = plane
        self._live = live
        self._now_ms = now_ms
        self._has_absent = False
        """Whether a partition was not made, as it may be in another log directory."""
        self._after_loading = after_loading
        self._directory_for = directory_for

    # For the control plane

    def takes_replicas(self, node_id: int) -> bool:
        """Whether new partitions may be placed on that broker."""
        if node_id != self._node_id or not knows_cordons(self._plane.view.features):
            return True
        return self._store.creating.has_uncordoned

    def make_partitions(self, created: Sequence[tuple[TopicView, PartitionView]]) -> Work[None]:
        """Partitions exist before a client can see them. The next start makes those that a kill prevented."""
        for number, (topic, partition) in enumerate(created, 1):
            if self._node_id in partition.replicas:
                self._create_partition(topic, partition)
                yield None
            if number % PARTITIONS_PER_LOAD == 0:
                self._after_loading()

    def remove_partitions(self, deleted: Sequence[TopicView]) -> Work[None]:
        """No client can find them any more. The next start deletes those that a kill left."""
        return self._removing(
            {topic.topic_id: [(topic.name, one.index) for one in topic.partitions] for topic in deleted}
        )

    def drop_replicas(self, removed: Sequence[tuple[TopicView, PartitionView]]) -> Work[None]:
        """Deletes replicas like those of deleted topics: a replica that comes back later begins empty."""
        by_topic: dict[bytes, list[tuple[str, int]]] = {}
        for topic, partition in removed:
            by_topic.setdefault(topic.topic_id, []).append((topic.name, partition.index))
        yield from self._deleting(by_topic)

    def apply_configs(self, change: ClusterChange) -> Work[None]:
        """Takes new settings to the loaded logs; the others get theirs when they are loaded. There may be
        very many."""
        names = {topic.name for topic in change.configured}
        for number, partition in enumerate(self._store.places.loaded(), 1):
            topic = self._plane.view.topics.get(partition.topic)
            if topic is not None and (change.brokers_configured or partition.topic in names):
                config = self._live.log_config(topic.configs)
                if partition.config is not config:
                    partition.set_config(config)
            if number % PARTITIONS_PER_STEP == 0:
                yield None

    # At the start

    def finish_deletions(self) -> None:
        """Deletes the directories of topics whose deletion a kill interrupted, and sets aside directories of
        another topic of the same name."""
        view, store = self._plane.view, self._store
        deleted: dict[bytes, list[tuple[str, int]]] = {topic_id: [] for topic_id in self._plane.deletions}
        strays = []
        for name, index in store.places.names():
            has_topic = view.partition(name, index) is not None
            if has_topic and not deleted and store.places.is_unopened(name, index):
                continue  # checked when it is loaded
            topic_id = store.places.topic_id_of(name, index)
            if topic_id is not None and topic_id in deleted:
                deleted[topic_id].append((name, index))
            elif not has_topic:
                strays.append(f"{name}-{index}")
            elif topic_id is not None and topic_id != view.topics[name].topic_id:
                try:
                    self._clear_place(name, index)
                except KafkaError as error:
                    logger.error(
                        "the directory %s-%d belongs to another topic and cannot be moved away: %s",
                        name,
                        index,
                        error,
                    )
        finish(self._removing(deleted))
        if strays:
            logger.warning(
                "partitions that belong to no topic and are not served (odradek import-log imports them): %s",
                ", ".join(sorted(strays)[:STRAYS_LOGGED_MAX]),
            )

    def set_strays_aside(self) -> None:
        """Renames the directories of partitions that a cluster does not have on this node, as Kafka does:
        their worth is unknown. One of another topic of the same name that is not open yet is found when it is
        loaded."""
        strays = []
        for name, index in self._store.places.names():
            if self._is_of_this_node(name, index):
                continue
            try:
                strays.append(self._store.set_aside(name, index))
            except KafkaError as error:
                logger.error("%s-%d is not of this node any more, and stays: %s", name, index, error)
        if strays:
            logger.warning(
                "%d partitions are not of this node any more; their directories are kept as strays: %s",
                len(strays),
                ", ".join(sorted(strays)[:STRAYS_LOGGED_MAX]),
            )

    def _is_of_this_node(self, name: str, index: int) -> bool:
        """Whether a partition on the disk may be one that a cluster has here."""
        view, places = self._plane.view, self._store.places
        partition = view.partition(name, index)
        if partition is None or self._node_id not in partition.replicas:
            return False
        return places.is_unopened(name, index) or self._is_of_topic(name, index, view.topics[name].topic_id)

    def make_missing(self, homes: ReplicaHomes) -> None:
        """Makes the partitions of this node that are on no disk: a kill came before they were made. Not those
        that may be in a log directory which has failed or is not named."""
        absent = []
        for topic, partition in list(self._missing()):
            if homes.may_be_made(partition):
                self._create_partition(topic, partition)
            else:
                absent.append(f"{topic.name}-{partition.index}")
        self._has_absent = bool(absent)
        if absent:
            logger.error(
                "%d partitions may be in a log directory that has failed or that log.dirs does not name any "
                "more, and are offline: %s",
                len(absent),
                ", ".join(sorted(absent)[:STRAYS_LOGGED_MAX]),
            )

    # While the broker runs

    def report_offline(self) -> None:
        """Puts into the metadata which partitions are offline on this node."""
        offline = self._store.places.offline()
        if self._store.places.has_unopened or self._has_absent:
            # The content of a directory that was never opened is unknown: it has what no other one has.
            offline |= {(topic.name, one.index) for topic, one in self._missing()}
        self._plane.set_offline(self._node_id, offline, self._store.failing_disks.failures)

    @property
    def may_be_offline(self) -> bool:
        """Whether some partition may be offline."""
        return bool(
            self._store.failing_disks.failures
            or self._store.failing_disks.needs_attention
            or self._has_absent
        )

    # Partitions

    def _missing(self) -> Iterator[tuple[TopicView, PartitionView]]:
        """The partitions of this node that the store does not have."""
        for topic in self._plane.view.topics.values():
            for partition in topic.partitions:
                if (
                    self._node_id in partition.replicas
                    and (topic.name, partition.index) not in self._store.places
                ):
                    yield topic, partition

    def _create_partition(self, topic: TopicView, partition: PartitionView) -> None:
        """A partition that cannot be made is one that answers KAFKA_STORAGE_ERROR."""
        index = partition.index
        create = partial(
            self._store.create,
            topic.name,
            index,
            topic.topic_id,
            self._live.log_config(topic.configs),
            leader_epoch=partition.leader_epoch,
            is_replicated=len(partition.replicas) > 1,
            now_ms=self._now_ms(),
        )
        try:
            create = partial(create, directory=self._directory_for(partition))
            create()
        except KafkaError as error:
            if error.code != ErrorCode.INCONSISTENT_TOPIC_ID:
                logger.error("cannot create %s-%d: %s", topic.name, index, error)
                return
            try:
                self._clear_place(topic.name, index)
                create()
            except KafkaError as again:
                logger.error("cannot create %s-%d: %s", topic.name, index, again)

    def _clear_place(self, name: str, index: int) -> None:
        """Removes a directory of another topic of the same name: one of an interrupted deletion is deleted.
        The worth of any other is unknown, so it is kept, as Kafka keeps a stray."""
        if self._store.places.topic_id_of(name, index) in self._plane.deletions:
            self._store.delete(name, index)
        else:
            path = self._store.set_aside(name, index)
            self._store.listener.stray(name, index, path)

    def _removing(self, partitions_of: Mapping[bytes, Collection[tuple[str, int]]]) -> Work[None]:
        """Deletes the partitions of deleted topics, by the ids of the topics. A deletion that fails is tried
        again at the next start."""
        for topic_id in (yield from self._deleting(partitions_of)):
            self._plane.finish_deletion(topic_id)

    def _deleting(self, partitions_of: Mapping[bytes, Collection[tuple[str, int]]]) -> Work[list[bytes]]:
        """The topics of which all partitions are deleted for good."""
        deleted = []
        for topic_id, partitions in partitions_of.items():
            is_done = True
            for name, index in partitions:
                if not self._is_of_topic(name, index, topic_id):
                    continue
                try:
                    self._store.delete(name, index, sync=False)
                except KafkaError as error:
                    is_done = False
                    logger.error("%s-%d is not deleted before the next start: %s", name, index, error)
                yield None
            if is_done:
                deleted.append(topic_id)
        if not deleted:
            return []
        try:
            yield self._store.sync_directories
        except OSError as error:
            logger.error("deleted partitions may come back after a loss of power: %s", error)
            return []
        return deleted

    def _is_of_topic(self, name: str, index: int, topic_id: bytes) -> bool:
        """Whether the partition of that name may be the topic's: one with another id may have come."""
        key = (name, index)
        return key in self._store.places and self._store.places.topic_id_of(*key) in (None, topic_id)
