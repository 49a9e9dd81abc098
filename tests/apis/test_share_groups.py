"""Share groups by way of their APIs: members, descriptions, offsets; with a share coordinator of the test."""

from dataclasses import replace

import pytest

from odradek.apis import operations
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, error_message
from odradek.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.wire.schema import ZERO_UUID
from tests.apis.granting import Granting
from tests.coordinator.shares.share_persister import FakePersister

READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
TOPIC = ResourceType.TOPIC


@pytest.fixture
def share_node(make_node):
    """A node with a topic `in` of two partitions, that serves share groups."""
    node = make_node(persister=FakePersister())
    node.group_settings.group_share_assignment_interval_ms = 0
    node.ask(FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 6)
    node.loop.turn()
    node.create("in", 2)
    return node


JOIN = ShareGroupHeartbeatRequest(
    group_id="g", member_id="m", member_epoch=0, rack_id="r", subscribed_topic_names=["in"]
)
STAY = ShareGroupHeartbeatRequest(group_id="g", member_id="m")
LEAVE = replace(STAY, member_epoch=-1)


def topic_id(node, name="in"):
    return node.machine.view.topics[name].topic_id


def beat(node, epoch):
    """A heartbeat, and what the share coordinator does after it."""
    answer = node.ask(replace(STAY, member_epoch=epoch))
    node.loop.turn()
    return answer


def join(node):
    joined = node.ask(JOIN)
    node.loop.turn()
    return beat(node, joined.member_epoch)


def describing(*topics, group="g"):
    named = None
    if topics != (None,):
        named = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=list(partitions))
            for name, partitions in topics
        ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=named)
    return DescribeShareGroupOffsetsRequest(groups=[group])


def altering(group="g", **topics):
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def forgetting(*names, group="g"):
    return DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    )


def told(topics):
    """(name, id, partition, code) of an answer to an alteration."""
    return [
        (topic.topic_name, topic.topic_id, one.partition_index, ErrorCode(one.error_code).name)
        for topic in topics
        for one in topic.partitions
    ]


def test_a_member_gets_partitions_once_they_have_a_state(share_node):
    joined = share_node.ask(JOIN)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 2)
    assert joined.heartbeat_interval_ms == 5_000
    assert joined.assignment.topic_partitions == []
    share_node.loop.turn()
    keys = [SharePartitionKey("g", topic_id(share_node), index) for index in (0, 1)]
    assert share_node.persister.states == dict.fromkeys(keys, (2, -1))
    told = beat(share_node, 2)
    assert told.member_epoch == 3
    assert [(one.topic_id, one.partitions) for one in told.assignment.topic_partitions] == [
        (topic_id(share_node), [0, 1])
    ]
    assert beat(share_node, 3).assignment is None
    left = share_node.ask(LEAVE)
    assert (left.error_code, left.member_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("member_id", "message"), [("", None), ("m" * 37, None), (" ", "MemberId can't be empty.")]
)
def test_a_member_id_that_cannot_be_is_refused(share_node, member_id, message):
    answer = share_node.ask(replace(JOIN, member_id=member_id))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert share_node.ask(ListGroupsRequest(), 5).groups == []


