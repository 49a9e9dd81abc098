"""AlterPartition: each refusal, in Kafka's order, and the state in the response."""

import pytest

from odradek.coordinator.cluster.view import RECOVERED, RECOVERING
from odradek.coordinator.controller.in_sync import alter_partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.wire.messages.metadata_records import BrokerRegistrationChangeRecord
from tests.coordinator.controller.cluster import Cluster, T


def asked(cluster, *partitions, broker_id=1, broker_epoch=None, topic_id=T):
    """Results of the partitions, of a decision that is carried out."""
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=cluster.broker(broker_id).epoch if broker_epoch is None else broker_epoch,
        topics=[TopicData(topic_id=topic_id, partitions=list(partitions))],
    )
    decision = alter_partition(cluster.view, cluster.defaults, request)
    cluster.append(*decision.records)
    (topic,) = decision.response.topics
    assert topic.topic_id == topic_id
    return topic.partitions


def wanted(isr, epochs=None, **fields):
    with_epochs = [
        BrokerState(broker_id=one, broker_epoch=-1 if epochs is None else epochs[one]) for one in isr
    ]
    whole = {
        "partition_index": 0,
        "leader_epoch": 5,
        "partition_epoch": 50,
        "new_isr_with_epochs": with_epochs,
        "leader_recovery_state": RECOVERED,
        **fields,
    }
    return PartitionData(**whole)


def cluster_of(*broker_ids, **partition):
    cluster = Cluster(*broker_ids)
    cluster.add_topic({"replicas": list(broker_ids), **partition})
    return cluster


def test_the_response_has_the_state_after_the_change():
    cluster = cluster_of(1, 2, 3, isr=[1, 2])
    epochs = {one: cluster.broker(one).epoch for one in (1, 2, 3)}
    (found,) = asked(cluster, wanted([1, 2, 3], epochs))
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 1, 5)
    assert (found.isr, found.partition_epoch, found.leader_recovery_state) == ([1, 2, 3], 51, RECOVERED)
    one = cluster.partition()
    assert (one.isr, one.partition_epoch) == ((1, 2, 3), 51)


def test_a_change_that_changes_nothing_is_no_record():
    cluster = cluster_of(1, 2)
    (found,) = asked(cluster, wanted([1, 2]))
    assert (found.error_code, found.partition_epoch, cluster.partition().partition_epoch) == (0, 50, 50)


def test_version_2_names_no_epochs():
    cluster = cluster_of(1, 2, isr=[1])
    (found,) = asked(cluster, wanted([], new_isr=[1, 2]))
    assert found.isr == [1, 2]


def test_only_the_registered_process_is_heard():
    cluster = cluster_of(1, 2)
    for broker_id, epoch in ((1, 0), (9, 0)):
        with pytest.raises(KafkaError) as refused:
            asked(cluster, wanted([1]), broker_id=broker_id, broker_epoch=epoch)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_topic_that_is_gone():
    found = asked(cluster_of(1, 2), wanted([1]), topic_id=b"u" * 16)
    assert [one.error_code for one in found] == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (wanted([1], partition_index=1), "UNKNOWN_TOPIC_OR_PARTITION"),
        (wanted([1], partition_index=-1), "UNKNOWN_TOPIC_OR_PARTITION"),
        (wanted([1], leader_epoch=6), "NOT_CONTROLLER"),
        (wanted([1], leader_epoch=4, partition_epoch=51), "NOT_CONTROLLER"),
        (wanted([1], leader_epoch=4), "FENCED_LEADER_EPOCH"),
        (wanted([1], partition_epoch=49), "INVALID_UPDATE_VERSION"),
        (wanted([]), "INVALID_REQUEST"),
        (wanted([2]), "INVALID_REQUEST"),
        (wanted([1, 4]), "INVALID_REQUEST"),
        (wanted([1, 2, 2]), "INVALID_REQUEST"),
        (wanted([1], leader_recovery_state=RECOVERING), "INVALID_REQUEST"),
        (wanted([1], leader_recovery_state=2), "INVALID_REQUEST"),
        (wanted([1, 2], {1: -1, 2: 10_000}), "INELIGIBLE_REPLICA"),
    ],
)
def test_a_change_is_refused(data, error):
    cluster = cluster_of(1, 2, 3)
    (found,) = asked(cluster, data)
    assert (ErrorCode(found.error_code).name, found.partition_index) == (error, data.partition_index)
    assert cluster.partition().partition_epoch == 50


def test_only_the_leader_changes_the_isr():
    cluster = cluster_of(1, 2)
    results = [asked(cluster, wanted([2], partition_epoch=one), broker_id=2)[0] for one in (50, 49)]
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize("state", [{"fenced": 1}, {"in_controlled_shutdown": 1}, None])
def test_a_replica_that_is_not_active_is_not_eligible(state):
    cluster = cluster_of(1, 2)
    if state is None:
        cluster.add_topic({"replicas": [1, 9], "isr": [1]}, name="u", topic_id=b"u" * 16)
        (found,) = asked(cluster, wanted([1, 9]), topic_id=b"u" * 16)
    else:
        epoch = cluster.broker(2).epoch
        cluster.append(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, **state))
        (found,) = asked(cluster, wanted([1, 2]))
    assert found.error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_that_recovers_is_alone():
    cluster = cluster_of(1, 2, isr=[1], leader_recovery_state=RECOVERING)
    (refused,) = asked(cluster, wanted([1, 2], leader_recovery_state=RECOVERING))
    (kept,) = asked(cluster, wanted([1], leader_recovery_state=RECOVERING))
    assert (refused.error_code, kept.error_code) == (ErrorCode.INVALID_REQUEST, 0)
    (done,) = asked(cluster, wanted([1]))
    assert (done.leader_recovery_state, done.partition_epoch) == (RECOVERED, 51)


def test_a_change_may_end_a_reassignment_and_the_leadership():
    cluster = Cluster(1, 2, 3)
    cluster.add_topic(
        {"replicas": [2, 3, 1], "isr": [1, 2], "leader": 1, "adding_replicas": [3], "removing_replicas": [1]}
    )
    (found,) = asked(cluster, wanted([1, 2, 3]))
    assert found.error_code == ErrorCode.NEW_LEADER_ELECTED
    one = cluster.partition()
    assert (one.replicas, one.isr, one.leader, one.adding, one.removing) == ((2, 3), (2, 3), 2, (), ())


def test_a_change_may_end_a_reassignment_that_keeps_the_leader():
    cluster = Cluster(1, 2, 3)
    cluster.add_topic(
        {"replicas": [1, 3, 2], "isr": [1, 2], "adding_replicas": [3], "removing_replicas": [2]}
    )
    (found,) = asked(cluster, wanted([1, 2, 3]))
    assert (found.error_code, found.isr, found.leader_epoch) == (0, [1, 3], 6)


def test_the_second_change_in_a_request_sees_the_first():
    cluster = cluster_of(1, 2, 3)
    first, second, third = asked(cluster, wanted([1, 2]), wanted([1]), wanted([1, 2, 3], partition_epoch=51))
    assert [one.error_code for one in (first, second, third)] == [0, ErrorCode.INVALID_UPDATE_VERSION, 0]
    assert (cluster.partition().isr, third.partition_epoch) == ((1, 2, 3), 52)
