"""Reassignments: begun, replaced, cancelled, completed, refused, listed."""

import pytest

from odradek.coordinator.controller.in_sync import alter_partition
from odradek.coordinator.controller.reassignment import alter_reassignments, list_reassignments
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.wire.messages.metadata_records import BrokerRegistrationChangeRecord
from tests.coordinator.controller.cluster import Cluster, T, disk


def reassigned(cluster, replicas, index=0, name="t", **options):
    """(error, message) of a decision that is carried out."""
    wanted = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=[wanted])], **options
    )
    decision = alter_reassignments(cluster.view, cluster.defaults, request)
    cluster.append(*decision.records)
    response = decision.response
    assert response.error_code == ErrorCode.NONE
    assert response.allow_replication_factor_change == request.allow_replication_factor_change
    (found,) = response.responses[0].partitions
    assert found.partition_index == index
    return ErrorCode(found.error_code).name, found.error_message


def whole(cluster):
    """(replicas, adding, removing, ISR)."""
    one = cluster.partition()
    return one.replicas, one.adding, one.removing, one.isr


def in_sync(cluster, *isr):
    one = cluster.partition()
    data = PartitionData(
        partition_index=0,
        leader_epoch=one.leader_epoch,
        partition_epoch=one.partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=broker) for broker in isr],
    )
    request = AlterPartitionRequest(
        broker_id=one.leader,
        broker_epoch=cluster.broker(one.leader).epoch,
        topics=[TopicData(topic_id=T, partitions=[data])],
    )
    cluster.append(*alter_partition(cluster.view, cluster.defaults, request).records)


@pytest.fixture
def cluster():
    cluster = Cluster(1, 2, 3, 4, 5)
    cluster.add_topic({"replicas": [1, 2, 3]})
    return cluster


def test_a_reassignment_adds_first_and_removes_at_the_end(cluster):
    assert reassigned(cluster, [2, 3, 4]) == ("NONE", None)
    assert whole(cluster) == ((2, 3, 4, 1), (4,), (1,), (1, 2, 3))
    one = cluster.partition()
    assert (one.leader, one.leader_epoch) == (1, 5)
    assert one.directories == (disk(2), disk(3), disk(4), disk(1))
    in_sync(cluster, 1, 2, 3, 4)
    assert whole(cluster) == ((2, 3, 4), (), (), (2, 3, 4))
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (2, 6)


def test_another_order_is_done_at_once(cluster):
    reassigned(cluster, [3, 2, 1])
    assert whole(cluster) == ((3, 2, 1), (), (), (1, 2, 3))
    assert cluster.partition().leader == 1


def test_fewer_replicas_are_done_at_once_when_they_are_in_sync(cluster):
    reassigned(cluster, [1, 2])
    assert whole(cluster) == ((1, 2), (), (), (1, 2))
    assert cluster.partition().leader_epoch == 6


def test_the_present_replicas_are_no_change(cluster):
    assert reassigned(cluster, [1, 2, 3]) == ("NONE", None)
    assert cluster.partition().partition_epoch == 50


def test_a_reassignment_is_replaced(cluster):
    reassigned(cluster, [2, 3, 4])
    reassigned(cluster, [2, 3, 5])
    assert whole(cluster) == ((2, 3, 5, 1, 4), (5,), (1, 4), (1, 2, 3))
    in_sync(cluster, 1, 2, 3, 5)
    assert whole(cluster) == ((2, 3, 5), (), (), (2, 3, 5))


def test_a_reassignment_back_to_the_first_replicas_is_complete(cluster):
    reassigned(cluster, [2, 3, 4])
    reassigned(cluster, [1, 2, 3])
    assert whole(cluster) == ((1, 2, 3), (), (), (1, 2, 3))


def test_a_replica_that_the_new_reassignment_keeps_stays(cluster):
    reassigned(cluster, [2, 3, 4])
    reassigned(cluster, [1, 2, 3, 4])
    assert whole(cluster) == ((1, 2, 3, 4), (4,), (), (1, 2, 3))


def test_what_was_being_added_is_still_waited_for(cluster):
    reassigned(cluster, [2, 3, 4])
    reassigned(cluster, [2, 4, 5])
    assert whole(cluster) == ((2, 4, 5, 1, 3), (4, 5), (1, 3), (1, 2, 3))


def test_a_reassignment_is_cancelled(cluster):
    reassigned(cluster, [2, 3, 4])
    in_sync(cluster, 1, 2)
    assert reassigned(cluster, None) == ("NONE", None)
    assert whole(cluster) == ((2, 3, 1), (), (), (1, 2))
    one = cluster.partition()
    assert (one.leader, one.leader_epoch) == (1, 6)