def test_a_group_is_described_and_listed(share_node):
    join(share_node)
    request = ShareGroupDescribeRequest(group_ids=["g", "none", ""], include_authorized_operations=True)
    group, none, empty = share_node.ask(request).groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("simple", operations.ON_GROUP)
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("m", 3, "r")
    assert (member.client_id, member.client_host) == ("tester", "/192.0.2.7")
    assert member.subscribed_topic_names == ["in"]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name) == (topic_id(share_node), "in")
    assert assigned.partitions == [0, 1]
    assert (none.error_code, none.error_message) == (69, "Group none not found.")
    assert empty.error_code == ErrorCode.INVALID_GROUP_ID
    for request in (
        ListGroupsRequest(),
        ListGroupsRequest(types_filter=["Share"], states_filter=["stable"]),
    ):
        (listed,) = share_node.ask(request, 5).groups
        assert (listed.group_type, listed.protocol_type, listed.group_state) == ("share", "share", "Stable")
    assert share_node.ask(ListGroupsRequest(types_filter=["classic"]), 5).groups == []
    (classic,) = share_node.ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_described_with_the_lag(share_node):
    join(share_node)
    share_node.fill("in", [b"1", b"2", b"3"])
    first, second = (SharePartitionKey("g", topic_id(share_node), index) for index in (0, 1))
    share_node.persister.states[first] = (2, 1)
    share_node.persister.delivered[first] = 1
    for request in (describing(None), describing(("in", [0, 1]))):
        (group,) = share_node.ask(request).groups
        (topic,) = group.topics
        assert (group.error_code, topic.topic_name, topic.topic_id) == (0, "in", topic_id(share_node))
        assert [
            (one.partition_index, one.start_offset, one.leader_epoch, one.lag) for one in topic.partitions
        ] == [
            (0, 1, 3, 1),
            (1, -1, 3, -1),
        ]
        (group,) = share_node.ask(request, 0).groups
        assert group.topics[0].partitions[0].start_offset == 1
    (group,) = share_node.ask(describing(("missing", [4]))).groups
    assert [(one.topic_name, one.topic_id, one.partitions[0].start_offset) for one in group.topics] == [
        ("missing", ZERO_UUID, -1)
    ]
    for request in (describing(None, group="none"), describing()):
        (group,) = share_node.ask(request).groups
        assert (group.error_code, group.topics) == (0, [])
    share_node.persister.refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (group,) = share_node.ask(describing(("in", [0]))).groups
    (one,) = group.topics[0].partitions
    assert (one.error_code, one.start_offset, one.leader_epoch, one.lag) == (0, -1, 0, -1)
    assert second in share_node.persister.states
    # What is named twice is told of once.
    (group,) = share_node.ask(
        DescribeShareGroupOffsetsRequest(
            groups=[
                DescribeShareGroupOffsetsRequestGroup(
                    group_id="g",
                    topics=[
                        DescribeShareGroupOffsetsRequestTopic(topic_name="in", partitions=[0, 0, 1]),
                        DescribeShareGroupOffsetsRequestTopic(topic_name="in", partitions=[1]),
                    ],
                )
            ]
        )
    ).groups
    (topic,) = group.topics
    assert [one.partition_index for one in topic.partitions] == [0, 1]
    # Nobody is asked for a partition that is not there.
    share_node.persister.refusals.append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    (group,) = share_node.ask(describing(("in", [7, -1]))).groups
    assert [(one.error_code, one.start_offset) for one in group.topics[0].partitions] == [(0, -1), (0, -1)]
    assert share_node.persister.refusals == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


class LogEnds:
    """Of other nodes; the test answers."""

    def __init__(self):
        self.asked = []

    def ask(self, partitions, then):
        self.asked.append((list(partitions), then))


def led_by(node, *leaders):
    """The partitions of `in` have these leaders."""
    view = node.machine.view
    topic = view.topics["in"]
    moved = tuple(one._replace(leader=leader) for one, leader in zip(topic.partitions, leaders, strict=True))
    node.machine.publisher.view = replace(
        view, topics={**view.topics, "in": replace(topic, partitions=moved)}
    )


def lags(group):
    return [
        (one.partition_index, one.error_code, one.start_offset, one.lag)
        for topic in group.topics
        for one in topic.partitions
    ]


def test_the_lag_where_another_node_leads_is_asked_of_that_one(share_node):
    join(share_node)
    share_node.fill("in", [b"1", b"2", b"3"])
    for index in (0, 1):
        key = SharePartitionKey("g", topic_id(share_node), index)
        share_node.persister.states[key] = (2, 1)
        share_node.persister.delivered[key] = 1
    led_by(share_node, 1, 2)
    share_node.log_ends = ends = LogEnds()
    answers = [share_node.start(describing(("in", [0, 1]))) for _ in range(2)]
    for answer, end, told in zip(
        answers,
        (9, ErrorCode.NETWORK_EXCEPTION),
        ((1, 0, 1, 7), (1, ErrorCode.NETWORK_EXCEPTION, 0, -1)),
        strict=True,
    ):
        assert not answer.was_sent
        partitions, then = ends.asked.pop(0)
        assert partitions == [("in", 1)]
        then({("in", 1): end})
        share_node.loop.turn()
        (group,) = answer.response.groups
        assert lags(group) == [(0, 0, 1, 1), told]
    led_by(share_node, 1, -1)
    (group,) = share_node.ask(describing(("in", [1]))).groups
    assert lags(group) == [(1, ErrorCode.LEADER_NOT_AVAILABLE, 0, -1)]
    # Without a state, or without a count, there is nothing to ask for.
    led_by(share_node, 1, 2)
    share_node.persister.delivered.clear()
    (group,) = share_node.ask(describing(("in", [1]))).groups
    assert (lags(group), ends.asked) == ([(1, 0, 1, -1)], [])


