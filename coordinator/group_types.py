"""The types of groups that Kafka has."""

from __future__ import annotations

from odradek.coordinator.groups.classic_type import CLASSIC_GROUPS
from odradek.coordinator.groups.consumer_type import CONSUMER_GROUPS
from odradek.coordinator.groups.group_type import GroupTypes
from odradek.coordinator.shares.groups.share_type import SHARE_GROUPS
from odradek.coordinator.streams.descriptions import TopologyDescriptions
from odradek.coordinator.streams.streams_type import streams_groups


def group_types(descriptions: TopologyDescriptions | None = None) -> GroupTypes:
    """All of them; `descriptions` keeps those of topologies, None: nobody does."""
    return GroupTypes([CLASSIC_GROUPS, CONSUMER_GROUPS, streams_groups(descriptions), SHARE_GROUPS])


GROUP_TYPES = group_types()
"""The types without a store of descriptions."""
