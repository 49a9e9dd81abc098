"""The throttles of replication, as the settings of brokers and topics have them now.

`kafka-reassign-partitions --throttle` sets them for the brokers and topics of a move, and takes them away
when the move is over (KIP-73).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.coordinator.replication.replication_quota import ReplicationQuota, throttled_partitions

if TYPE_CHECKING:
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, TopicView
    from odradek.storage.config import LogConfig

LEADER, FOLLOWER = "leader", "follower"
REPLICAS = {
    LEADER: "leader.replication.throttled.replicas",
    FOLLOWER: "follower.replication.throttled.replicas",
}


class Throttles:
    """Call `follow` with the settings of the broker, `begin` with the first view, `view_changed` with later
    ones."""

    def __init__(self, node_id: int, window_count: int, window_ms: int) -> None:
        self.leader = ReplicationQuota(window_count, window_ms)
        """For what followers read here."""
        self.follower = ReplicationQuota(window_count, window_ms)
        """For what this node reads of leaders."""
        self._node_id = node_id
        self._quotas = {LEADER: self.leader, FOLLOWER: self.follower}

    def follow(self, live: LiveConfig[LogConfig]) -> None:
        """The rates."""
        self.leader.bytes_per_second_max = live.values["leader.replication.throttled.rate"]
        self.follower.bytes_per_second_max = live.values["follower.replication.throttled.rate"]

    def begin(self, view: ClusterView) -> None:
        """The replicas, as all topics have them."""
        self._configure(view.topics.values())

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """Subscriber of the cluster's metadata."""
        for topic in change.deleted:
            for quota in self._quotas.values():
                quota.forget(topic.name)
        new = {one.topic.name: one.topic for one in change.changed if one.before is None}
        self._configure([*new.values(), *change.configured])

    def _configure(self, topics: Iterable[TopicView]) -> None:
        for topic in topics:
            for side, quota in self._quotas.items():
                text = topic.configs.get(REPLICAS[side])
                if text:
                    quota.throttle(topic.name, throttled_partitions(text, self._node_id))
                else:
                    quota.forget(topic.name)