def test_offsets_of_an_empty_group_are_altered(share_node):
    share_node.create("other")
    refused = altering(missing={0: 1}, **{"in": {0: 5, 7: 1}})
    answer = share_node.ask(refused)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert told(answer.responses) == [
        ("missing", ZERO_UUID, 0, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("in", topic_id(share_node), 0, "NONE"),
        ("in", topic_id(share_node), 7, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    key = SharePartitionKey("g", topic_id(share_node), 0)
    assert share_node.persister.states == {key: (1, 5)}
    (group,) = share_node.ask(describing(None)).groups
    assert [one.partition_index for one in group.topics[0].partitions] == [0]
    share_node.persister.refusals.append(ErrorCode.FENCED_STATE_EPOCH)
    (topic,) = share_node.ask(altering(other={0: 9})).responses
    assert (topic.partitions[0].error_code, topic.partitions[0].error_message) == (
        ErrorCode.FENCED_STATE_EPOCH,
        "refused",
    )
    twice = altering(other={0: 9})
    twice.topics[0].partitions *= 2
    assert [one[2:] for one in told(share_node.ask(twice).responses)] == [(0, "NONE")] * 2
    join(share_node)
    answer = share_node.ask(altering(other={0: 9}))
    assert (answer.error_code, answer.responses) == (ErrorCode.NON_EMPTY_GROUP, [])
    assert share_node.ask(altering(group="", other={0: 9})).error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_an_empty_group_are_deleted(share_node):
    join(share_node)
    assert share_node.ask(forgetting("in")).error_code == ErrorCode.NON_EMPTY_GROUP
    share_node.ask(LEAVE)
    share_node.persister.refusals.append(ErrorCode.NOT_COORDINATOR)
    (topic,) = share_node.ask(forgetting("in")).responses
    assert (topic.topic_name, topic.topic_id, topic.error_code) == (
        "in",
        topic_id(share_node),
        ErrorCode.NOT_COORDINATOR,
    )
    answer = share_node.ask(forgetting("in", "missing"))
    assert [(one.topic_name, one.error_code) for one in answer.responses] == [("in", 0), ("missing", 3)]
    assert share_node.persister.states == {}
    (topic,) = share_node.ask(forgetting("in")).responses
    assert topic.error_message == "There is no offset information to delete."
    answer = share_node.ask(forgetting("in", group="none"))
    assert (answer.error_code, answer.error_message) == (69, "Group none not found.")
    assert share_node.ask(forgetting("in", group="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_works_by_settings_of_its_own(share_node):
    share_node.group_settings.group_configs = {"g": {"share.heartbeat.interval.ms": "7000"}}
    assert share_node.ask(JOIN).heartbeat_interval_ms == 7_000


def test_without_the_feature_there_are_no_share_groups(share_node):
    share_node.group_settings.share_version = 0
    code = ErrorCode.UNSUPPORTED_VERSION
    assert share_node.ask(JOIN).error_code == code
    (group,) = share_node.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.group_id, group.error_code) == ("g", code)
    (group,) = share_node.ask(describing(None)).groups
    assert (group.group_id, group.error_code) == ("g", code)
    for request in (altering(), forgetting()):
        answer = share_node.ask(request)
        assert (answer.error_code, answer.error_message) == (code, error_message(code))


def test_who_may_not_read_or_describe_a_topic_is_refused_there(share_node):
    join(share_node)
    share_node.authorizer = Granting.all_but(share_node, (READ, TOPIC, "in"), (DESCRIBE, TOPIC, "in"))
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert share_node.ask(JOIN).error_code == code
    (group,) = share_node.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert (group.error_code, group.members) == (code, [])
    (group,) = share_node.ask(describing(None)).groups
    assert (group.error_code, group.topics) == (0, [])
    (group,) = share_node.ask(describing(("in", [0]))).groups
    assert (group.topics[0].topic_id, group.topics[0].partitions[0].error_code) == (ZERO_UUID, code)
    share_node.authorizer = Granting.all_but(share_node)
    share_node.ask(LEAVE)
    share_node.authorizer = Granting.all_but(share_node, (READ, TOPIC, "in"))
    assert told(share_node.ask(altering(**{"in": {0: 1}})).responses) == [
        ("in", ZERO_UUID, 0, "TOPIC_AUTHORIZATION_FAILED")
    ]
    (topic,) = share_node.ask(forgetting("in")).responses
    assert (topic.topic_name, topic.error_code) == ("in", code)
    assert len(share_node.persister.states) == 2
