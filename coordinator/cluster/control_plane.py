"""Decisions for the cluster, as a node's logs and clients see them.

A node alone decides itself (`coordinator/controller/alone.py`). In a cluster the controllers decide; the node
follows their metadata log (`coordinator/kraft`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.coordinator.cluster.publishing import Publisher
    from odradek.coordinator.cluster.topics import NewTopic
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.errors import KafkaError
    from odradek.wire.work import Work


class TopicResult(Protocol):
    """The outcome for one new topic."""

    @property
    def name(self) -> str: ...

    @property
    def error(self) -> KafkaError | None: ...


class TopicCreator(Protocol):
    """Creates topics, and knows which there are."""

    publisher: Publisher
    """Gets every new view."""

    def creating_topics(
        self, new_topics: Sequence[NewTopic], *, charge: Callable[[int], None]
    ) -> Work[Sequence[TopicResult]]:
        """Topics that are created when they are needed. `charge` gets the number of partitions of each, and
        may refuse it; in a cluster the controllers charge the node. Raises KafkaError: none was created."""


class ControlPlane(TopicCreator, Protocol):
    """See the module."""

    @property
    def view(self) -> ClusterView:
        """The newest one."""

    @property
    def deletions(self) -> Collection[bytes]:
        """Ids of deleted topics whose directories may still be there."""

    def finish_deletion(self, topic_id: bytes) -> None:
        """The directories of a deleted topic are out of sight."""

    def set_offline(
        self, node_id: int, partitions: Iterable[tuple[str, int]], directories: Iterable[str]
    ) -> None:
        """Sets the partitions whose replicas on the node are offline, and the paths of its log directories
        that have failed."""