def test_a_leader_that_was_being_added_is_replaced_when_that_is_cancelled():
    cluster = Cluster(1, 2, 3)
    cluster.add_topic(
        {
            "replicas": [2, 3, 1],
            "isr": [1, 2],
            "leader": 2,
            "adding_replicas": [2, 3],
            "removing_replicas": [1],
        }
    )
    reassigned(cluster, None)
    assert whole(cluster) == ((1,), (), (), (1,))
    assert cluster.partition().leader == 1


@pytest.mark.parametrize("is_unclean", [False, True])
def test_a_cancellation_that_loses_records_needs_the_setting(is_unclean):
    cluster = Cluster(1, 2, has_elr=False, unclean_leader_election=is_unclean)
    cluster.add_topic({"replicas": [2, 1], "isr": [2], "adding_replicas": [2], "removing_replicas": [1]})
    error, message = reassigned(cluster, None)
    if is_unclean:
        assert (error, whole(cluster)) == ("NONE", ((1,), (), (), (1,)))
    else:
        assert error == "INVALID_REPLICA_ASSIGNMENT"
        assert "unclean leader election" in message
        assert whole(cluster) == ((2, 1), (2,), (1,), (2,))


def test_a_reassignment_of_nothing_but_additions_cannot_be_cancelled():
    cluster = Cluster(1)
    cluster.add_topic({"replicas": [1], "adding_replicas": [1]})
    assert reassigned(cluster, None)[0] == "INVALID_REPLICA_ASSIGNMENT"


def test_nothing_is_cancelled_where_nothing_moves(cluster):
    assert reassigned(cluster, None) == ("NO_REASSIGNMENT_IN_PROGRESS", None)


@pytest.mark.parametrize(
    ("replicas", "fields", "error"),
    [
        ([1], {"name": "u"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([1], {"index": 1}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([1], {"index": -1}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 2, 9], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 2, 2], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 2, -1], {}, "INVALID_REPLICA_ASSIGNMENT"),
        ([1, 2], {"allow_replication_factor_change": False}, "INVALID_REPLICATION_FACTOR"),
    ],
)
def test_a_reassignment_is_refused(cluster, replicas, fields, error):
    found, message = reassigned(cluster, replicas, **fields)
    assert found == error
    assert message
    assert whole(cluster) == ((1, 2, 3), (), (), (1, 2, 3))


def test_the_factor_counts_after_the_reassignment_that_is_under_way(cluster):
    reassigned(cluster, [2, 3, 4])
    assert reassigned(cluster, [3, 4, 5], allow_replication_factor_change=False) == ("NONE", None)


def test_a_broker_that_is_fenced_takes_replicas_and_one_that_is_cordoned_takes_none(cluster):
    for fields in ({"fenced": 1}, {"cordoned_log_dirs": [disk(5)]}):
        broker_id = 4 if "fenced" in fields else 5
        epoch = cluster.broker(broker_id).epoch
        cluster.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **fields))
    assert reassigned(cluster, [1, 2, 4])[0] == "NONE"
    assert reassigned(cluster, [1, 2, 5])[0] == "INVALID_REPLICA_ASSIGNMENT"


def test_a_request_for_nothing_changes_nothing(cluster):
    decision = alter_reassignments(
        cluster.view, cluster.defaults, AlterPartitionReassignmentsRequest(topics=[])
    )
    assert decision.records == []
    assert (decision.response.error_message, decision.response.responses) == ("", [])


# Lists


def listed(cluster, topics):
    asked = None
    if topics is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    response = list_reassignments(cluster.view, ListPartitionReassignmentsRequest(topics=asked))
    assert (response.error_code, response.error_message) == (0, None)
    return {
        topic.name: [
            (one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas)
            for one in topic.partitions
        ]
        for topic in response.topics
    }


@pytest.mark.parametrize("asked", [None, {"t": [0, 1, 2, -1], "u": [0], "v": [0]}])
def test_what_moves_is_listed(cluster, asked):
    cluster.add_topic({"replicas": [1]}, name="u", topic_id=b"u" * 16)
    assert listed(cluster, asked) == {}
    reassigned(cluster, [2, 3, 4])
    assert listed(cluster, asked) == {"t": [(0, [2, 3, 4, 1], [4], [1])]}


def test_only_what_is_asked_for_is_listed(cluster):
    reassigned(cluster, [2, 3, 4])
    assert listed(cluster, {"t": [1]}) == {}
    assert listed(cluster, {}) == {}
