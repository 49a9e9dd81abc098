"""The entry of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups.

They also keep the offsets of consumers without a group protocol, and OffsetDelete is theirs to check.
"""

from __future__ import annotations

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.groups.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.classic_membership import TIMERS, Membership
from odradek.coordinator.groups.group import CLASSIC
from odradek.coordinator.groups.group_type import GroupHandlers, GroupType, Handler, MachineParts
from odradek.coordinator.groups.request_checks import CLASSIC_CHECKS
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import group_records
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.sync_group import SyncGroupRequest


def _start(parts: MachineParts) -> GroupHandlers:
    membership = Membership(parts.groups, parts.settings, parts.new_member_suffix, parts.store)
    return GroupHandlers(
        membership=membership,
        new_group=ClassicGroup,
        commands={
            JoinGroupRequest: membership.join,
            SyncGroupRequest: membership.sync,
            HeartbeatRequest: membership.heartbeat,
            LeaveGroupRequest: membership.leave,
            DescribeGroupsRequest: _describing(parts),
        },
        quick_commands={HeartbeatRequest: membership.quick_heartbeat},
    )


def _describing(parts: MachineParts) -> Handler:
    def describe(
        asked: Asked[DescribeGroupsRequest, DescribeGroupsResponse], now_ms: int, out: list[Effect]
    ) -> None:
        (group_id,) = asked.request.groups
        group = parts.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            described = _describe(group)
        else:
            # Tools look for these words: they are Kafka's.
            problem = "not found." if group is None else "is not a classic group."
            code = ErrorCode.GROUP_ID_NOT_FOUND
            described = DescribedGroup(
                error_code=code,
                error_message=KafkaError(code, f"Group {group_id} {problem}").own_message,
                group_id=group_id,
                group_state=GroupState.DEAD.value,
            )
        out.append(Reply(asked.ticket, DescribeGroupsResponse(groups=[described])))

    return describe


def _describe(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol or "" if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


CLASSIC_GROUPS = GroupType(
    name=CLASSIC, records=group_records.CLASSIC, timers=TIMERS, start=_start, checks=CLASSIC_CHECKS
)
