"""Reassignment: replicas of a partition move to other brokers (KIP-455).

A reassignment makes the new replicas part of the assignment, after which they copy the log; once they are in
sync, with the next change of the partition, the replicas to be removed go (`partition_change.py`). It can be
replaced by another one, or be cancelled: the replicas are then those before it.

Difference from Kafka: a new reassignment says anew what is added and removed. Kafka keeps former additions
and removals where the new request has none of its own: it never completes a reassignment back to the first
replicas, and removes a replica that the new request keeps.

Source: ReplicationControlManager (alterPartitionReassignments, listPartitionReassignments),
PartitionReassignmentReplicas and PartitionReassignmentRevert of Kafka 4.4; KIP-860.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.coordinator.cluster.topics import check_manual_replicas
from odradek.coordinator.cluster.view import ClusterView, PartitionView
from odradek.coordinator.controller.batch import Batch, Decision, PartitionDefaults, Place
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_reassignments(
    view: ClusterView, defaults: PartitionDefaults, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Begin, replace and cancel reassignments; each partition has its own error in the response."""
    batch = Batch(view, defaults)
    if not request.topics:
        # Kafka's response before it looks at anything: an empty message.
        empty = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message="", responses=[])
        return Decision(batch.records, empty)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[],
    )
    for topic in request.topics:
        partitions = [
            _result(batch, topic.name, wanted, request.allow_replication_factor_change)
            for wanted in topic.partitions
        ]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return Decision(batch.records, response)


def _result(
    batch: Batch, name: str, wanted: ReassignablePartition, may_change_factor: bool
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    try:
        place = _place(batch, name, wanted.partition_index)
        if wanted.replicas is None:
            _cancel(batch, place)
        else:
            _reassign(batch, place, wanted.replicas, may_change_factor)
    except KafkaError as error:
        # Kafka sends no message for a code without an explanation.
        code, message = error.code, error.own_message
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=message
    )


def _place(batch: Batch, name: str, index: int) -> Place:
    topic = batch.view.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = batch.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return Place(topic, partition)


def is_reassigning(partition: PartitionView) -> bool:
    return bool(partition.adding or partition.removing)


def _reassign(batch: Batch, place: Place, replicas: list[int], may_change_factor: bool) -> None:
    brokers = [node_id for node_id, one in batch.view.registrations.items() if one.takes_replicas]
    target = check_manual_replicas(replicas, brokers, None)
    partition = place.partition
    if not may_change_factor:
        _check_replication_factor(partition, target)
    removing = sorted(set(partition.replicas) - set(target))
    former = set(partition.replicas) - set(partition.adding)
    builder = batch.builder(place)
    builder.replicas = (*target, *removing)
    builder.removing = tuple(removing)
    builder.adding = tuple(sorted(set(target) - former))
    batch.change(builder)


def _check_replication_factor(partition: PartitionView, target: tuple[int, ...]) -> None:
    """The factor is counted after the end of the reassignment that is under way, if there is one."""
    present = len(set(partition.replicas) - set(partition.removing))
    if present != len(target):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {present} to {len(target)}",
        )


def _cancel(batch: Batch, place: Place) -> None:
    partition = place.partition
    if not is_reassigning(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    builder = batch.builder(place)
    replicas = tuple(one for one in partition.replicas if one not in partition.adding)
    isr = tuple(one for one in partition.isr if one not in partition.adding)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica assignment: addingReplicas contains all replicas.",
        )
    if not isr:
        if not builder.rules.is_unclean:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {place.topic.name}:{partition.index}: it would "
                "need an unclean leader election.",
            )
        isr = replicas[:1]
    builder.election = builder.rules.election
    builder.isr, builder.replicas = isr, replicas
    builder.removing = builder.adding = ()
    batch.change(builder)


def list_reassignments(
    view: ClusterView, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Reassignments that are under way, of all topics (null) or of these partitions; others are left out."""
    response = ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
    if request.topics is None:
        asked: Iterable[tuple[str, Iterable[int]]] = (
            (name, range(len(topic.partitions))) for name, topic in view.topics.items()
        )
    else:
        asked = ((topic.name, topic.partition_indexes) for topic in request.topics)
    for name, indexes in asked:
        partitions = [view.partition(name, index) for index in indexes]
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=one.index,
                replicas=list(one.replicas),
                adding_replicas=list(one.adding),
                removing_replicas=list(one.removing),
            )
            for one in partitions
            if one is not None and is_reassigning(one)
        ]
        if ongoing:
            response.topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return response
