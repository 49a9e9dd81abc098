"""Streams groups by way of their APIs: requests, internal topics that are created, descriptions."""

from dataclasses import replace

import pytest

from odradek.apis import operations
from odradek.coordinator.cluster.changes import GroupOwner
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from tests.kit.collecting import collected

MISSING_INTERNAL_TOPICS = 3


@pytest.fixture
def streams_node(node):
    """A node with a topic `in`, whose groups do not wait for more members."""
    node.group_settings.group_streams_initial_rebalance_delay_ms = 0
    node.group_settings.group_streams_assignment_interval_ms = 0
    node.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 6)
    node.loop.turn()
    node.create("in", 2)
    return node


SETTING = KeyValue(key="cleanup.policy", value="compact")


def internal(name, partitions=0, **configs):
    texts = [KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=texts)


def words(**changes):
    """A word count: its second half reads what the first half has written again by key."""
    halves = [
        Subtopology(
            subtopology_id="0",
            source_topics=["in"],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=["app-words-repartition"],
            repartition_source_topics=[],
            copartition_groups=[],
        ),
        Subtopology(
            subtopology_id="1",
            source_topics=[],
            source_topic_regex=[],
            state_changelog_topics=[internal("app-counts-changelog", cleanup_policy="compact")],
            repartition_sink_topics=[],
            repartition_source_topics=[internal("app-words-repartition", cleanup_policy="delete")],
            copartition_groups=[
                CopartitionGroup(source_topics=[], source_topic_regex=[], repartition_source_topics=[0])
            ],
        ),
    ]
    return Topology(epoch=0, subtopologies=[replace(half, **changes) for half in halves])


JOIN = StreamsGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=0,
    endpoint_information_epoch=-1,
    rebalance_timeout_ms=60_000,
    topology=words(),
    active_tasks=[],
    standby_tasks=[],
    warmup_tasks=[],
    process_id="p",
    client_tags=[KeyValue(key="zone", value="a")],
)
STAY = StreamsGroupHeartbeatRequest(group_id="g", member_id="m", rebalance_timeout_ms=-1)


def tasks(listed):
    return None if listed is None else {one.subtopology_id: one.partitions for one in listed}


def test_internal_topics_are_created_with_their_settings_and_then_there_are_tasks(streams_node):
    joined = streams_node.ask(JOIN)
    assert (joined.error_code, joined.member_epoch) == (0, 2)
    assert [(one.status_code, one.status_detail) for one in joined.status] == [
        (
            MISSING_INTERNAL_TOPICS,
            "Internal topics are missing: app-counts-changelog, app-words-repartition",
        )
    ]
    assert tasks(joined.active_tasks) == {}
    topics = streams_node.machine.view.topics
    shapes = {
        name: (len(topic.partitions), dict(topic.configs))
        for name, topic in topics.items()
        if name.startswith("app-")
    }
    assert shapes == {
        "app-counts-changelog": (2, {"cleanup.policy": "compact"}),
        "app-words-repartition": (2, {"cleanup.policy": "delete"}),
    }
    told = streams_node.ask(replace(STAY, member_epoch=2))
    assert (told.error_code, told.status, told.heartbeat_interval_ms) == (0, [], 5_000)
    assert tasks(told.active_tasks) == {"0": [0, 1], "1": [0, 1]}
    assert (tasks(told.standby_tasks), tasks(told.warmup_tasks)) == ({}, {})
    again = streams_node.ask(replace(STAY, member_epoch=told.member_epoch))
    assert (again.active_tasks, again.standby_tasks, again.warmup_tasks) == (None, None, None)


def test_a_topic_that_cannot_be_created_is_told_and_tried_again_after_a_while(streams_node):
    refused = words(state_changelog_topics=[internal("app-counts-changelog", no_such_setting="1")])
    joined = streams_node.ask(replace(JOIN, topology=refused))
    assert "Creation failed" not in joined.status[0].status_detail
    told = streams_node.ask(replace(STAY, member_epoch=joined.member_epoch))
    assert "; Creation failed: app-counts-changelog (" in told.status[0].status_detail
    assert "app-words-repartition" in streams_node.machine.view.topics
    tried = []
    create = streams_node.machine.creating_topics
    streams_node.machine.creating_topics = lambda topics, **more: (
        tried.append(topics) or create(topics, **more)
    )
    streams_node.ask(replace(STAY, member_epoch=told.member_epoch))
    assert not tried
    streams_node.loop.advance(10_001)
    streams_node.ask(replace(STAY, member_epoch=told.member_epoch))
    assert [[topic.name for topic in topics] for topics in tried] == [["app-counts-changelog"]]


