"""Topics that come to be because somebody needs them: auto-created ones, `__consumer_offsets` and
`__transaction_state`.

Creation is a `Work`: the machine writes to the metadata store, the server makes the logs, the new view is
published. At its end the caller answers from the view that there is then.

Who has a topic created by asking for it learns of an illegal name, and nothing else of why there is none:
as with Kafka's broker, which asks its controller to create and does not wait. The log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.topics import (
    CLUSTER_METADATA_TOPIC,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    NewTopic,
    is_legal,
)
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.work import Work

CREATED_AT_ONCE_MAX = 500
"""Topics that one request brings about: each costs a directory and some files, and the client waits."""
_NEVER_CREATED = frozenset({"__share_group_state", CLUSTER_METADATA_TOPIC})
"""Those of Kafka's own topics that nobody here writes to."""
DELETED_KEPT_MAX = 10_000
"""Names of deleted topics that are remembered; the oldest are forgotten first."""
_LOGGED_MAX = 100
"""Topics whose refusal is logged: clients ask again and again."""

logger = logging.getLogger("odradek.topics")


class TopicCreation:
    """Creates what is missing; `internal_topics` says how those of coordinators are to be made."""

    def __init__(self, machine: ClusterMachine, internal_topics: Iterable[NewTopic]) -> None:
        self._machine = machine
        self._internal_topics = {topic.name: topic for topic in internal_topics}
        assert self._internal_topics.keys() == {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}
        self._deleted: dict[str, None] = {}
        self._logged: set[str] = set()

    @property
    def view(self) -> ClusterView:
        return self._machine.view

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether any of the topics does not exist."""
        known = self.view.topics
        return any(name not in known for name in names)

    def will_be_deleted(self, names: Iterable[str]) -> None:
        """Told before a deletion; see `take_deleted`."""
        for name in names:
            self._deleted.pop(name, None)
            self._deleted[name] = None
        while len(self._deleted) > DELETED_KEPT_MAX:
            del self._deleted[next(iter(self._deleted))]

    def take_deleted(self, names: Iterable[str]) -> list[str]:
        """Those of the topics that were deleted and not asked for since; asking for them ends that."""
        known = self.view.topics
        taken = [name for name in names if name in self._deleted and name not in known]
        for name in taken:
            del self._deleted[name]
        return taken

    def creating_missing(self, names: Iterable[str]) -> Work[None]:
        """Creates those of the topics that do not exist, with the broker's defaults, if that can be."""
        known = self.view.topics
        wanted = [
            self._internal_topics.get(name) or NewTopic(name)
            for name in names
            if name not in known and name not in _NEVER_CREATED and is_legal(name)
        ]
        # The answer has to come while its client still waits; for the rest it asks again.
        wanted = wanted[:CREATED_AT_ONCE_MAX]
        for name, error in (yield from self.creating(wanted)).items():
            if name not in self._logged and len(self._logged) < _LOGGED_MAX:
                self._logged.add(name)
                logger.warning("a client asks for topic %s, which cannot be created: %s", name, error)

    def creating(self, topics: Sequence[NewTopic]) -> Work[dict[str, KafkaError]]:
        """Creates those of the topics that do not exist, as they are given; the refusals by name."""
        known = self.view.topics
        missing = [topic for topic in topics if topic.name not in known]
        if not missing:
            return {}
        try:
            results = yield from self._machine.creating_topics(missing)
        except KafkaError as error:
            return dict.fromkeys((topic.name for topic in missing), error)
        return {result.name: result.error for result in results if result.error is not None}
