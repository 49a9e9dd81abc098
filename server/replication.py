"""Replication on one node: each view says what becomes of its replicas.

Of a partition with other replicas this node leads (`leading.py`), follows (`following.py`), or has nothing to
do; the pure machines are in `coordinator/replication`. Partitions with one replica are not here. All of it
runs on the node's event loop. A log that is being changed by a work is left alone until its end: views of it
wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.coordinator.replication.transitions import Delete, Follow, Known, Lead, transition
from odradek.coordinator.replication.values import ReplicaKey

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, PartitionView, TopicView
    from odradek.server.following import Following
    from odradek.server.leading import Leading
    from odradek.server.replica_log import ReplicationSettings
    from odradek.server.timers import Timers
    from odradek.storage.directories.store import LogStore


class Replication:
    """Call `begin` with the first view, `view_changed` with each later one, then `close`."""

    def __init__(
        self,
        settings: ReplicationSettings,
        store: LogStore,
        timers: Timers,
        leading: Leading,
        following: Following,
    ) -> None:
        self.leading = leading
        self.following = following
        self.is_in_shutdown = False
        self._settings = settings
        self._store = store
        self._timers = timers
        self._known: dict[ReplicaKey, Known] = {}
        self._held: dict[ReplicaKey, tuple[TopicView, PartitionView | None]] = {}
        self._end_looking: Callable[[], None] | None = None
        following.when_free = self._take_held

    def begin(self, view: ClusterView) -> None:
        """The replicas of this node by the view with which it starts."""
        for topic in view.topics.values():
            for partition in topic.partitions:
                if self._is_here(partition):
                    self._take(topic, partition, partition.index)
        interval_ms = max(self._settings.replica_lag_time_max_ms // 2, 1)
        self._end_looking = self._timers.every(interval_ms, self._look)
        self.following.pump()

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """To be called before the coordinators learn of the view."""
        for topic in change.deleted:
            for partition in topic.partitions:
                self._take(topic, None, partition.index)
        for one in change.changed:
            before, after = one.before, one.after
            if self._is_here(after):
                self._take(one.topic, after, after.index)
            elif before is not None and self._is_here(before):
                self._take(one.topic, None, after.index)
        if change.brokers:
            self.leading.brokers_changed()
            self.following.brokers_changed(change.brokers)
        self.following.pump()

    def close(self) -> None:
        """Nothing is fetched and asked any more."""
        if self._end_looking is not None:
            self._end_looking()
        self.following.close()
        for key in list(self.leading.leaders):
            self.leading.resign(key)

    def _look(self) -> None:
        self.leading.shrink()
        self.following.look_again()

    def _is_here(self, partition: PartitionView) -> bool:
        return self._settings.node_id in partition.replicas

    def _take_held(self, key: ReplicaKey) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            topic, view = held
            self._take(topic, view, key[1])

    def _take(self, topic: TopicView, view: PartitionView | None, index: int) -> None:
        """What the view says of this node's replica; None: it has none any more."""
        key = topic.name, index
        if self.following.is_busy(key):
            self._held[key] = topic, view
            return
        partition = self._store.get(*key)
        if view is None or partition is None or not partition.is_available:
            self._drop(key)
            return
        if len(view.replicas) == 1:
            if key in self._known:
                partition.set_replicated(False)
                self._drop(key)
                if view.leader == self._settings.node_id:
                    partition.appender.high_watermark.refuse(None)
            return
        known = self.leading.known(key) or self._known.get(key, Known())
        decided = transition(self._settings.node_id, known, view, is_in_shutdown=self.is_in_shutdown)
        if decided is None:
            return
        assert not isinstance(decided, Delete)
        partition.set_replicated(True)
        self._known[key] = Known(view.leader_epoch, view.partition_epoch)
        if isinstance(decided, Lead):
            self.following.stop(key)
            self.leading.lead(key, partition, view)
            return
        self.leading.resign(key)
        if isinstance(decided, Follow):
            self.following.follow(key, topic.topic_id, decided.leader, view.leader_epoch, partition)
        else:
            self.following.stop(key)

    def _drop(self, key: ReplicaKey) -> None:
        self.leading.resign(key)
        self.following.stop(key)
        self._known.pop(key, None)
