"""The controller of a node alone, which is the only broker of its cluster, too, in the same process.

The node has no session: nobody fences it, and it registers when its addresses, features or log directories
are other than the log has them. What is true for this process only is no record: replicas whose disk has
failed, and which of the node's log directories take new replicas.

A deleted topic is in the log before its directories are renamed. So topics that the log removes after its
newest snapshot may have directories that a kill has left; a snapshot waits for their end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.features import DIRECTORIES_SINCE, METADATA_VERSION
from odradek.coordinator.cluster.placement import Candidates, UsableBroker
from odradek.coordinator.cluster.view import (
    Broker,
    ClusterChange,
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.controller.draft import RecordDraft
from odradek.coordinator.controller.log import LoadedBatch
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.controller.records import broker_record
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import AnyRecord, MetadataRecord, RemoveTopicRecord
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.coordinator.controller.batch import PartitionDefaults
    from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class LoneController(Controller):
    """See the module. A `ControlPlane`, too."""

    deletions: set[bytes]
    """Ids of deleted topics whose directories may still be there."""

    def load(self) -> None:
        self.deletions = set()
        self._offline = frozenset[tuple[str, int]]()
        super().load()
        # A transaction that was aborted has deleted nothing.
        self.deletions.difference_update(self.view.topic_names)
        self.publisher.subscribe(self._note_deletions)

    def _batches(self) -> Iterator[LoadedBatch]:
        for batch in super()._batches():
            yield batch if batch.is_snapshot else batch._replace(records=self._noted(batch.records))

    def _noted(self, records: Iterable[AnyRecord]) -> Iterator[AnyRecord]:
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                self.deletions.add(record.topic_id)
            yield record

    def _note_deletions(self, view: ClusterView, change: ClusterChange) -> None:
        self.deletions.update(topic.topic_id for topic in change.deleted)

    def finish_deletion(self, topic_id: bytes) -> None:
        """The directories of a deleted topic are out of sight."""
        self.deletions.discard(topic_id)

    # This broker

    def register(self, me: Broker, defaults: Callable[[], PartitionDefaults]) -> None:
        """Register this process as the only broker that is alive, and let it lead what it may.

        `me` needs no epoch and no incarnation. Raises KafkaError when that cannot be made durable.
        """

        self._partition_defaults = defaults

        def edit(draft: RecordDraft) -> Work[None]:
            me_now = replace(me, epoch=draft.first_offset, incarnation_id=self.new_id())
            draft.add_records(joining(self.view, defaults, me_now))
            return
            yield None

        finish(self.changing(edit))

    def unregistering(self, request: UnregisterBrokerRequest) -> Work[UnregisterBrokerResponse]:
        """Forget another broker, of a cluster that there was before. Refuses with INVALID_REQUEST for this
        one, and with BROKER_ID_NOT_REGISTERED."""
        from odradek.coordinator.controller.brokers import unregister_broker

        if request.broker_id == self._node_id:
            # Kafka would unregister it: it serves nothing then until it is started again.
            message = f"Broker {request.broker_id} is running, and the only one: stop it instead."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)

        def edit(draft: RecordDraft) -> Work[UnregisterBrokerResponse]:
            decision = unregister_broker(self.view, self._partition_defaults(), request)
            draft.add_records(decision.records)
            return decision.response
            yield None

        return (yield from self.changing(edit))

    def set_offline(
        self, node_id: int, partitions: Iterable[tuple[str, int]], directories: Iterable[str] = ()
    ) -> None:
        """Sets the partitions whose replicas on this node are offline now, since their disk has failed. No
        record: each start finds it again, and the log may be on that disk.
        """
        before, self._offline = self._offline, frozenset(partitions)
        changed = self._with_offline({name for name, _ in before | self._offline}, self.view)
        if changed:
            topics = {**self.view.topics, **changed}
            self.publisher.publish(replace(self.view, topics=topics), ClusterChange())

    def _shown(self, view: ClusterView) -> ClusterView:
        if not self._offline:
            return view
        changed = self._with_offline({name for name, _ in self._offline}, view)
        return replace(view, topics={**view.topics, **changed}) if changed else view

    def _with_offline(self, names: Iterable[str], view: ClusterView) -> dict[str, TopicView]:
        """The topics that are other, with the partitions that are offline now."""
        changed = {}
        for name in names:
            topic = view.topics.get(name)
            if topic is None:
                continue
            partitions = tuple(self._as_now(name, one, view) for one in topic.partitions)
            if partitions != topic.partitions:
                changed[name] = replace(topic, partitions=partitions)
        return changed

    def _as_now(self, name: str, partition: PartitionView, view: ClusterView) -> PartitionView:
        me = view.registrations.get(self._node_id)
        is_offline = (name, partition.index) in self._offline or (
            me is not None and not me.is_online(partition.directory_of(self._node_id))
        )
        if (self._node_id in partition.offline) == is_offline:
            return partition
        others = tuple(one for one in partition.offline if one != self._node_id)
        return partition._replace(offline=(*others, self._node_id) if is_offline else others)

    def _candidates(self) -> Candidates:
        """Brokers with a log directory that is not cordoned, also for a written assignment (Kafka 4.4)."""
        taking = [one for one in sorted(self.view.brokers) if self.publisher.logs.takes_replicas(one)]
        return Candidates([UsableBroker(one, self.view.brokers[one].rack) for one in taking], taking)


def joining(view: ClusterView, defaults: Callable[[], PartitionDefaults], me: Broker) -> list[MetadataRecord]:
    """Records that make `me` the one broker that is alive: its registration, if it differs from the one that
    there is; the fencing of others; and the elections that follow. None after a stop of the same node.
    """
    known = view.registrations.get(me.node_id)
    level = view.features.get(METADATA_VERSION, 0)
    records: list[MetadataRecord] = []
    if known is None or not _is_registered(known, me, level):
        view = replace(view, registrations={**view.registrations, me.node_id: me})
        records.append(broker_record(me, level))
    others = [
        broker
        for broker in view.registrations.values()
        if broker.node_id != me.node_id and not broker.is_fenced
    ]
    if others or not _leads_all(view, me.node_id):
        records += _elections(view, defaults(), me.node_id, others)
    return records


def _leads_all(view: ClusterView, node_id: int) -> bool:
    return all(one.leader == node_id for topic in view.topics.values() for one in topic.partitions)


def _elections(
    view: ClusterView, defaults: PartitionDefaults, node_id: int, gone: Collection[Broker]
) -> list[MetadataRecord]:
    """Fence the brokers that are gone, and let the node lead what it may: it is in the ISR, or eligible, or
    has led as the last one and was killed since, as a worker (`begin_incarnation`)."""
    # Most starts change no leader.
    from odradek.coordinator.controller.batch import Batch
    from odradek.coordinator.controller.elections import fence_brokers, update_leaders

    batch = Batch(view, defaults)
    if gone:
        fence_brokers(batch, gone)
    mine = batch.places(
        lambda one: one.leader != node_id and node_id in (*one.isr, *one.elr, *one.last_known_elr)
    )
    update_leaders(batch, mine)
    return batch.records


def _is_registered(known: Broker, me: Broker, metadata_version: int) -> bool:
    """Whether a registration says the same, but for the process."""
    return known == replace(
        me,
        epoch=known.epoch,
        incarnation_id=known.incarnation_id,
        directories=me.directories if metadata_version >= DIRECTORIES_SINCE else (),
        # Nothing is cordoned in the log: the process knows what is.
        cordoned_directories=None if known.cordoned_directories is None else (),
    )
