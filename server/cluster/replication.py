"""Replication on one node: each view says what becomes of its replicas.

Of a partition with other replicas this node leads (`leading.py`), follows (`following.py`), or has nothing to
do; the pure machines are in `coordinator/replication`. Partitions with one replica are not here. All of it
runs on the node's event loop. A log that is being changed by a work is left alone until its end: views of it
wait. One whose disk does not answer is neither led nor followed until it is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from odradek.coordinator.replication.transitions import Delete, Follow, Known, Lead, transition
from odradek.coordinator.replication.values import ReplicaKey
from odradek.storage.directories.failing_disks import Role
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, PartitionView, TopicView
    from odradek.server.cluster.following import Following
    from odradek.server.cluster.leading import Leading
    from odradek.server.cluster.replica_log import ReplicationSettings
    from odradek.server.network.timers import Timers
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore
    from odradek.storage.log.partition import Partition

logger = logging.getLogger("odradek.replication")

OFFLINE_LOOK_MS = 1_000
"""Between two looks at replicas that are offline."""


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
        self._offline: set[ReplicaKey] = set()
        """Replicas that are neither led nor followed, since their disk does not answer."""
        self._is_waiting = False
        self._view: ClusterView | None = None
        self._unfenced: set[int] = set()
        """Brokers that the last view has as such."""
        self._end_looking: Callable[[], None] | None = None
        following.when_free = self._take_held
        following.when_offline = self._went_offline
        store.failing_disks.role_of = self.role_of

    def begin(self, view: ClusterView) -> None:
        """The replicas of this node by the view with which it starts."""
        self._view = view
        self._unfenced = {one for one in view.registrations if self._is_unfenced(one)}
        for topic in view.topics.values():
            for partition in topic.partitions:
                if self._is_here(partition):
                    self._take(topic, partition, partition.index)
        interval_ms = max(self._settings.replica_lag_time_max_ms // 2, 1)
        self._end_looking = self._timers.every(interval_ms, self._look)
        self.following.pump()

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """To be called before the coordinators learn of the view."""
        self._view = view
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
            self._tell_fenced(change.brokers)
            self.following.brokers_changed(change.brokers)
        self.following.pump()

    def configure(self, live: LiveConfig[LogConfig]) -> None:
        """The settings that may change while the node runs."""
        wanted = live.values["num.replica.fetchers"]
        if wanted != self._settings.fetchers_per_leader:
            self._settings.fetchers_per_leader = wanted
            self.following.resize()

    def close(self) -> None:
        """Nothing is fetched and asked any more."""
        if self._end_looking is not None:
            self._end_looking()
            self._end_looking = None
        self.following.close()
        for key in list(self.leading.leaders):
            self.leading.resign(key)

    def _is_unfenced(self, node_id: int) -> bool:
        broker = None if self._view is None else self._view.registrations.get(node_id)
        return broker is not None and not broker.is_fenced

    def _tell_fenced(self, node_ids: Iterable[int]) -> None:
        """Logs other brokers that are fenced or unfenced now: a fenced one leads nothing and is in no ISR."""
        for node_id in node_ids:
            is_unfenced = self._is_unfenced(node_id)
            if is_unfenced == (node_id in self._unfenced):
                continue
            self._unfenced ^= {node_id}
            if node_id != self._settings.node_id:
                logger.info("broker %d is %s", node_id, "unfenced" if is_unfenced else "fenced or gone")

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
        """Takes in what the view says of this node's replica; None: it has none any more."""
        key = topic.name, index
        if self.following.is_busy(key):
            self._held[key] = topic, view
            return
        self._offline.discard(key)
        if view is None:
            self._drop(key)
            return
        if len(view.replicas) == 1:
            self._end_replicating(key, view)
            return
        partition = self._partition(key)
        if partition is None or not (partition.is_available or self._goes_on_leading(key, view)):
            self._went_offline(key)
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

    def _end_replicating(self, key: ReplicaKey, view: PartitionView) -> None:
        """There are no other replicas any more, for which somebody may wait. A partition that is not open
        knows it when it is opened."""
        place = self._store.places.by_key.get(key)
        partition = None if place is None else place.partition
        if partition is not None and partition.is_replicated:
            partition.set_replicated(False)
        self._drop(key)
        if partition is not None and view.leader == self._settings.node_id:
            partition.appender.high_watermark.refuse(None)

    def _drop(self, key: ReplicaKey) -> None:
        self.leading.resign(key)
        self.following.stop(key)
        self._known.pop(key, None)

    # Disks

    def _partition(self, key: ReplicaKey) -> Partition | None:
        try:
            return self._store.get(*key)
        except KafkaError:
            return None  # the store has told it

    def _goes_on_leading(self, key: ReplicaKey, view: PartitionView) -> bool:
        """Also while the disk does not answer: a leader that began anew in the same epoch would not know
        which change of the ISR is on its way."""
        return view.leader == self._settings.node_id and key in self.leading.leaders

    def _went_offline(self, key: ReplicaKey) -> None:
        self._drop(key)
        if self._store.failing_disks.may_return(key):
            self._offline.add(key)
            self._look_later()

    def _look_later(self) -> None:
        if self._offline and not self._is_waiting:
            self._is_waiting = True
            self._timers.after(OFFLINE_LOOK_MS, self._look_at_offline)

    def _look_at_offline(self) -> None:
        """Takes up those that are back, by the newest view."""
        self._is_waiting = False
        if self._end_looking is None:
            return
        for key in list(self._offline):
            if not self._store.failing_disks.may_return(key):
                self._offline.discard(key)
            elif (partition := self._partition(key)) is not None and partition.is_available:
                self._take_up(key)
        self._look_later()
        self.following.pump()

    def _take_up(self, key: ReplicaKey) -> None:
        self._offline.discard(key)
        found = self._found(key)
        if found is not None:
            logger.info("%s-%d is back, and is replicated again", *key)
            self._take(*found, key[1])

    def _found(self, key: ReplicaKey) -> tuple[TopicView, PartitionView] | None:
        """A replica of this node by the newest view."""
        topic = None if self._view is None else self._view.topic(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        partition = topic.partitions[key[1]]
        return (topic, partition) if self._is_here(partition) else None

    def role_of(self, key: ReplicaKey) -> Role:
        """By the newest view. Who is in the ISR or ELR counts as one that has all that is committed
        (KIP-966)."""
        found = self._found(key)
        if found is None:
            return Role(leads=False, has_substitute=False)
        view, node_id = found[1], self._settings.node_id
        clean = {*view.isr, *view.elr}
        return Role(
            leads=view.leader == node_id and len(view.replicas) > 1,
            has_substitute=node_id in clean and len(clean) > 1,
        )
