"""Which partitions change when brokers come and go, and elections that are asked for."""

import pytest

from odradek.coordinator.cluster.view import NO_LEADER, RECOVERING
from odradek.coordinator.controller import elections
from odradek.coordinator.controller.elections import (
    begin_controlled_shutdown,
    begin_incarnation,
    elect_leaders,
    elect_preferred_leaders,
    elect_unclean_leaders,
    end_registration,
    fence_brokers,
    unfence_broker,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from tests.coordinator.controller.cluster import Cluster, disk, said

PREFERRED, UNCLEAN = 0, 1


def decided(cluster, decide, *brokers, **options):
    """The records of a decision about brokers, which is carried out."""
    batch = cluster.batch()
    decide(batch, *brokers, **options)
    return cluster.append(*batch.records)


def fence(cluster, *broker_ids):
    return decided(cluster, fence_brokers, [cluster.broker(one) for one in broker_ids])


# Brokers that go


def test_a_broker_that_is_fenced_leads_nothing_and_is_in_sync_nowhere():
    cluster = Cluster(1, 2, 3)
    cluster.add_topic({"replicas": [1, 2, 3]}, {"replicas": [2, 1, 3]}, {"replicas": [2, 3]})
    records = fence(cluster, 1)
    assert [type(one) for one in records] == [PartitionChangeRecord] * 2 + [BrokerRegistrationChangeRecord]
    assert said(records[0])["isr"] == [2, 3]
    assert said(records[0])["leader"] == 2
    assert "leader" not in said(records[1])
    assert said(records[-1])["fenced"] == 1
    assert cluster.broker(1).is_fenced


def test_brokers_that_are_fenced_at_once_do_not_follow_each_other():
    cluster = Cluster(1, 2, 3)
    cluster.add_topic({"replicas": [1, 2, 3]})
    assert len(fence(cluster, 1, 2)) == 3
    one = cluster.partition()
    assert (one.leader, one.isr, one.leader_epoch, one.partition_epoch) == (3, (3,), 6, 51)


@pytest.mark.parametrize(("has_elr", "isr", "elr"), [(True, (), (1,)), (False, (1,), ())])
def test_the_last_in_sync_replica_leaves_a_partition_without_a_leader(has_elr, isr, elr):
    cluster = Cluster(1, 2, has_elr=has_elr)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]})
    fence(cluster, 1)
    one = cluster.partition()
    assert (one.leader, one.isr, one.elr) == (NO_LEADER, isr, elr)


def test_a_broker_in_controlled_shutdown_hands_over_and_is_not_fenced():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]})
    records = decided(cluster, begin_controlled_shutdown, cluster.broker(1))
    assert [type(one) for one in records] == [BrokerRegistrationChangeRecord, PartitionChangeRecord]
    assert cluster.broker(1).in_controlled_shutdown
    assert not cluster.broker(1).is_fenced
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    assert decided(cluster, begin_controlled_shutdown, cluster.broker(1)) == []


def test_a_broker_that_is_unregistered_is_out():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2]})
    records = decided(cluster, end_registration, cluster.broker(1))
    assert isinstance(records[-1], UnregisterBrokerRecord)
    assert 1 not in cluster.view.registrations
    assert (cluster.partition().leader, cluster.partition().replicas) == (2, (1, 2))


def test_after_a_clean_shutdown_a_broker_stays_eligible():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]}, min_insync_replicas="2")
    fence(cluster, 1)
    assert decided(cluster, begin_incarnation, 1, was_clean=True) == []
    assert cluster.partition().elr == (1,)


def test_after_an_unclean_shutdown_a_broker_is_not_eligible():
    cluster = Cluster(1, 2)
    cluster.add_topic(
        {"replicas": [1, 2], "isr": [1]},
        {"replicas": [1, 2], "isr": [], "leader": -1, "eligible_leader_replicas": [1, 2]},
        {"replicas": [2, 1], "isr": [2], "eligible_leader_replicas": [1]},
        min_insync_replicas="2",
    )
    decided(cluster, begin_incarnation, 1, was_clean=False)
    assert [(one.leader, one.isr, one.elr) for one in map(cluster.partition, range(3))] == [
        (NO_LEADER, (), ()),
        (2, (2,), ()),
        (2, (2,), ()),
    ]


