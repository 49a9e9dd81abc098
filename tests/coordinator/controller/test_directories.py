"""Directories of replicas, and directories that fail."""

import pytest

from odradek.coordinator.cluster.view import NO_LEADER, UNASSIGNED
from odradek.coordinator.controller.directories import assign_replicas
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from tests.coordinator.controller.cluster import Cluster, T, disk


def two_disks():
    cluster = Cluster(2)
    cluster.add_broker(1, log_dirs=[disk(1), disk(1, 1)])
    return cluster


def assigned(cluster, wanted, broker_epoch=None):
    """Error names by directory, topic and partition, of a decision that is carried out."""
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=cluster.broker(1).epoch if broker_epoch is None else broker_epoch,
        directories=[
            DirectoryData(
                id=directory,
                topics=[
                    TopicData(
                        topic_id=topic_id, partitions=[PartitionData(partition_index=one) for one in indexes]
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory, topics in wanted.items()
        ],
    )
    decision = assign_replicas(cluster.view, cluster.defaults, request)
    cluster.append(*decision.records)
    return {
        (directory.id, topic.topic_id, one.partition_index): ErrorCode(one.error_code).name
        for directory in decision.response.directories
        for topic in directory.topics
        for one in topic.partitions
    }


def test_a_replica_is_where_its_broker_says():
    cluster = two_disks()
    cluster.add_topic({"replicas": [1, 2], "directories": [UNASSIGNED, disk(2)]})
    assert assigned(cluster, {disk(1, 1): {T: [0]}}) == {(disk(1, 1), T, 0): "NONE"}
    one = cluster.partition()
    assert (one.directories, one.partition_epoch, one.leader_epoch) == ((disk(1, 1), disk(2)), 51, 5)
    assigned(cluster, {disk(1, 1): {T: [0]}})
    assert cluster.partition().partition_epoch == 51


def test_each_replica_has_its_own_error():
    cluster = two_disks()
    cluster.add_topic({"replicas": [2]})
    other = b"u" * 16
    assert assigned(cluster, {disk(1): {T: [0, 1, -1], other: [0]}}) == {
        (disk(1), T, 0): "NOT_LEADER_OR_FOLLOWER",
        (disk(1), T, 1): "UNKNOWN_TOPIC_OR_PARTITION",
        (disk(1), T, -1): "UNKNOWN_TOPIC_OR_PARTITION",
        (disk(1), other, 0): "UNKNOWN_TOPIC_ID",
    }


def test_a_replica_in_a_directory_that_has_failed_leads_no_more():
    cluster = two_disks()
    cluster.add_topic({"replicas": [1, 2]})
    assert assigned(cluster, {disk(1, 7): {T: [0]}}) == {(disk(1, 7), T, 0): "NONE"}
    one = cluster.partition()
    assert (one.directories[0], one.leader, one.isr) == (disk(1, 7), 2, (2,))


def test_a_replica_that_leaves_a_failed_directory_may_lead():
    cluster = two_disks()
    waiting = {"replicas": [1], "isr": [], "leader": -1, "eligible_leader_replicas": [1]}
    cluster.add_topic({**waiting, "directories": [disk(1, 7)]})
    assigned(cluster, {disk(1, 1): {T: [0]}})
    assert cluster.partition().leader == 1


@pytest.mark.parametrize(
    ("level", "epoch", "error"), [(16, None, "UNSUPPORTED_VERSION"), (33, 0, "STALE_BROKER_EPOCH")]
)
def test_an_assignment_is_refused(level, epoch, error):
    cluster = Cluster(1, level=level, has_elr=False)
    with pytest.raises(KafkaError) as refused:
        assigned(cluster, {}, epoch)
    assert refused.value.code.name == error


def test_a_directory_that_fails_takes_its_partitions_out():
    cluster = two_disks()
    cluster.add_topic(
        {"replicas": [1, 2], "directories": [disk(1), disk(2)]},
        {"replicas": [1, 2], "directories": [disk(1, 1), disk(2)]},
        {"replicas": [1], "directories": [disk(1)]},
    )
    cluster.beat(1, offline_log_dirs=[disk(1), disk(2)])
    assert cluster.broker(1).directories == (disk(1, 1),)
    assert not cluster.broker(1).is_fenced
    assert [one.leader for one in map(cluster.partition, range(3))] == [2, 1, NO_LEADER]
    assert cluster.partition().isr == (2,)
    assert cluster.beat(1, offline_log_dirs=[disk(1)]).records == []


def test_a_broker_that_comes_back_with_a_failed_directory_leads_nothing_there():
    cluster = Cluster(2)
    cluster.add_broker(1, log_dirs=[disk(1), disk(1, 1)], fenced=True)
    waiting = {"replicas": [1], "isr": [], "leader": -1, "eligible_leader_replicas": [1]}
    cluster.add_topic(
        {**waiting, "directories": [disk(1)]},
        {**waiting, "directories": [disk(1, 1)]},
    )
    cluster.beat(1, offline_log_dirs=[disk(1)])
    assert [one.leader for one in map(cluster.partition, range(2))] == [NO_LEADER, 1]


def test_failed_directories_need_a_level():
    cluster = Cluster(level=16, has_elr=False)
    cluster.add_broker(1)
    assert cluster.beat(1, offline_log_dirs=[disk(1)]).records == []