SENSELESS = [
    ({"member_id": " "}, "MemberId can't be empty."),
    ({"group_id": ""}, "GroupId can't be empty."),
    ({"instance_id": ""}, "InstanceId can't be empty."),
    ({"rack_id": ""}, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
    (
        {"standby_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        "StandbyTasks must be empty when (re-)joining.",
    ),
    ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
    ({"topology": None}, "Topology must be non-null when (re-)joining."),
    (
        {"topology": words(source_topic_regex=["a.*"])},
        "Regular expressions for source topics are not supported yet.",
    ),
    ({"member_epoch": -2}, "InstanceId can't be null."),
    ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
    ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
    (
        {"member_epoch": 1, "topology": None, "active_tasks": None},
        "If one task-type is non-null, all must be non-null.",
    ),
    ({"client_tags": [KeyValue(key="zone", value=one) for one in "ab"]}, "A client tag is named twice."),
]
"""What a request has, and what it is told."""


def test_a_request_that_makes_no_sense_is_refused(streams_node):
    with collected() as failures:
        for changes, message in SENSELESS:
            with failures.of(message):
                answer = streams_node.ask(replace(JOIN, **changes))
                assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
                assert streams_node.ask(ListGroupsRequest(), 5).groups == []


UNSERVED = [
    (
        words(source_topics=["__consumer_offsets"]),
        "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
    ),
    (words(repartition_sink_topics=["a b"]), "Topic names a b are not valid topic names."),
    (
        words(state_changelog_topics=[internal("c", 3)]),
        "Changelog topic c must have an undefined partition count, but it is set to 3.",
    ),
    (
        words(state_changelog_topics=[internal("c"), internal("c", retention_ms="1")]),
        "Subtopology 0 names an internal topic twice.",
    ),
    (
        words(repartition_source_topics=[internal("app-words-repartition")] * 2),
        "Subtopology 0 names an internal topic twice.",
    ),
    (
        words(state_changelog_topics=[replace(internal("c"), topic_configs=[SETTING, SETTING])]),
        "A setting of an internal topic is named twice.",
    ),
]
"""Topologies, and what they are told."""


def test_a_topology_that_no_broker_may_serve_is_refused(streams_node):
    with collected() as failures:
        for number, (topology, message) in enumerate(UNSERVED):
            with failures.of(f"{number}: {message}"):
                answer = streams_node.ask(replace(JOIN, topology=topology))
                assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
                assert answer.error_message == message


def test_a_group_is_described_with_its_topology_and_what_each_member_has(streams_node):
    joined = streams_node.ask(replace(JOIN, user_endpoint=Endpoint(host="here", port=80)))
    told = streams_node.ask(replace(STAY, member_epoch=joined.member_epoch))
    assert told.endpoint_information_epoch == 1
    (endpoint,) = told.partitions_by_user_endpoint
    assert (endpoint.user_endpoint.host, endpoint.user_endpoint.port) == ("here", 80)
    assert {one.topic: one.partitions for one in endpoint.active_partitions} == {
        "in": [0, 1],
        "app-words-repartition": [0, 1],
    }
    request = StreamsGroupDescribeRequest(group_ids=["g", "none", ""], include_authorized_operations=True)
    group, none, unnamed = streams_node.ask(request).groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.group_epoch, group.assignment_epoch) == (told.member_epoch, told.member_epoch)
    assert group.authorized_operations == operations.ON_GROUP
    second = group.topology.subtopologies[1]
    assert [(one.name, one.partitions) for one in second.state_changelog_topics] == [
        ("app-counts-changelog", 2)
    ]
    (member,) = group.members
    assert (member.member_id, member.process_id, member.client_host) == ("m", "p", "/192.0.2.7")
    assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "a")]
    assert tasks(member.assignment.active_tasks) == {"0": [0, 1], "1": [0, 1]}
    assert member.target_assignment == member.assignment
    assert (none.error_code, none.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Streams group none not found.",
    )
    assert unnamed.error_code == ErrorCode.INVALID_GROUP_ID
    # To those who ask for classic groups it is not there.
    (classic,) = streams_node.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_works_by_settings_of_its_own(streams_node):
    streams_node.group_settings.group_configs = {"g": {"streams.heartbeat.interval.ms": "7000"}}
    streams_node.set_configs(GroupOwner("g"), {"streams.heartbeat.interval.ms": "7000"})
    assert streams_node.ask(JOIN).heartbeat_interval_ms == 7_000


def test_without_the_feature_there_are_no_streams_groups(streams_node):
    streams_node.group_settings.streams_version = 0
    assert streams_node.ask(JOIN).error_code == ErrorCode.UNSUPPORTED_VERSION
    (group,) = streams_node.ask(StreamsGroupDescribeRequest(group_ids=["g"])).groups
    assert group.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_static_member_leaves_for_a_while_and_its_next_process_has_its_tasks(streams_node):
    static = {"instance_id": "i"}
    joined = streams_node.ask(replace(JOIN, **static))
    told = streams_node.ask(replace(STAY, member_epoch=joined.member_epoch, **static))
    away = streams_node.ask(replace(STAY, member_epoch=-2, **static))
    assert (away.error_code, away.member_epoch) == (0, -2)
    again = streams_node.ask(replace(JOIN, member_id="n", **static))
    assert (again.error_code, again.member_epoch) == (0, told.member_epoch)
    assert tasks(again.active_tasks) == tasks(told.active_tasks)


def test_version_1_tells_how_far_behind_a_task_may_be_and_what_the_group_is_assigned_by(streams_node):
    joined = streams_node.ask(JOIN, 1)
    assert (joined.acceptable_recovery_lag, joined.task_offset_interval_ms) == (10_000, 60_000)
    request = StreamsGroupDescribeRequest(group_ids=["g"], include_topology_description=True)
    (group,) = streams_node.ask(request, 1).groups
    assert (group.assignor_name, group.topology_description_status) == ("sticky", 1)
    update = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="g",
        member_id="m",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )
    assert streams_node.ask(update).error_code == ErrorCode.UNSUPPORTED_VERSION
