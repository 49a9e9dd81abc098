"""The broker settings that the share coordinator obeys, with Kafka's defaults; the server fills them in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ShareStateSettings:
    """Read at each use."""

    updates_per_snapshot: int = 500
    """`share.coordinator.snapshot.update.records.per.snapshot`"""
    prune_interval_ms: int = 300_000
    """`share.coordinator.state.topic.prune.interval.ms`"""
    cold_snapshot_interval_ms: int = 300_000
    """`share.coordinator.cold.partition.snapshot.interval.ms`"""
    write_timeout_ms: int = 5_000
    """`share.coordinator.write.timeout.ms`: a reply waits so long for other replicas."""
    append_max_bytes: int = 1_048_588
    """The largest batch that `__share_group_state` takes (its `max.message.bytes`)."""
    topic_num_partitions: int = 50
    """`share.coordinator.state.topic.num.partitions`: used until `__share_group_state` exists; then its own
    number of partitions counts."""
