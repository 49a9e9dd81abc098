"""The entry of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups.

They also keep the offsets of consumers without a group protocol, and DeleteOffsets is theirs to check.
"""

from __future__ import annotations

from odradek.coordinator.effects import Effect, Reply
from odradek.coordinator.groups.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.classic_membership import TIMERS, Membership
from odradek.coordinator.groups.commands import (
    DescribedMember,
    DescribeGroup,
    GroupDescription,
    Heartbeat,
    Join,
    Leave,
    Sync,
)
from odradek.coordinator.groups.group import CLASSIC
from odradek.coordinator.groups.group_type import GroupType, Handler, MachineParts, Protocol
from odradek.coordinator.groups.request_checks import CLASSIC_CHECKS
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import group_records

__all__ = ["CLASSIC_GROUPS"]


def _start(parts: MachineParts) -> Protocol:
    membership = Membership(parts.groups, parts.settings, parts.new_member_suffix, parts.store)
    return Protocol(
        membership=membership,
        new_group=ClassicGroup,
        commands={
            Join: membership.join,
            Sync: membership.sync,
            Heartbeat: membership.heartbeat,
            Leave: membership.leave,
            DescribeGroup: _describing(parts),
        },
        quick_commands={Heartbeat: membership.beat},
    )


def _describing(parts: MachineParts) -> Handler:
    def describe(command: DescribeGroup, now_ms: int, out: list[Effect]) -> None:
        group = parts.groups.get(command.group_id)
        if isinstance(group, ClassicGroup):
            description = _describe(group)
        else:
            # Tools look for these words: they are Kafka's.
            problem = "not found." if group is None else "is not a classic group."
            description = GroupDescription(
                ErrorCode.GROUP_ID_NOT_FOUND,
                command.group_id,
                KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {command.group_id} {problem}").own_message,
                GroupState.DEAD.value,
            )
        out.append(Reply(command.ticket, description))

    return describe


def _describe(group: ClassicGroup) -> GroupDescription:
    is_stable = group.state is GroupState.STABLE
    members = [
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    ]
    return GroupDescription(
        ErrorCode.NONE,
        group.group_id,
        None,
        group.state.value,
        group.protocol_type or "",
        group.protocol or "" if is_stable else "",
        members,
    )


CLASSIC_GROUPS = GroupType(
    name=CLASSIC, records=group_records.CLASSIC, timers=TIMERS, start=_start, checks=CLASSIC_CHECKS
)
