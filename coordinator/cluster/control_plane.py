"""Decisions for the cluster, as a node's logs and clients see them.

A node alone decides itself (`machine.py`). In a cluster the controllers decide; the node follows their
metadata log (`coordinator/kraft`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


class NotedDirectories(Protocol):
    """Which log directories nodes have noted, so that a start knows which one is missing."""

    def of(self, node_id: int) -> Mapping[str, str]:
        """Paths by id of the directories of a broker."""

    def note(self, node_id: int, paths: Mapping[str, str]) -> None:
        """Replaces a broker's directories. Raises KafkaError: nothing is noted then."""


class ControlPlane(Protocol):
    """See the module."""

    publisher: Publisher
    """Gets every new view."""

    @property
    def view(self) -> ClusterView:
        """The newest one."""

    @property
    def deletions(self) -> Mapping[bytes, str]:
        """Name by id of deleted topics whose directories may still be there."""

    def finish_deletion(self, topic_id: bytes) -> None:
        """The directories of a deleted topic are out of sight."""

    @property
    def log_directories(self) -> NotedDirectories:
        """The log directories that nodes had at their last start."""

    def set_offline(
        self, node_id: int, partitions: Iterable[tuple[str, int]], directories: Iterable[str]
    ) -> None:
        """Sets the partitions whose replicas on the node are offline, and the paths of its log directories
        that have failed."""

    def creating_topics(
        self, new_topics: Sequence[NewTopic], *, charge: Callable[[int], None]
    ) -> Work[Sequence[TopicResult]]:
        """Topics that are created when they are needed. `charge` gets the number of partitions of each, and
        may refuse it; in a cluster the controllers charge the node. Raises KafkaError: none was created."""
