"""The settings of one log, under Kafka's topic names with underscores and with Kafka 4.4's defaults.

Source: `LogConfig.java` and `TopicConfig.java` of Kafka 4.4. Parsing, bounds and synonyms are in
`config/options.py`; here are values only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from odradek.wire.compression import Compression, compression_named
from odradek.wire.record_layout import RECORD_BYTES_MAX

CLEANING_STEP_BYTES = 65_536
"""Work of a few milliseconds, for compaction between requests."""
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@dataclass(slots=True, frozen=True, kw_only=True)
class LogConfig:
    """The settings of a topic that storage uses. Sizes in bytes, times in milliseconds, -1 is no limit."""

    cleanup_policy: frozenset[str] = field(default_factory=lambda: frozenset({"delete"}))
    """Any of `delete` and `compact`; empty keeps everything (KIP-1190)."""
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_decompressed_message_bytes: int = RECORD_BYTES_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The longest time for which a segment is active: its records must not wait too long for compaction.
        As `LogConfig.maxSegmentMs`.
        """
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def uses_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def codec(self) -> Compression | None:
        """The codec of stored batches; None keeps the producer's codec."""
        if self.compression_type == "producer":
            return None
        if self.compression_type == "uncompressed":
            return Compression.NONE
        return compression_named(self.compression_type)

    @property
    def codec_level(self) -> int | None:
        """The compression level; None where the codec has no levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """From parsed values by Kafka's names (`"segment.bytes"`); names that storage does not use are
        ignored.

        `cleanup.policy` may be a collection of names or their comma-separated text.
        """
        known: dict[str, Any] = {}
        for one in fields(cls):
            value = values.get(one.name.replace("_", "."))
            if value is not None:
                known[one.name] = value
        policy = known.get("cleanup_policy")
        if policy is not None:
            names = policy.split(",") if isinstance(policy, str) else policy
            known["cleanup_policy"] = frozenset(
                name.strip() for name in names if name.strip() not in ("", "none")
            )
        return cls(**known)
