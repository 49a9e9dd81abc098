"""The throttles of replication follow the settings of brokers and topics."""

import pytest

from odradek.config.broker_config import load
from odradek.config.live import LiveConfig
from odradek.coordinator.cluster.view import (
    ClusterChange,
    ClusterView,
    PartitionChange,
    PartitionView,
    TopicView,
)
from odradek.coordinator.replication.replication_quota import UNLIMITED
from odradek.server.cluster.throttles import Throttles

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
PARTITION = PartitionView(0, leader=2, leader_epoch=0, replicas=(2, 3), isr=(2,))


def topic(name, **configs):
    return TopicView(name, name.encode() * 16, (PARTITION,), configs=configs)


@pytest.fixture
def throttles():
    return Throttles(1, 11, 1_000)


def throttled(quota, name):
    return [index for index in range(4) if quota.is_throttled((name, index))]


def test_the_first_view_says_which_replicas_are_throttled(throttles):
    moved = topic("t", **{LEADERS: "0:1,1:2,2:1", FOLLOWERS: "*"})
    throttles.begin(ClusterView(topics={"t": moved, "u": topic("u")}))
    assert throttled(throttles.leader, "t") == [0, 2]
    assert throttled(throttles.follower, "t") == [0, 1, 2, 3]
    assert throttled(throttles.leader, "u") == throttled(throttles.follower, "u") == []


def test_a_topic_that_is_set_otherwise_is_throttled_otherwise(throttles):
    throttles.begin(ClusterView(topics={"t": topic("t")}))
    throttles.view_changed(ClusterView(), ClusterChange(configured=[topic("t", **{FOLLOWERS: "1:1"})]))
    assert throttled(throttles.follower, "t") == [1]
    throttles.view_changed(ClusterView(), ClusterChange(configured=[topic("t", **{FOLLOWERS: ""})]))
    assert throttled(throttles.follower, "t") == []


def test_a_new_topic_brings_its_throttles_and_a_deleted_one_takes_them_away(throttles):
    made = topic("t", **{LEADERS: "*"})
    # Its replicas are on other nodes: one may move here later.
    change = ClusterChange(changed=[PartitionChange(made, None, PARTITION)])
    throttles.view_changed(ClusterView(topics={"t": made}), change)
    assert throttled(throttles.leader, "t") == [0, 1, 2, 3]
    again = ClusterChange(
        deleted=[made], changed=[PartitionChange(topic("t", **{LEADERS: "3:1"}), None, PARTITION)]
    )
    throttles.view_changed(ClusterView(topics={"t": made}), again)
    assert throttled(throttles.leader, "t") == [3]
    throttles.view_changed(ClusterView(), ClusterChange(deleted=[made]))
    assert throttled(throttles.leader, "t") == []


def test_the_rates_are_those_of_this_broker_else_of_all_else_unlimited(throttles):
    live = LiveConfig(load(keywords={"node_id": 1}), dict)
    throttles.follow(live)
    assert throttles.leader.bytes_per_second_max == UNLIMITED
    leader, follower = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
    live.follow({None: {leader: "5", follower: "6"}, 1: {follower: "7"}, 2: {leader: "8"}})
    throttles.follow(live)
    assert (throttles.leader.bytes_per_second_max, throttles.follower.bytes_per_second_max) == (5, 7)
