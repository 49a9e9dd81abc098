"""The entry of streams groups (KIP-1071)."""

from __future__ import annotations

from odradek.coordinator.groups.group import STREAMS
from odradek.coordinator.groups.group_type import GroupType, MachineParts, Protocol
from odradek.coordinator.streams.commands import DescribeStreamsGroup, StreamsHeartbeat
from odradek.coordinator.streams.group import StreamsGroup
from odradek.coordinator.streams.membership import TIMERS, StreamsMembership
from odradek.wire.messages import group_records


def _start(parts: MachineParts) -> Protocol:
    membership = StreamsMembership(parts.groups, parts.settings, parts.topics, parts.store)
    return Protocol(
        membership=membership,
        new_group=StreamsGroup,
        commands={StreamsHeartbeat: membership.heartbeat, DescribeStreamsGroup: membership.describe},
    )


STREAMS_GROUPS = GroupType(name=STREAMS, records=group_records.STREAMS, timers=TIMERS, start=_start)
