"""The entry of consumer groups (KIP-848). Members of the classic protocol may join them, so the commands of
that protocol are handled here for groups of both types (`migration.py`).
"""

from __future__ import annotations

from odradek.coordinator.groups.classic_membership import Membership
from odradek.coordinator.groups.commands import TopicsMatched
from odradek.coordinator.groups.consumer_membership import TIMERS, ConsumerMembership
from odradek.coordinator.groups.group import CLASSIC, CONSUMER
from odradek.coordinator.groups.group_type import GroupHandlers, GroupType, MachineParts
from odradek.coordinator.groups.migration import Migration
from odradek.coordinator.groups.request_checks import CONSUMER_CHECKS
from odradek.wire.messages import group_records
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.sync_group import SyncGroupRequest


def _start(parts: MachineParts) -> GroupHandlers:
    classic = parts.memberships[CLASSIC]
    assert isinstance(classic, Membership)
    consumers = ConsumerMembership(parts)
    migration = Migration(parts, classic, consumers)
    consumers.migration = migration
    return GroupHandlers(
        membership=consumers,
        new_group=consumers.new_group,
        commands={
            ConsumerGroupHeartbeatRequest: consumers.heartbeat,
            ConsumerGroupDescribeRequest: consumers.describe,
            TopicsMatched: consumers.topics_matched,
            JoinGroupRequest: migration.join,
            SyncGroupRequest: migration.sync,
            HeartbeatRequest: migration.heartbeat,
            LeaveGroupRequest: migration.leave,
        },
        quick_commands={ConsumerGroupHeartbeatRequest: consumers.quick_heartbeat},
    )


CONSUMER_GROUPS = GroupType(
    name=CONSUMER, records=group_records.CONSUMER, timers=TIMERS, start=_start, checks=CONSUMER_CHECKS
)
