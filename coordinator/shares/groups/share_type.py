"""The entry of share groups (KIP-932), and the checks of their requests that need no group."""

from __future__ import annotations

from typing import Any

from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_EPOCH, SHARE
from odradek.coordinator.groups.group_type import Check, GroupHandlers, GroupType, MachineParts
from odradek.coordinator.groups.request_checks import check_described, check_name
from odradek.coordinator.shares.groups.commands import StatesDeleted, StatesInitialized
from odradek.coordinator.shares.groups.membership import TIMERS, AskedHeartbeat, ShareMembership
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import alter_share_group_offsets as alter
from odradek.wire.messages import delete_share_group_offsets as delete
from odradek.wire.messages import describe_share_group_offsets as offsets
from odradek.wire.messages import group_records
from odradek.wire.messages import share_group_describe as describe
from odradek.wire.messages import share_group_heartbeat as heartbeat


def _start(parts: MachineParts) -> GroupHandlers:
    membership = ShareMembership(parts)
    return GroupHandlers(
        membership=membership,
        new_group=membership.new_group,
        commands={
            heartbeat.ShareGroupHeartbeatRequest: membership.heartbeat,
            describe.ShareGroupDescribeRequest: membership.describe,
            offsets.DescribeShareGroupOffsetsRequest: membership.describe_offsets,
            alter.AlterShareGroupOffsetsRequest: membership.alter_offsets,
            StatesInitialized: membership.states_initialized,
            delete.DeleteShareGroupOffsetsRequest: membership.delete_offsets,
            StatesDeleted: membership.states_deleted,
        },
        delete=membership.delete_group,
    )


def _check_heartbeat(asked: AskedHeartbeat, _: Any) -> heartbeat.ShareGroupHeartbeatResponse | None:
    """INVALID_REQUEST. Kafka: GroupCoordinatorService."""
    request = asked.request
    for text, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            return _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        return _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        return _invalid("MemberEpoch is invalid.")
    return None


def _invalid(message: str) -> heartbeat.ShareGroupHeartbeatResponse:
    return heartbeat.ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message)


_CHECKS: dict[type, Check] = {
    heartbeat.ShareGroupHeartbeatRequest: _check_heartbeat,
    describe.ShareGroupDescribeRequest: check_described,
    alter.AlterShareGroupOffsetsRequest: check_name,
    delete.DeleteShareGroupOffsetsRequest: check_name,
}
SHARE_GROUPS = GroupType(name=SHARE, records=group_records.SHARE, timers=TIMERS, start=_start, checks=_CHECKS)
