"""Elections: which partitions change when a broker comes, goes or stops, and elections that are asked for.

A broker that goes leaves the ISR of its partitions, and another in-sync replica leads; one that comes may
lead partitions that have no leader. An unclean election needs `unclean.leader.election.enable` of the topic,
or a request (ElectLeaders).

`elect_preferred_leaders` and `elect_unclean_leaders` are for the controller's clock: every
`leader.imbalance.check.interval.seconds` with `auto.leader.rebalance.enable`, and every
`unclean.leader.election.interval.ms`. Kafka's controllers know no percentage of imbalance: each partition
goes back to its first replica, where that is in sync.

Differences from Kafka: brokers whose sessions end at the same moment are fenced in one decision, so that none
of them is elected in between. One election may change more than 10,000 partitions.

Source: ReplicationControlManager of Kafka 4.4 (generateLeaderAndIsrUpdates, handleBroker..., electLeaders).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import NamedTuple

from odradek.coordinator.cluster.view import NO_LEADER, Broker, ClusterView
from odradek.coordinator.controller.batch import Batch, Decision, PartitionDefaults, Place
from odradek.coordinator.controller.partition_change import Election
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from odradek.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)

PREFERRED, UNCLEAN = 0, 1
"""Types of election in ElectLeaders."""
ELECTIONS_MAX = 1_000
"""Partitions that change in one decision by the controller's clock."""
FENCED, UNFENCED, IN_SHUTDOWN = 1, -1, 1
"""Values in BrokerRegistrationChangeRecord."""


# --- Brokers ---


def fence_brokers(batch: Batch, brokers: Collection[Broker]) -> None:
    """These brokers lead nothing, and are in no ISR but alone."""
    _leave(batch, frozenset(broker.node_id for broker in brokers))
    for broker in brokers:
        batch.add(
            BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=FENCED)
        )


def unfence_broker(batch: Batch, broker: Broker) -> None:
    """The broker may lead partitions that have no leader."""
    batch.add(
        BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=UNFENCED)
    )
    update_leaders(batch, batch.places(lambda one: one.leader == NO_LEADER), joins=broker.node_id)


def begin_controlled_shutdown(batch: Batch, broker: Broker) -> None:
    """The broker hands its leaderships over."""
    if not broker.in_controlled_shutdown:
        batch.add(
            BrokerRegistrationChangeRecord(
                broker_id=broker.node_id, broker_epoch=broker.epoch, in_controlled_shutdown=IN_SHUTDOWN
            )
        )
    _leave(batch, frozenset((broker.node_id,)))


def begin_incarnation(batch: Batch, broker_id: int, *, was_clean: bool) -> None:
    """The broker's process before has ended. After an unclean shutdown the broker may lack what it had: with
    eligible leader replicas it is not among these, and in no ISR."""
    if not batch.has_elr or was_clean:
        return _leave(batch, frozenset((broker_id,)))
    leaving = frozenset((broker_id,))
    update_leaders(batch, _with_member(batch, leaving), leaving=leaving, are_lost=True)
    update_leaders(batch, _eligible(batch, broker_id), leaving=leaving, are_lost=True)


def end_registration(batch: Batch, broker: Broker) -> None:
    """The broker is no member of the cluster any more."""
    leaving = frozenset((broker.node_id,))
    _leave(batch, leaving)
    update_leaders(batch, _eligible(batch, broker.node_id), leaving=leaving)
    batch.add(UnregisterBrokerRecord(broker_id=broker.node_id, broker_epoch=broker.epoch))


def _leave(batch: Batch, leaving: frozenset[int]) -> None:
    update_leaders(batch, _with_member(batch, leaving), leaving=leaving)


def _with_member(batch: Batch, broker_ids: frozenset[int]) -> Iterable[Place]:
    """Partitions that have one of these brokers in their ISR; a leader is always in it."""
    if len(broker_ids) == 1:
        (broker_id,) = broker_ids
        return batch.places(lambda one: broker_id in one.isr)
    return batch.places(lambda one: not broker_ids.isdisjoint(one.isr))


