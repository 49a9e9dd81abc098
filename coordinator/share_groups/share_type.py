"""The entry of share groups (KIP-932), and the checks of their commands that need no group."""

from __future__ import annotations

from typing import Any

from odradek.coordinator.groups.group import SHARE
from odradek.coordinator.groups.group_type import Check, GroupType, MachineParts, Protocol
from odradek.coordinator.share_groups.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    FindSharePartitions,
    ShareHeartbeat,
    ShareHeartbeatReply,
    StatesDeleted,
    StatesInitialized,
)
from odradek.coordinator.share_groups.group import ShareGroup
from odradek.coordinator.share_groups.membership import TIMERS, ShareMembership
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import group_records
from odradek.wire.messages.delete_groups import DeleteGroupsRequest


def _start(parts: MachineParts) -> Protocol:
    membership = ShareMembership(parts.groups, parts.settings, parts.topics, parts.store, parts.delete_group)
    return Protocol(
        membership=membership,
        new_group=ShareGroup,
        commands={
            ShareHeartbeat: membership.heartbeat,
            DescribeShareGroup: membership.describe,
            FindSharePartitions: membership.find_partitions,
            AlterShareOffsets: membership.alter_offsets,
            StatesInitialized: membership.states_initialized,
            DeleteShareOffsets: membership.delete_offsets,
            DeleteGroupsRequest: membership.delete_groups,
            StatesDeleted: membership.states_deleted,
        },
    )


def _check_heartbeat(command: ShareHeartbeat, _: Any) -> ShareHeartbeatReply | None:
    """INVALID_REQUEST. Kafka: GroupCoordinatorService."""
    for text, name in (
        (command.member_id, "MemberId"),
        (command.group_id, "GroupId"),
        (command.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            return _invalid(f"{name} can't be empty.")
    if command.member_epoch == JOIN_EPOCH and not command.subscribed_topic_names:
        return _invalid("SubscribedTopicNames must be set in first request.")
    if command.member_epoch < LEAVE_EPOCH:
        return _invalid("MemberEpoch is invalid.")
    return None


def _invalid(message: str) -> ShareHeartbeatReply:
    return ShareHeartbeatReply(ErrorCode.INVALID_REQUEST, message)


def _check_name(command: DescribeShareGroup | AlterShareOffsets | DeleteShareOffsets, _: Any) -> Any:
    return None if command.group_id else command.refused(ErrorCode.INVALID_GROUP_ID)


_CHECKS: dict[type, Check] = {
    ShareHeartbeat: _check_heartbeat,
    DescribeShareGroup: _check_name,
    AlterShareOffsets: _check_name,
    DeleteShareOffsets: _check_name,
}
SHARE_GROUPS = GroupType(name=SHARE, records=group_records.SHARE, timers=TIMERS, start=_start, checks=_CHECKS)
