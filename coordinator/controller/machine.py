"""The controller: requests become records of the metadata log, and the records become the next view.

A change is judged against the newest view (`coordinator/cluster/decisions.py`), appended to the `MetadataLog`
as a whole, replayed into the `MetadataImage`, and published. It counts once it is in the log. New partitions
of this node are made before the view has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from odradek.coordinator.cluster.changes import (
    DEFAULTS,
    PRODUCER_ID_BLOCK_SIZE,
    ConfigCheck,
    TopicDefaults,
    accept_configs,
)
from odradek.coordinator.cluster.decisions import Decisions
from odradek.coordinator.cluster.draft import Draft
from odradek.coordinator.cluster.features import DIRECTORIES_SINCE, FEATURES, METADATA_VERSION
from odradek.coordinator.cluster.metadata_image import ImageState, MetadataImage
from odradek.coordinator.cluster.placement import Candidates, UsableBroker
from odradek.coordinator.cluster.view import MIGRATING, ClusterView, PartitionView
from odradek.coordinator.controller.draft import RecordDraft
from odradek.coordinator.controller.log import LoadedBatch, MetadataLog
from odradek.coordinator.controller.record_versions import TRANSACTIONS_SINCE
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    MetadataRecord,
    ProducerIdsRecord,
)
from odradek.wire.work import Work

RECORDS_PER_STEP = 500
PRODUCER_IDS_MAX = 2**63 - 1

R = TypeVar("R")


class Controller(Decisions):
    """The only writer of a metadata log. Call `load` once."""

    def __init__(
        self,
        log: MetadataLog,
        *,
        node_id: int,
        cluster_id: str,
        new_id: Callable[[], bytes],
        defaults: TopicDefaults = DEFAULTS,
        check_topic_configs: ConfigCheck = accept_configs,
        check_broker_configs: ConfigCheck = accept_configs,
        check_group_configs: ConfigCheck = accept_configs,
    ) -> None:
        """`new_id` returns 16 bytes that no other call returns."""
        super().__init__(
            cluster_id=cluster_id,
            new_id=new_id,
            defaults=defaults,
            check_topic_configs=check_topic_configs,
            check_broker_configs=check_broker_configs,
            check_group_configs=check_group_configs,
        )
        self._log = log
        self._node_id = node_id
        self._image = MetadataImage(node_id, cluster_id)
        self._is_writing = False

    @property
    def metadata_version(self) -> int:
        """The finalized level; a log without one is that of the oldest."""
        return self.view.features.get(METADATA_VERSION, FEATURES[METADATA_VERSION].lowest)

    @property
    def state(self) -> ImageState:
        """All that the log up to now says; not while a change is being made."""
        return self._image.state

    def load(self) -> None:
        """Build the first view from the log; subscribers are not called. A transaction that a crash has left
        open is aborted. Raises KafkaError when that cannot be appended, and InconsistentMetadata for records
        that do not fit to each other.
        """
        image = self._image
        for batch in self._batches():
            for record in batch.records:
                image.replay(record)
            image.end_batch(batch.last_offset)
        if image.is_in_transaction:
            abort = AbortTransactionRecord(reason="Controller failover")
            # The level may be in the transaction; it is one that has transactions.
            last_offset = self._log.append([abort], TRANSACTIONS_SINCE)
            image.replay(abort)
            image.end_batch(last_offset)
        image.publish()
        self.publisher.view = image.view
        self._note_names((), list(image.view.topics.values()))

    def changing(self, edit: Callable[[RecordDraft], Work[R]]) -> Work[R]:
        """Make a change as `Decisions` does, of a draft that also takes records of others."""
        with self._one_at_a_time():
            draft = self._draft()
            result = yield from edit(draft)
            yield from self._committing(draft)
            return result

    def allocate_producer_ids(self, broker_id: int | None = None, broker_epoch: int = -1) -> range:
        """A block of producer ids for a broker (None: of this node) that no broker gets twice, whatever
        crashes in between.

        Refuses with STALE_BROKER_EPOCH. While a change is being written it is refused with
        COORDINATOR_LOAD_IN_PROGRESS, as in Kafka while the next block is on its way; producers try again.
        """
        if broker_id is None:
            broker_id = self._node_id
        else:
            self._check_epoch(broker_id, broker_epoch)
        if self._is_writing:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The metadata is being written.")
        first = self._image.next_producer_id
        following = first + PRODUCER_ID_BLOCK_SIZE
        if following > PRODUCER_IDS_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
        broker = self.view.registrations.get(broker_id)
        record = ProducerIdsRecord(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            next_producer_id=following,
        )
        last_offset = self._log.append([record], self.metadata_version)
        self._image.replay(record)
        self._image.end_batch(last_offset)
        return range(first, following)

    def _check_epoch(self, broker_id: int, broker_epoch: int) -> None:
        broker = self.view.registrations.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            known = "is not registered" if broker is None else f"has the epoch {broker.epoch}"
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"Broker {broker_id} {known}, not the epoch {broker_epoch}."
            )

    # Inside

    def _draft(self) -> RecordDraft:
        return RecordDraft(self.view, self._log)

    def _commit(self, draft: Draft) -> Work[None]:
        assert isinstance(draft, RecordDraft)
        records = draft.records
        if not records:
            return
        self._is_writing = True
        try:
            last_offset = yield from self._log.appending(records, self.metadata_version)
            yield from self._replaying(records, last_offset)
        finally:
            self._is_writing = False

    def _replaying(self, records: Iterable[MetadataRecord], last_offset: int) -> Work[None]:
        image = self._image
        for number, record in enumerate(records, 1):
            image.replay(record)
            if number % RECORDS_PER_STEP == 0:
                yield None
        image.end_batch(last_offset)
        publication = image.publish()
        if publication is not None:
            view, change = publication
            yield from self.publisher.publishing(lambda _: self._shown(view), change)

    # For subclasses

    def _batches(self) -> Iterable[LoadedBatch]:
        """All batches, as they are loaded."""
        return self._log.batches()

    def _shown(self, view: ClusterView) -> ClusterView:
        """A view that the records make, as it is published."""
        return view

    def _candidates(self) -> Candidates:
        taking = [broker for _, broker in sorted(self.view.registrations.items()) if broker.takes_replicas]
        return Candidates(
            [
                UsableBroker(broker.node_id, broker.rack, broker.is_fenced)
                for broker in taking
                if not broker.in_controlled_shutdown
            ],
            {broker.node_id for broker in taking},
        )

    def _new_partition(
        self, index: int, replicas: tuple[int, ...], without_leader: ErrorCode
    ) -> PartitionView:
        brokers = [self.view.registrations[one] for one in replicas]
        isr = tuple(broker.node_id for broker in brokers if broker.is_active)
        if not isr:
            raise KafkaError(
                without_leader,
                f"Brokers {list(replicas)} of partition {index} are all fenced or in controlled shutdown.",
            )
        has_directories = self.metadata_version >= DIRECTORIES_SINCE
        return PartitionView(
            index,
            leader=isr[0],
            leader_epoch=0,
            replicas=replicas,
            isr=isr,
            directories=tuple(
                broker.default_directory if has_directories else MIGRATING for broker in brokers
            ),
        )

    def check_node(self, node_id: int) -> None:
        if node_id != self._node_id and node_id not in self.view.registrations:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} is registered.")
