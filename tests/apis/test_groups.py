"""Groups by way of their APIs: the real coordinator, a log in memory, a clock that we turn."""

from dataclasses import replace

import pytest

from odradek.apis import operations
from odradek.coordinator.cluster.view import (
    Broker,
    Endpoint,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


@pytest.fixture
def group_node(node):
    """A node whose `__consumer_offsets` exists and is loaded."""
    find(node, "g")
    node.loop.turn()
    return node


# FindCoordinator


def find(node, key, version=6, key_type=0):
    if version < 4:
        request = FindCoordinatorRequest(key=key, key_type=key_type if version else 0)
        return node.ask(request, version)
    request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    return node.ask(request, version).coordinators[0]


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_the_first_question_creates_the_offsets_topic_and_is_answered(node, version):
    answer = find(node, "g", version)
    assert (answer.error_code, answer.node_id) == (0, 1)
    assert (answer.host, answer.port) == ("broker.example", 19092)
    assert len(node.machine.view.topics["__consumer_offsets"].partitions) == 5


def test_many_keys_are_answered_in_their_order(node):
    request = FindCoordinatorRequest(coordinator_keys=["b", "a", "c"])
    answers = node.ask(request, 4).coordinators
    assert [(one.key, one.error_code, one.node_id) for one in answers] == [
        ("b", 0, 1),
        ("a", 0, 1),
        ("c", 0, 1),
    ]


@pytest.mark.parametrize("version", [3, 4])
def test_other_coordinators_are_refused_at_once(node, version):
    answer = find(node, "k", version, 9)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)


def test_a_topic_that_cannot_be_created_makes_no_coordinator(node):
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert find(node, "g").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.metadata.failure = None
    assert find(node, "g").error_code == ErrorCode.NONE


def test_the_coordinator_is_the_leader_of_the_groups_partition(group_node):
    node = group_node
    index = node.groups.partition_of("g")
    node.machine.register_broker(Broker(2, {"PLAINTEXT": Endpoint("other.example", 9093)}))
    move_leader(node, index, 2)
    answer = find(node, "g")
    assert (answer.node_id, answer.host, answer.port) == (2, "other.example", 9093)
    move_leader(node, index, -1)
    assert find(node, "g").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def move_leader(node, index, leader):
    view = node.machine.view
    topic = view.topics["__consumer_offsets"]
    partitions = list(topic.partitions)
    partitions[index] = partitions[index]._replace(leader=leader, leader_epoch=1)
    moved = replace(topic, partitions=tuple(partitions))
    node.machine.publisher.view = replace(view, topics={**view.topics, "__consumer_offsets": moved})
    node.groups.view_changed(node.machine.view)


# Members


def join(group_id="g", member_id="", protocols=("range",), **fields):
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=b"meta") for name in protocols],
        **fields,
    )


def joined(node, version=9, **fields):
    """A member that is in: its answer to JoinGroup."""
    first = node.ask(join(**fields), version)
    if first.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return node.ask(join(member_id=first.member_id, **fields), version)
    return first


def stable(node, **fields):
    """A group with one member and its assignment."""
    member = joined(node, **fields)
    answer = node.ask(sync(member))
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    return member


def sync(member, **fields):
    return SyncGroupRequest(
        group_id="g",
        generation_id=member.generation_id,
        member_id=member.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")],
        **{"protocol_type": "consumer", "protocol_name": "range"} | fields,
    )


@pytest.mark.parametrize("version", [0, 6, 7])
def test_a_member_joins_and_leads(group_node, version):
    member = joined(group_node, version)
    assert (member.error_code, member.generation_id) == (0, 1)
    assert member.member_id == member.leader
    assert member.member_id.startswith("tester-")
    assert (member.protocol_name, member.skip_assignment) == ("range", False)
    assert [(one.member_id, one.metadata) for one in member.members] == [(member.member_id, b"meta")]
    assert member.protocol_type == ("consumer" if version >= 7 else None)


