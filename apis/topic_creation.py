"""Topics that come to be because somebody needs them: auto-created ones, `__consumer_offsets` and
`__transaction_state`.

Creation is a `Work`: the machine writes to the metadata store, the server makes the logs, the new view is
published. At its end the caller answers from the view that there is then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.coordinator.cluster import NewTopic
from odradek.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, is_legal
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.coordinator.cluster import ClusterMachine, ClusterView
    from odradek.wire.work import Work

OFFSETS_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": "104857600",
    "compression.type": "producer",
}
"""GroupCoordinatorService.groupMetadataTopicConfigs; `segment.bytes` is `offsets.topic.segment.bytes`."""
TRANSACTIONS_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "min.insync.replicas": "2",
    "segment.bytes": "104857600",
    "unclean.leader.election.enable": "false",
}
"""TransactionCoordinator.transactionStateTopicConfigs; `min.insync.replicas` is
`transaction.state.log.min.isr`, `segment.bytes` is `transaction.state.log.segment.bytes`."""
CREATED_AT_ONCE_MAX = 500
"""Topics that one request brings about: each costs a directory and some files, and the client waits."""
_WRITTEN_BY_BROKERS = frozenset({"__share_group_state"})


class TopicCreation:
    """Creates what is missing; `internal_topics` says how those of coordinators are to be made."""

    def __init__(self, machine: ClusterMachine, internal_topics: Iterable[NewTopic]) -> None:
        self._machine = machine
        self._internal_topics = {topic.name: topic for topic in internal_topics}
        assert self._internal_topics.keys() == {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}

    @property
    def view(self) -> ClusterView:
        return self._machine.view

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether any of the topics does not exist."""
        known = self.view.topics
        return any(name not in known for name in names)

    def creating_missing(self, names: Iterable[str]) -> Work[dict[str, KafkaError]]:
        """Creates those of the topics that do not exist, with the broker's defaults; the refusals by name."""
        known = self.view.topics
        missing = [name for name in names if name not in known]
        if not missing:
            return {}
        refusals = {
            name: KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in missing
            if name in _WRITTEN_BY_BROKERS
        }
        wanted = [
            self._internal_topics.get(name) or NewTopic(name) for name in missing if name not in refusals
        ]
        if len(wanted) > CREATED_AT_ONCE_MAX:
            # The answer has to come while its client still waits; for the rest it asks again.
            later = [new.name for new in wanted if is_legal(new.name)][CREATED_AT_ONCE_MAX:]
            refusals.update(dict.fromkeys(later, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            wanted = [new for new in wanted if new.name not in refusals]
        try:
            results = yield from self._machine.creating_topics(wanted)
        except KafkaError as error:
            # Nothing was created; clients ask again.
            return dict.fromkeys(missing, error)
        refusals.update({result.name: result.error for result in results if result.error is not None})
        return refusals

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
