"""The broker settings that groups obey, with Kafka's defaults; the server fills them in from its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["GroupConfig", "GroupSettings"]


@dataclass(slots=True)
class GroupConfig:
    """What a group may set for itself, with the broker's defaults (`group.consumer...`)."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    """Shortest time between two assignments."""


@dataclass(slots=True)
class GroupSettings:
    """Read at each use, so that a dynamic setting may be changed in place."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    append_max_bytes: int = 1_048_588
    """The largest batch that `__consumer_offsets` takes (its `max.message.bytes`)."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """`offsets.retention.minutes`"""
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    """Used until `__consumer_offsets` exists; then its own number of partitions counts."""
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Those that are offered, the first being the default."""
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_config: GroupConfig = field(default_factory=GroupConfig)
    """Of groups without anything of their own."""
    group_configs: Mapping[str, GroupConfig] = field(default_factory=dict)
    """Of groups that have something of their own, within the broker's bounds."""

    def of_group(self, group_id: str) -> GroupConfig:
        """Asked with every heartbeat."""
        return self.group_configs.get(group_id, self.group_config)
