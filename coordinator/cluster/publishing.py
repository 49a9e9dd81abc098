"""A new view of the cluster reaches the node: its logs and its subscribers, in one order.

Whoever decides for the cluster, the controller of a node alone or those of a cluster, hands each view and
what has changed to a `Publisher`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from odradek.coordinator.cluster.view import ClusterChange, ClusterView, PartitionView, Subscriber, TopicView
from odradek.wire.work import Work


class NodeLogs:
    """Work on a node's disks for decisions of the machine. This one has no logs. Nothing raises."""

    def make_partitions(self, created: Sequence[tuple[TopicView, PartitionView]]) -> Work[None]:
        """Before the partitions are published."""
        yield from ()

    def remove_partitions(self, deleted: Sequence[TopicView]) -> Work[None]:
        """After the topics have left the view."""
        yield from ()

    def drop_replicas(self, removed: Sequence[tuple[TopicView, PartitionView]]) -> Work[None]:
        """After the view has said that these partitions are on other nodes only."""
        yield from ()

    def apply_configs(self, change: ClusterChange) -> Work[None]:
        """After changed overrides have been published."""
        yield from ()

    def takes_replicas(self, node_id: int) -> bool:
        """Whether new partitions may be placed on that broker."""
        return True


class Publisher:
    """Holds the newest view. `logs` is set by the owner of the node's logs."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.logs = NodeLogs()
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Have `subscriber(view, change)` called at each new view, in the order of subscription."""
        self._subscribers.append(subscriber)

    def publish(self, view: ClusterView, change: ClusterChange) -> None:
        """For a change that makes no partition and removes none."""
        self.view = view = replace(view, version=self.view.version + 1)
        for subscriber in self._subscribers:
            subscriber(view, change)

    def publishing(
        self, next_view: Callable[[ClusterView], ClusterView], change: ClusterChange
    ) -> Work[None]:
        """Partitions are made before the view has them. They are removed after all subscribers have the new
        view, and new settings are applied to the logs. `next_view` gets the newest view at the moment of
        publication: another one may have come while partitions were made."""
        yield from self.logs.make_partitions(change.created)
        self.publish(next_view(self.view), change)
        if change.configured or change.brokers_configured:
            yield from self.logs.apply_configs(change)
        yield from self.logs.remove_partitions(change.deleted)
        yield from self.logs.drop_replicas(change.removed)
