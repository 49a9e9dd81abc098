"""The entry of streams groups (KIP-1071)."""

from __future__ import annotations

from odradek.coordinator.groups.group import STREAMS
from odradek.coordinator.groups.group_type import GroupHandlers, GroupType, MachineParts
from odradek.coordinator.groups.request_checks import check_described
from odradek.coordinator.streams.membership import TIMERS, StreamsMembership
from odradek.wire.messages import group_records
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def _start(parts: MachineParts) -> GroupHandlers:
    membership = StreamsMembership(parts)
    return GroupHandlers(
        membership=membership,
        new_group=membership.new_group,
        commands={
            StreamsGroupHeartbeatRequest: membership.heartbeat,
            StreamsGroupDescribeRequest: membership.describe,
        },
    )


STREAMS_GROUPS = GroupType(
    name=STREAMS,
    records=group_records.STREAMS,
    timers=TIMERS,
    start=_start,
    checks={StreamsGroupDescribeRequest: check_described},
)