@pytest.mark.parametrize(("version", "asks_again"), [(3, False), (4, True)])
def test_from_version_4_on_a_new_member_has_to_come_back_with_its_id(group_node, version, asks_again):
    first = group_node.ask(join(), version)
    assert (first.error_code == ErrorCode.MEMBER_ID_REQUIRED) is asks_again
    assert first.member_id


@pytest.mark.parametrize(("version", "nothing"), [(6, ""), (7, None)])
def test_no_protocol_is_an_empty_name_before_version_7_and_null_from_then_on(group_node, version, nothing):
    refused = group_node.ask(join(group_id=""), version)
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
    assert refused.protocol_name == nothing


def test_a_group_knows_the_time_outs_of_its_members(group_node):
    for version, rebalance_timeout_ms in ((9, 7_000), (0, 10_000)):
        group_id = f"v{version}"
        joined(group_node, version, group_id=group_id, rebalance_timeout_ms=7_000)
        machine = group_node.groups.partitions[group_node.groups.partition_of(group_id)].machine
        (member,) = machine.groups[group_id].members.values()
        assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, rebalance_timeout_ms)


def test_two_members_meet_and_the_follower_waits_for_the_leader(group_node):
    node = group_node
    leader = joined(node)
    second_id = node.ask(join()).member_id
    second = node.start(join(member_id=second_id))
    assert not second.was_sent
    again = node.ask(join(member_id=leader.member_id))
    node.loop.turn()
    assert (again.generation_id, second.response.generation_id) == (2, 2)
    assert {one.member_id for one in again.members} == {leader.member_id, second_id}
    assert second.response.members == []
    waiting = node.start(
        SyncGroupRequest(
            group_id="g",
            generation_id=2,
            member_id=second_id,
            protocol_type="consumer",
            protocol_name="range",
        )
    )
    node.loop.turn()
    assert not waiting.was_sent
    request = sync(again)
    request.assignments.append(SyncGroupRequestAssignment(member_id=second_id, assignment=b"yours"))
    assert node.ask(request).assignment == b"mine"
    assert waiting.response.assignment == b"yours"


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_from_version_5_on_a_sync_has_to_name_type_and_protocol(group_node, missing):
    member = joined(group_node)
    assert group_node.ask(sync(member, **{missing: None}), 4).error_code == 0
    refused = group_node.ask(sync(member, **{missing: None}), 5)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong = group_node.ask(sync(member, **{missing: "other"}), 5)
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_heartbeats_are_answered(group_node):
    member = stable(group_node)
    fields = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
    assert group_node.ask(HeartbeatRequest(**fields)).error_code == 0
    for change, code in (({"generation_id": 9}, 22), ({"member_id": "x"}, 25), ({"group_id": "u"}, 25)):
        assert group_node.ask(HeartbeatRequest(**fields | change)).error_code == code


def test_a_member_leaves_by_its_id(group_node):
    member = stable(group_node)
    for member_id, code in ((member.member_id, 0), (member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)):
        request = LeaveGroupRequest(group_id="g", member_id=member_id)
        assert group_node.ask(request, 2).error_code == code


def test_from_version_3_on_each_leaving_member_has_its_own_error(group_node):
    member = stable(group_node)
    members = [MemberIdentity(member_id="x"), MemberIdentity(member_id=member.member_id)]
    response = group_node.ask(LeaveGroupRequest(group_id="g", members=members), 3)
    assert response.error_code == 0
    assert [(one.member_id, one.error_code) for one in response.members] == [
        ("x", ErrorCode.UNKNOWN_MEMBER_ID),
        (member.member_id, 0),
    ]


def test_a_member_whose_connection_is_gone_stays_until_its_session_ends(group_node):
    node = group_node
    leader = stable(node)
    second_id = node.ask(join()).member_id
    node.start(join(member_id=second_id)).cancel()
    again = node.ask(join(member_id=leader.member_id))
    assert second_id in {one.member_id for one in again.members}


