"""Topics that are created when they are needed: auto-created ones, and those of coordinators.

Creation is a `Work`: the machine writes to the metadata store, the server makes the logs, the new view is
published. Then the caller answers from the newest view.

A client whose request creates a topic gets an error for an illegal name, but no other reason of a failure: as
in Kafka, whose broker does not wait for its controller. The reason is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.apis.quotas import free
from odradek.coordinator.cluster.topics import (
    CLUSTER_METADATA_TOPIC,
    INTERNAL_TOPICS,
    NewTopic,
    is_legal,
)
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.node import SharedApiParts
    from odradek.coordinator.cluster.control_plane import TopicCreator
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.work import Work

CREATED_AT_ONCE_MAX = 500
"""Limit of topics that one request creates: each costs a directory and files, and the client waits."""
DELETED_KEPT_MAX = 10_000
"""Limit of remembered names of deleted topics; the oldest are dropped first."""
_LOGGED_MAX = 100
"""Limit of topics whose refusal is logged: clients repeat their requests."""

logger = logging.getLogger("odradek.topics")


class TopicCreation:
    """Creates missing topics; `internal_topics` has the settings for the topics of coordinators."""

    def __init__(self, plane: TopicCreator, internal_topics: Iterable[NewTopic]) -> None:
        self._plane = plane
        self._internal_topics = {topic.name: topic for topic in internal_topics}
        assert self._internal_topics.keys() == INTERNAL_TOPICS
        self._deleted: dict[str, None] = {}
        self._logged: set[str] = set()

    @property
    def view(self) -> ClusterView:
        return self._plane.publisher.view

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether any of the topics does not exist."""
        known = self.view.topics
        return any(name not in known for name in names)

    def will_be_deleted(self, names: Iterable[str]) -> None:
        """Called before a deletion; see `take_deleted`."""
        for name in names:
            self._deleted.pop(name, None)
            self._deleted[name] = None
        while len(self._deleted) > DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]

    def take_deleted(self, names: Iterable[str]) -> list[str]:
        """The topics among these that were deleted and not requested since; this call counts as a request."""
        known = self.view.topics
        taken = [name for name in names if name in self._deleted and name not in known]
        for name in taken:
            del self._deleted[name]
        return taken

    def creating_missing(self, names: Iterable[str], charge: Callable[[int], None] = free) -> Work[None]:
        """Creates missing topics with the broker's defaults, if possible. `charge` gets the number of
        partitions of each, and may refuse it."""
        known = self.view.topics
        wanted = [
            self._internal_topics.get(name) or NewTopic(name)
            for name in names
            if name not in known and name != CLUSTER_METADATA_TOPIC and is_legal(name)
        ]
        # The response must come while the client still waits; its next request creates the rest.
        wanted = wanted[:CREATED_AT_ONCE_MAX]
        for name, error in (yield from self.creating(wanted, charge)).items():
            if name not in self._logged and len(self._logged) < _LOGGED_MAX:
                self._logged.add(name)
                logger.warning("topic %s, requested by a client, cannot be created: %s", name, error)

    def creating(
        self, topics: Sequence[NewTopic], charge: Callable[[int], None] = free
    ) -> Work[dict[str, KafkaError]]:
        """Creates missing topics as given; returns the refusals by name."""
        known = self.view.topics
        missing = [topic for topic in topics if topic.name not in known]
        if not missing:
            return {}
        try:
            results = yield from self._plane.creating_topics(missing, charge=charge)
        except KafkaError as error:
            return dict.fromkeys((topic.name for topic in missing), error)
        return {result.name: result.error for result in results if result.error is not None}


def topic_creation(parts: SharedApiParts) -> TopicCreation:
    """The topic creation of a node, which knows what was deleted."""
    return TopicCreation(parts.node.plane, parts.settings.internal_topics)
