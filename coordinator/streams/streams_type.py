"""The entry of streams groups (KIP-1071)."""

from __future__ import annotations

from functools import partial

from odradek.coordinator.groups.group import STREAMS
from odradek.coordinator.groups.group_type import GroupHandlers, GroupType, Handler, MachineParts
from odradek.coordinator.groups.request_checks import check_described
from odradek.coordinator.streams.description_keeping import DescriptionKeeping
from odradek.coordinator.streams.descriptions import (
    DescriptionDeleted,
    DescriptionStored,
    TopologyDescriptions,
)
from odradek.coordinator.streams.membership import TIMERS, StreamsMembership
from odradek.wire.messages import group_records
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)


def streams_groups(descriptions: TopologyDescriptions | None = None) -> GroupType:
    """The type; `descriptions` keeps those of topologies, for all machines."""
    return GroupType(
        name=STREAMS,
        records=group_records.STREAMS,
        timers=TIMERS,
        start=partial(_start, descriptions),
        checks={StreamsGroupDescribeRequest: check_described},
    )


def _start(descriptions: TopologyDescriptions | None, parts: MachineParts) -> GroupHandlers:
    keeping = None if descriptions is None else DescriptionKeeping(parts, descriptions)
    membership = StreamsMembership(parts, keeping)
    commands: dict[type, Handler] = {
        StreamsGroupHeartbeatRequest: membership.heartbeat,
        StreamsGroupDescribeRequest: membership.describe,
    }
    if keeping is not None:
        commands |= {
            StreamsGroupTopologyDescriptionUpdateRequest: keeping.update,
            DescriptionStored: keeping.stored,
            DescriptionDeleted: keeping.deleted,
            JoinGroupRequest: keeping.joining(parts.handlers[JoinGroupRequest]),
        }
    return GroupHandlers(
        membership=membership,
        new_group=membership.new_group,
        commands=commands,
        delete=None if keeping is None else keeping.delete_group,
    )