def test_a_static_member_is_known_by_its_instance_in_every_request(group_node):
    """KIP-345. `test_static_members.py` of compat_tests/groups has what clients do with it."""
    node, instance = group_node, {"group_instance_id": "i"}
    old = stable(node, **instance)
    assert old.member_id.startswith("i-")
    assert [one.group_instance_id for one in old.members] == ["i"]
    before_version_9 = node.ask(join(**instance), 8)
    assert (before_version_9.leader, before_version_9.skip_assignment) == (old.member_id, False)
    back = node.ask(join(**instance, reason="a restart"))
    assert (back.leader, back.generation_id, back.skip_assignment) == (back.member_id, 1, True)
    for member, code in ((old, ErrorCode.FENCED_INSTANCE_ID), (back, ErrorCode.NONE)):
        named = {"group_id": "g", "generation_id": 1, "member_id": member.member_id, **instance}
        assert node.ask(HeartbeatRequest(**named)).error_code == code
        assert node.ask(sync(member, **instance)).error_code == code
    (group,) = node.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert [one.group_instance_id for one in group.members] == ["i"]
    leaving = [(old.member_id, "i"), ("", "nobody"), ("", "i")]
    members = [MemberIdentity(member_id=id_, group_instance_id=of, reason="gone") for id_, of in leaving]
    left = node.ask(LeaveGroupRequest(group_id="g", members=members))
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in left.members] == [
        (old.member_id, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.NONE),
    ]


# Administration


@pytest.mark.parametrize("version", [2, 3])
def test_a_group_is_described(group_node, version):
    member = stable(group_node)
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=version >= 3)
    (group,) = group_node.ask(request, version).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (described,) = group.members
    assert (described.member_id, described.client_id) == (member.member_id, "tester")
    assert described.client_host == "/192.0.2.7"
    assert (described.member_metadata, described.member_assignment) == (b"meta", b"mine")
    expected = operations.ON_GROUP if version >= 3 else operations.NOT_ASKED
    assert group.authorized_operations == expected


@pytest.mark.parametrize("version", [5, 6])
def test_an_unknown_group_is_dead_and_from_version_6_on_an_error(group_node, version):
    (group,) = group_node.ask(DescribeGroupsRequest(groups=["u"]), version).groups
    assert (group.group_id, group.group_state, group.members) == ("u", "Dead", [])
    if version >= 6:
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert group.error_message
    else:
        assert group.error_code == 0


def test_groups_are_listed_by_state_and_type(group_node):
    stable(group_node)

    def listed(**filters):
        groups = group_node.ask(ListGroupsRequest(**filters)).groups
        return [(one.group_id, one.protocol_type) for one in groups]

    assert listed() == [("g", "consumer")]
    assert listed(states_filter=["Stable"]) == [("g", "consumer")]
    assert listed(states_filter=["Empty"]) == []
    assert listed(types_filter=["classic"]) == [("g", "consumer")]
    assert listed(types_filter=["consumer"]) == []


def test_only_empty_groups_are_deleted(group_node):
    member = stable(group_node)

    def delete():
        response = group_node.ask(DeleteGroupsRequest(groups_names=["g", "u", "g"]))
        return {one.group_id: one.error_code for one in response.results}

    assert delete() == {"g": ErrorCode.NON_EMPTY_GROUP, "u": ErrorCode.GROUP_ID_NOT_FOUND}
    members = [MemberIdentity(member_id=member.member_id)]
    group_node.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert delete() == {"g": ErrorCode.NONE, "u": ErrorCode.GROUP_ID_NOT_FOUND}


def test_nothing_asked_is_nothing_answered(group_node):
    assert group_node.ask(DescribeGroupsRequest(groups=[])).groups == []
    assert group_node.ask(DeleteGroupsRequest(groups_names=[])).results == []
    assert group_node.ask(FindCoordinatorRequest(coordinator_keys=[])).coordinators == []
