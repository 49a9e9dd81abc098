"""Static members (KIP-345) by way of the APIs: which versions carry what, and who is fenced where."""

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

FIRST_VERSIONS = {"join": 5, "sync": 3, "heartbeat": 3, "leave": 3, "describe": 4}
"""In which an instance id can be said."""


@pytest.fixture
def group_node(node):
    """A node whose `__consumer_offsets` exists and is loaded."""
    node.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    node.loop.turn()
    return node


def join(node, version, **fields):
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
        **{"group_instance_id": "i", "member_id": ""} | fields,
    )
    return node.ask(request, version)


def settled(node, version=9):
    """A static member with its assignment."""
    member = join(node, version)
    assert (member.error_code, member.generation_id) == (0, 1)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=member.member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")],
    )
    assert node.ask(request, 5).assignment == b"mine"
    return member


@pytest.mark.parametrize("version", range(FIRST_VERSIONS["join"], 10))
def test_a_static_member_needs_no_second_join_and_the_leader_learns_its_instance(group_node, version):
    member = join(group_node, version)
    assert member.member_id.startswith("i-")
    assert [one.group_instance_id for one in member.members] == ["i"]


@pytest.mark.parametrize(
    ("version", "leads", "skips"), [(5, False, False), (8, False, False), (9, True, True)]
)
def test_a_leader_that_is_back_is_told_from_version_9_on_to_leave_the_assignment_alone(
    group_node, version, leads, skips
):
    before = settled(group_node)
    back = join(group_node, version)
    assert (back.error_code, back.generation_id) == (0, 1)
    assert (back.leader == back.member_id, back.skip_assignment) == (leads, skips)
    assert bool(back.members) is leads
    assert back.member_id != before.member_id


@pytest.mark.parametrize("version", range(FIRST_VERSIONS["heartbeat"], 5))
def test_the_heartbeat_of_a_replaced_member_is_fenced(group_node, version):
    old, new = settled(group_node), join(group_node, 9)
    for member, code in ((old, ErrorCode.FENCED_INSTANCE_ID), (new, ErrorCode.NONE)):
        request = HeartbeatRequest(
            group_id="g", generation_id=1, member_id=member.member_id, group_instance_id="i"
        )
        assert group_node.ask(request, version).error_code == code


@pytest.mark.parametrize("version", range(FIRST_VERSIONS["sync"], 6))
def test_the_sync_of_a_replaced_member_is_fenced(group_node, version):
    old, new = settled(group_node), join(group_node, 9)
    for member, code in ((old, ErrorCode.FENCED_INSTANCE_ID), (new, ErrorCode.NONE)):
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member.member_id,
            group_instance_id="i",
            protocol_type="consumer",
            protocol_name="range",
        )
        answer = group_node.ask(request, version)
        assert answer.error_code == code
        assert answer.assignment == (b"mine" if member is new else b"")


@pytest.mark.parametrize("version", range(FIRST_VERSIONS["leave"], 6))
def test_an_administrator_removes_members_by_their_instances_alone(group_node, version):
    old, new = settled(group_node), join(group_node, 9)
    members = [
        MemberIdentity(member_id=old.member_id, group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id="", group_instance_id="i", reason="the node is gone"),
        MemberIdentity(member_id=new.member_id, group_instance_id="i"),
    ]
    answer = group_node.ask(LeaveGroupRequest(group_id="g", members=members), version)
    assert answer.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        (old.member_id, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "i", ErrorCode.NONE),
        (new.member_id, "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    (group,) = group_node.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert (group.group_state, group.members) == ("Empty", [])


@pytest.mark.parametrize("version", range(7))
def test_the_instance_of_a_member_is_described_from_version_4_on(group_node, version):
    settled(group_node)
    (group,) = group_node.ask(DescribeGroupsRequest(groups=["g"]), version).groups
    (member,) = group.members
    assert member.group_instance_id == ("i" if version >= FIRST_VERSIONS["describe"] else None)


def test_why_a_member_joins_or_leaves_is_taken_and_changes_nothing(group_node):
    """The reason of KIP-800 is for logs."""
    member = join(group_node, 9, reason="need to re-join with the given member-id")
    assert member.error_code == 0
    leaving = MemberIdentity(member_id=member.member_id, reason="r" * 1_000)
    answer = group_node.ask(LeaveGroupRequest(group_id="g", members=[leaving]), 5)
    assert [one.error_code for one in answer.members] == [0]