def test_without_elr_an_unclean_shutdown_is_as_a_clean_one():
    cluster = Cluster(1, 2, has_elr=False)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]}, {"replicas": [1, 2]})
    decided(cluster, begin_incarnation, 1, was_clean=False)
    assert [(one.leader, one.isr) for one in map(cluster.partition, range(2))] == [(-1, (1,)), (2, (2,))]


@pytest.mark.parametrize(
    ("settings", "leader"),
    [
        ([("t", "true")], 2),
        ([(None, "true")], 2),
        ([("100", "true")], 2),
        ([(None, "true"), ("100", "false")], NO_LEADER),
        ([("t", "false"), (None, "true")], NO_LEADER),
        ([], NO_LEADER),
    ],
)
def test_an_unclean_election_needs_the_setting(settings, leader):
    """The topic's own counts first, then the controller's dynamic one, then the cluster's."""
    name = "unclean.leader.election.enable"
    cluster = Cluster(1, 2, has_elr=False)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]})
    for owner, value in settings:
        if owner == "t":
            cluster.configure(2, "t", name, value)
        else:
            cluster.configure_brokers(name, value, owner or "")
    fence(cluster, 1)
    assert cluster.partition().leader == leader


def test_the_file_of_the_controller_has_defaults():
    cluster = Cluster(1, 2, unclean_leader_election=True, min_insync_replicas=2)
    cluster.add_topic({"replicas": [1, 2]})
    fence(cluster, 1)
    assert (cluster.partition().leader, cluster.partition().elr) == (2, (1,))
    fence(cluster, 2)
    decided(cluster, unfence_broker, cluster.broker(1))
    assert cluster.partition().leader == 1


def test_no_more_replicas_need_to_be_in_sync_than_there_are():
    cluster = Cluster(1, 2, min_insync_replicas=3)
    cluster.add_topic({"replicas": [1, 2], "isr": [1], "eligible_leader_replicas": [2]})
    batch = cluster.batch()
    assert batch.rules(cluster.view.topics["t"]).min_isr == 2


# Brokers that come


def test_a_broker_that_is_unfenced_leads_what_waits_for_it():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]}, {"replicas": [2]}, {"replicas": [2, 1]})
    fence(cluster, 1)
    records = decided(cluster, unfence_broker, cluster.broker(1))
    assert [type(one) for one in records] == [BrokerRegistrationChangeRecord, PartitionChangeRecord]
    assert said(records[0])["fenced"] == -1
    assert (cluster.partition().leader, cluster.partition().isr) == (1, (1,))


def test_a_broker_that_lacks_records_leads_nothing():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]})
    fence(cluster, 2)
    fence(cluster, 1)
    decided(cluster, unfence_broker, cluster.broker(2))
    assert cluster.partition().leader == NO_LEADER


def test_a_replica_in_a_failed_directory_does_not_lead():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "isr": [1], "directories": [disk(1, 7), disk(2)]})
    fence(cluster, 1)
    decided(cluster, unfence_broker, cluster.broker(1))
    assert cluster.partition().leader == NO_LEADER


# By the controller's clock


def test_partitions_go_back_to_their_first_replicas():
    cluster = Cluster(1, 2)
    cluster.add_topic(
        {"replicas": [1, 2], "leader": 2}, {"replicas": [2, 1]}, {"replicas": [1, 2], "isr": [2]}
    )
    found = elect_preferred_leaders(cluster.view, cluster.defaults)
    assert [(one.partition_id, one.leader) for one in found.records] == [(0, 1)]
    assert not found.has_more
    cluster.append(*found.records)
    assert elect_preferred_leaders(cluster.view, cluster.defaults).records == []


