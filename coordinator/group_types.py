"""The types of groups that Kafka has."""

from __future__ import annotations

from odradek.coordinator.groups.classic_type import CLASSIC_GROUPS
from odradek.coordinator.groups.consumer_type import CONSUMER_GROUPS
from odradek.coordinator.groups.group_type import GroupTypes
from odradek.coordinator.shares.groups.share_type import SHARE_GROUPS
from odradek.coordinator.streams.streams_type import STREAMS_GROUPS

GROUP_TYPES = GroupTypes([CLASSIC_GROUPS, CONSUMER_GROUPS, STREAMS_GROUPS, SHARE_GROUPS])
