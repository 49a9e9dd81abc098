"""Log directories: where the replicas of a broker are, and directories that fail.

A broker reports its replicas' directories (AssignReplicasToDirs), and failed directories with its
heartbeats. A replica in a directory that is not among the broker's does not lead, and leaves the ISR.

Source: ReplicationControlManager of Kafka 4.4 (handleAssignReplicasToDirs, handleDirectoriesOffline);
KIP-858.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek.coordinator.cluster.features import DIRECTORIES_SINCE
from odradek.coordinator.cluster.view import UNASSIGNED, Broker, ClusterView
from odradek.coordinator.controller.batch import Batch, Decision, PartitionDefaults, Place
from odradek.coordinator.controller.elections import update_leaders
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from odradek.wire.messages.metadata_records import BrokerRegistrationChangeRecord

RESERVED_IDS = 100
"""Ids below that are no directory's."""


def is_reserved(directory: bytes) -> bool:
    return int.from_bytes(directory, "big") < RESERVED_IDS


def fail_directories(batch: Batch, broker: Broker, offline: Collection[bytes]) -> None:
    """The broker cannot use these directories any more; those that are not its own are not looked at."""
    failed = frozenset(broker.directories).intersection(offline)
    if not failed:
        return
    leaving = frozenset((broker.node_id,))
    update_leaders(batch, batch.places(lambda one: not failed.isdisjoint(one.directories)), leaving=leaving)
    batch.add(
        BrokerRegistrationChangeRecord(
            broker_id=broker.node_id,
            broker_epoch=broker.epoch,
            log_dirs=[directory for directory in broker.directories if directory not in failed],
        )
    )


def assign_replicas(
    view: ClusterView, defaults: PartitionDefaults, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    """Note the directories of a broker's replicas.

    Refuses with UNSUPPORTED_VERSION (metadata.version below 3.7-IV2) or STALE_BROKER_EPOCH.
    """
    batch = Batch(view, defaults)
    if batch.metadata_version < DIRECTORIES_SINCE:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = batch.broker(request.broker_id, request.broker_epoch)
    response = AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=[])
    lost: dict[tuple[bytes, int], None] = {}
    """Replicas in directories that are offline."""
    for wanted in request.directories:
        directory = AssignedDirectory(id=wanted.id, topics=[])
        response.directories.append(directory)
        for asked in wanted.topics:
            topic = AssignedTopic(topic_id=asked.topic_id, partitions=[])
            directory.topics.append(topic)
            for one in asked.partitions:
                code = _assign(batch, broker, asked.topic_id, one.partition_index, wanted.id)
                if code is ErrorCode.NONE and not broker.is_online(wanted.id):
                    lost[asked.topic_id, one.partition_index] = None
                topic.partitions.append(
                    AssignedPartition(partition_index=one.partition_index, error_code=code)
                )
    places = [place for topic_id, index in lost if (place := _place(batch, topic_id, index)) is not None]
    update_leaders(batch, places, leaving=frozenset((broker.node_id,)))
    return Decision(batch.records, response)


def _assign(batch: Batch, broker: Broker, topic_id: bytes, index: int, directory: bytes) -> ErrorCode:
    if batch.view.topic_by_id(topic_id) is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    place = _place(batch, topic_id, index)
    if place is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.node_id not in place.partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    builder = batch.builder(place)
    if not broker.is_online(directory):
        # It leads as long as it did: what follows from the new directory comes afterwards, with the ISR.
        known = dict(zip(place.partition.replicas, place.partition.directories, strict=False))
        may_lead = builder.may_lead
        builder.may_lead = lambda node_id, _: may_lead(node_id, known.get(node_id, UNASSIGNED))
    builder.directories = {broker.node_id: directory}
    batch.change(builder)
    return ErrorCode.NONE


def _place(batch: Batch, topic_id: bytes, index: int) -> Place | None:
    topic = batch.view.topic_by_id(topic_id)
    partition = None if topic is None else batch.partition(topic, index)
    return None if topic is None or partition is None else Place(topic, partition)
