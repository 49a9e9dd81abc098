"""Changes of in-sync replicas that the leader of a partition requests (AlterPartition).

The change counts only if the leader knows the newest state of the partition: its leader epoch and its
partition epoch. Who comes into the ISR is registered, neither fenced nor shutting down, and the same process
that the leader has in mind (KIP-841, KIP-903). The change may complete a reassignment.

Difference from Kafka: a leader recovery state that does not exist is refused with INVALID_REQUEST; in Kafka
it is an unexpected exception.

Source: ReplicationControlManager.alterPartition of Kafka 4.4.
"""

from __future__ import annotations

from odradek.coordinator.cluster.view import RECOVERED, RECOVERING, ClusterView, PartitionView
from odradek.coordinator.controller.batch import Batch, Decision, PartitionDefaults, Place
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
)

UNKNOWN_EPOCH = -1


def alter_partition(
    view: ClusterView, defaults: PartitionDefaults, request: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    """Change partitions as their leader wants; the response has their states after that.

    Refuses with STALE_BROKER_EPOCH.
    """
    batch = Batch(view, defaults)
    batch.broker(request.broker_id, request.broker_epoch)
    response = AlterPartitionResponse(error_code=ErrorCode.NONE, topics=[])
    for asked in request.topics:
        topic = view.topic_by_id(asked.topic_id)
        altered = AlteredTopic(topic_id=asked.topic_id, partitions=[])
        response.topics.append(altered)
        for data in asked.partitions:
            index = data.partition_index
            partition = None if topic is None else batch.partition(topic, index)
            if topic is None:
                result = _refused(index, ErrorCode.UNKNOWN_TOPIC_ID)
            elif partition is None:
                result = _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                result = _alter(batch, request.broker_id, Place(topic, partition), data)
            altered.partitions.append(result)
    return Decision(batch.records, response)


def _alter(batch: Batch, leader: int, place: Place, data: PartitionData) -> AlteredPartition:
    before = place.partition
    new_isr = _new_isr(data)
    error = _error(batch.view, leader, before, data, new_isr)
    if error is not ErrorCode.NONE:
        return _refused(before.index, error)
    builder = batch.builder(place)
    builder.election = builder.rules.election
    builder.isr = tuple(one.broker_id for one in new_isr)
    builder.leader_recovery_state = data.leader_recovery_state
    batch.change(builder)
    after = batch.partition(place.topic, before.index) or before
    if after.leader != leader:
        return _refused(before.index, ErrorCode.NEW_LEADER_ELECTED)
    return AlteredPartition(
        partition_index=before.index,
        error_code=ErrorCode.NONE,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )


def _new_isr(data: PartitionData) -> list[BrokerState]:
    """With the epochs of the brokers, from version 3 on."""
    if data.new_isr_with_epochs:
        return data.new_isr_with_epochs
    return [BrokerState(broker_id=one, broker_epoch=UNKNOWN_EPOCH) for one in data.new_isr]


def _error(
    view: ClusterView, leader: int, partition: PartitionView, data: PartitionData, new_isr: list[BrokerState]
) -> ErrorCode:
    isr = [one.broker_id for one in new_isr]
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The leader has heard of a newer controller.
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if not _may_recover(partition, data.leader_recovery_state, isr):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(view, one) for one in new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _may_recover(partition: PartitionView, state: int, isr: list[int]) -> bool:
    """A leader that still recovers from an unclean election is alone in the ISR, and never begins to recover
    by itself."""
    if state == RECOVERING:
        return len(isr) == 1 and partition.leader_recovery_state == RECOVERING
    return state == RECOVERED


def _is_eligible(view: ClusterView, replica: BrokerState) -> bool:
    broker = view.registrations.get(replica.broker_id)
    return broker is not None and broker.is_active and replica.broker_epoch in (UNKNOWN_EPOCH, broker.epoch)


def _refused(index: int, error: ErrorCode) -> AlteredPartition:
    return AlteredPartition(
        partition_index=index,
        error_code=error,
        leader_id=0,
        leader_epoch=0,
        isr=[],
        leader_recovery_state=RECOVERED,
        partition_epoch=0,
    )
