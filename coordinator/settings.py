"""The broker settings that groups obey, with Kafka's defaults; the server fills them in from its options."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSettings"]


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
