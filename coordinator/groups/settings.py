"""The settings of groups: the broker's, with Kafka's defaults, and the overrides of single groups.

The server fills in the broker's from its options and `group_configs` from the cluster's metadata. Fields have
Kafka's names with underscores for dots. Source: GroupCoordinatorConfig and GroupConfig of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.config.options import GROUP_OPTIONS, first_of_list, own_group_value

_NONE: Mapping[str, Any] = MappingProxyType({})
CACHED_CONFIGS_MAX = 10_000


class Intervals(NamedTuple):
    """The settings of a group with epochs that say when something has to happen."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of one group: its own settings within the broker's bounds, else the broker's."""

    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_assignment_interval_ms: int
    """Shortest time between two target assignments."""
    streams_session_timeout_ms: int
    streams_heartbeat_interval_ms: int
    streams_num_standby_replicas: int
    streams_initial_rebalance_delay_ms: int
    streams_assignment_interval_ms: int
    streams_assignor_name: str
    streams_rack_aware_assignment_tags: tuple[str, ...]
    streams_task_offset_interval_ms: int
    streams_acceptable_recovery_lag: int
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    share_assignment_interval_ms: int
    share_auto_offset_reset: str
    """"earliest", "latest" or "by_duration:" with an ISO 8601 duration."""
    share_isolation_level: str
    share_record_lock_duration_ms: int
    share_delivery_count_limit: int
    share_partition_max_record_locks: int
    share_renew_acknowledge_enable: bool
    errors_deadletterqueue_topic_name: str
    errors_deadletterqueue_copy_record_enable: bool
    intervals: Mapping[str, Intervals] = field(init=False, repr=False, compare=False)
    """By type of group: the same settings by names that all three types have."""

    def __post_init__(self) -> None:
        intervals = {
            kind: Intervals(*(getattr(self, f"{kind}_{name}") for name in Intervals._fields))
            for kind in ("consumer", "streams", "share")
        }
        object.__setattr__(self, "intervals", intervals)


@dataclass(slots=True)
class GroupSettings:
    """Read at each use, so that a dynamic setting may be changed in place."""

    # Classic groups
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    # Consumer groups (KIP-848)
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_size: int = 2**31 - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors that members may name; the first is the default."""
    group_consumer_migration_policy: str = "bidirectional"
    """Between which protocols a group may change while it lives: "upgrade" (classic to consumer),
    "downgrade", "bidirectional" or "disabled"."""
    group_consumer_regex_refresh_interval_ms: int = 600_000
    # Streams groups (KIP-1071)
    group_streams_session_timeout_ms: int = 45_000
    group_streams_min_session_timeout_ms: int = 45_000
    group_streams_max_session_timeout_ms: int = 60_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_min_heartbeat_interval_ms: int = 5_000
    group_streams_max_heartbeat_interval_ms: int = 15_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_max_assignment_interval_ms: int = 15_000
    group_streams_max_size: int = 2**31 - 1
    group_streams_num_standby_replicas: int = 0
    group_streams_max_standby_replicas: int = 2
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_assignors: tuple[str, ...] = ("sticky",)
    """The assignors that groups may name; the first is the default."""
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = ()
    group_streams_task_offset_interval_ms: int = 60_000
    group_streams_min_task_offset_interval_ms: int = 15_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_max_warmup_replicas: int = 20
    """Upper bound of a group's own value, which has no effect."""
    # Share groups (KIP-932)
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_max_size: int = 200
    group_share_initialize_retry_interval_ms: int = 30_000
    """After so long the state of a share partition that was not initialized is tried again."""
    group_share_delivery_count_limit: int = 5
    group_share_min_delivery_count_limit: int = 2
    group_share_max_delivery_count_limit: int = 10
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_partition_max_record_locks: int = 2_000
    group_share_min_partition_max_record_locks: int = 100
    group_share_max_partition_max_record_locks: int = 4_000
    # Which types of groups there are
    group_coordinator_rebalance_protocols: frozenset[str] = frozenset({"classic", "consumer", "streams"})
    """Deprecated in Kafka, and still obeyed: what is not in it is answered with UNSUPPORTED_VERSION."""
    group_version: int = 1
    """Finalized level of the feature `group.version`; at 0 there are no consumer groups."""
    streams_version: int = 1
    """Finalized level of the feature `streams.version`; at 0 there are no streams groups."""
    share_version: int = 0
    """Finalized level of the feature `share.version`; at 0 there are no share groups."""
    # Records and offsets
    append_max_bytes: int = 1_048_588
    """The largest batch that `__consumer_offsets` takes (its `max.message.bytes`)."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """`offsets.retention.minutes`"""
    offsets_commit_timeout_ms: int = 5_000
    """For how long a reply waits for other replicas of `__consumer_offsets`."""
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    """Used until `__consumer_offsets` exists; then its own number of partitions counts."""
    # Groups that have settings of their own
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: _NONE)
    """Settings by group id, as they were set (`ClusterView.group_configs`); to be replaced, never changed."""
    _configs: dict[str | None, GroupConfig] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached results of `of_group`; None stands for every group without overrides."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name != "_configs":
            # Only `__init__` sets fields before there is anything to forget.
            getattr(self, "_configs", {}).clear()

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether ConsumerGroupHeartbeat and ConsumerGroupDescribe are answered."""
        return self.group_version >= 1 and "consumer" in self.group_coordinator_rebalance_protocols

    @property
    def serves_streams_groups(self) -> bool:
        """Whether StreamsGroupHeartbeat and StreamsGroupDescribe are answered."""
        return self.streams_version >= 1 and "streams" in self.group_coordinator_rebalance_protocols

    @property
    def serves_share_groups(self) -> bool:
        """Whether the APIs of share groups are answered: the feature alone decides."""
        return self.share_version >= 1

    @property
    def serves_dead_letters(self) -> bool:
        """Whether share groups may have dead letter queues."""
        return self.share_version >= 2

    def of_group(self, group_id: str) -> GroupConfig:
        """The options of this group at the moment; to be called at each use."""
        key = group_id if group_id in self.group_configs else None
        config = self._configs.get(key)
        if config is None:
            if len(self._configs) >= CACHED_CONFIGS_MAX:
                self._configs.clear()
            config = self._configs[key] = self._config(self.group_configs.get(group_id, _NONE))
        return config

    def _config(self, own: Mapping[str, str]) -> GroupConfig:
        """A value that the broker's bounds no longer allow counts as the nearest that they do."""
        values = {}
        for name in _fields():
            option = GROUP_OPTIONS[name]
            value = option.default_value
            if option.synonyms:
                value = first_of_list(option, self._of_broker(option.synonyms[0]))
            if name in own:
                at_least, at_most = option.bounds
                value = own_group_value(
                    option,
                    own[name],
                    None if at_least is None else self._of_broker(at_least),
                    None if at_most is None else self._of_broker(at_most),
                )
            values[_as_field(name)] = value
        return GroupConfig(**values)

    def _of_broker(self, name: str) -> Any:
        return getattr(self, _as_field(name))


def _as_field(name: str) -> str:
    return name.replace(".", "_")


@cache
def _fields() -> list[str]:
    """The options that `GroupConfig` has fields for."""
    return [name for name in GROUP_OPTIONS if _as_field(name) in GroupConfig.__slots__]