def _eligible(batch: Batch, broker_id: int) -> Iterable[Place]:
    return batch.places(lambda one: broker_id in one.elr)


def update_leaders(
    batch: Batch,
    places: Iterable[Place],
    *,
    leaving: frozenset[int] = frozenset(),
    joins: int | None = None,
    are_lost: bool = False,
) -> None:
    """Let each of the partitions go on without the brokers that leave, and perhaps with the one that joins.

    `are_lost`: those that leave may lack records that they had.
    """

    @cache
    def may_lead(broker_id: int, directory: bytes) -> bool:
        if broker_id in leaving:
            return False
        broker = batch.view.registrations.get(broker_id)
        return broker is not None and (broker_id == joins or broker.is_active) and broker.is_online(directory)

    for place in places:
        builder = batch.builder(place, may_lead)
        builder.election = builder.rules.election
        if are_lost:
            builder.lost = leaving
        builder.isr = tuple([one for one in place.partition.isr if one not in leaving])
        batch.change(builder)


# --- By the controller's clock ---


class Elections(NamedTuple):
    """Outcome of a look at all partitions."""

    records: list[MetadataRecord]
    has_more: bool
    """Whether to look again soon: there may be more than one decision can change."""


def elect_preferred_leaders(view: ClusterView, defaults: PartitionDefaults) -> Elections:
    """Lead partitions by their first replicas."""
    batch = Batch(view, defaults)
    for place in batch.places(lambda one: one.leader != one.replicas[0]):
        _elect(batch, place, Election.PREFERRED)
        if len(batch.records) >= ELECTIONS_MAX:
            break
    return Elections(batch.records, len(batch.records) >= ELECTIONS_MAX)


def elect_unclean_leaders(view: ClusterView, defaults: PartitionDefaults) -> Elections:
    """Lead partitions without a leader by any replica that is online, where the topic allows it."""
    batch = Batch(view, defaults)
    for place in batch.places(lambda one: one.leader == NO_LEADER):
        if batch.rules(place.topic).is_unclean:
            _elect(batch, place, Election.UNCLEAN)
            if len(batch.records) >= ELECTIONS_MAX:
                break
    return Elections(batch.records, len(batch.records) >= ELECTIONS_MAX)


# --- By request ---


def elect_leaders(
    view: ClusterView, defaults: PartitionDefaults, request: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    """Response to ElectLeaders. For all partitions (null) each topic is in it, with the partitions that
    needed an election. Refuses with INVALID_REQUEST: no such type of election."""
    batch = Batch(view, defaults)
    response = ElectLeadersResponse(replica_election_results=[])
    if request.topic_partitions == []:
        return Decision(batch.records, response)
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    requested = request.topic_partitions
    if requested is None:
        requested = [
            TopicPartitions(topic=name, partitions=list(range(len(topic.partitions))))
            for name, topic in view.topics.items()
        ]
    for topic in requested:
        results = [_elected(batch, topic.topic, index, request.election_type) for index in topic.partitions]
        if request.topic_partitions is None:
            results = [one for one in results if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        response.replica_election_results.append(
            ReplicaElectionResult(topic=topic.topic, partition_result=results)
        )
    return Decision(batch.records, response)


def _elected(batch: Batch, name: str, index: int, election_type: int) -> PartitionResult:
    try:
        _elect_by_request(batch, name, index, election_type)
    except KafkaError as error:
        return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
    return PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)


def _elect_by_request(batch: Batch, name: str, index: int, election_type: int) -> None:
    topic = batch.view.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = batch.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    place = Place(topic, partition)
    if election_type == PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        if not _elect(batch, place, Election.PREFERRED):
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    else:
        if partition.leader != NO_LEADER:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        if not _elect(batch, place, Election.UNCLEAN):
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)


def _elect(batch: Batch, place: Place, election: Election) -> bool:
    """Whether anything has changed."""
    builder = batch.builder(place)
    builder.election = election
    return batch.change(builder)