@pytest.mark.parametrize("elect", [elect_preferred_leaders, elect_unclean_leaders])
def test_one_look_changes_so_many_partitions_at_most(elect, monkeypatch):
    monkeypatch.setattr(elections, "ELECTIONS_MAX", 2)
    cluster = Cluster(1, 2, has_elr=False, unclean_leader_election=True)
    cluster.add_topic(*[{"replicas": [1, 2], "leader": -1}] * 3)
    looks = []
    for _ in range(2):
        found = elect(cluster.view, cluster.defaults)
        cluster.append(*found.records)
        looks.append((len(found.records), found.has_more))
    assert looks == [(2, True), (1, False)]


def test_a_replica_out_of_sync_leads_where_the_topic_allows_it():
    cluster = Cluster(1, 2, has_elr=False)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]})
    fence(cluster, 1)
    assert elect_unclean_leaders(cluster.view, cluster.defaults).records == []
    cluster.configure(2, "t", "unclean.leader.election.enable", "true")
    cluster.append(*elect_unclean_leaders(cluster.view, cluster.defaults).records)
    one = cluster.partition()
    assert (one.leader, one.isr, one.leader_recovery_state) == (2, (2,), RECOVERING)


# By request


def elected(cluster, election_type, asked):
    """Error codes by topic and partition, of a decision that is carried out."""
    topics = None
    if asked is not None:
        topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in asked.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=topics)
    decision = elect_leaders(cluster.view, cluster.defaults, request)
    cluster.append(*decision.records)
    return {
        topic.topic: {one.partition_id: ErrorCode(one.error_code).name for one in topic.partition_result}
        for topic in decision.response.replica_election_results
    }


def test_preferred_leaders_are_elected_by_request():
    cluster = Cluster(1, 2)
    cluster.add_topic(
        {"replicas": [1, 2], "leader": 2}, {"replicas": [1, 2]}, {"replicas": [1, 2], "isr": [2]}
    )
    assert elected(cluster, PREFERRED, {"t": [0, 1, 2, 3, -1], "u": [0]}) == {
        "t": {
            0: "NONE",
            1: "ELECTION_NOT_NEEDED",
            2: "PREFERRED_LEADER_NOT_AVAILABLE",
            3: "UNKNOWN_TOPIC_OR_PARTITION",
            -1: "UNKNOWN_TOPIC_OR_PARTITION",
        },
        "u": {0: "UNKNOWN_TOPIC_OR_PARTITION"},
    }
    assert cluster.partition().leader == 1


def test_unclean_leaders_are_elected_by_request_whatever_the_setting():
    cluster = Cluster(1, 2, has_elr=False)
    cluster.add_topic({"replicas": [1, 2], "isr": [1]}, {"replicas": [2, 1]}, {"replicas": [1]})
    fence(cluster, 1)
    assert elected(cluster, UNCLEAN, {"t": [0, 1, 2]}) == {
        "t": {0: "NONE", 1: "ELECTION_NOT_NEEDED", 2: "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    }
    assert cluster.partition().leader == 2


def test_for_all_partitions_those_without_need_are_left_out():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "leader": 2}, {"replicas": [1, 2]})
    cluster.add_topic({"replicas": [1, 2]}, name="u", topic_id=b"u" * 16)
    assert elected(cluster, PREFERRED, None) == {"t": {0: "NONE"}, "u": {}}


def test_a_partition_that_is_named_twice_is_elected_once():
    cluster = Cluster(1, 2)
    cluster.add_topic({"replicas": [1, 2], "leader": 2})
    request = ElectLeadersRequest(
        election_type=PREFERRED, topic_partitions=[TopicPartitions(topic="t", partitions=[0, 0])]
    )
    decision = elect_leaders(cluster.view, cluster.defaults, request)
    (topic,) = decision.response.replica_election_results
    assert [one.error_code for one in topic.partition_result] == [
        ErrorCode.NONE,
        ErrorCode.ELECTION_NOT_NEEDED,
    ]
    assert len(decision.records) == 1


def test_a_request_for_nothing_elects_nothing():
    assert elected(Cluster(1), 9, {}) == {}


def test_there_are_two_types_of_election():
    with pytest.raises(KafkaError) as refused:
        elected(Cluster(1), 2, None)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
