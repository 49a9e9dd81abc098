"""Parts for both sides of replication: settings, and logs as the pure machines see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition


@dataclass(slots=True)
class ReplicationSettings:
    """Options of replication; those that may change while the node runs are written anew."""

    node_id: int
    listener: str
    """`inter.broker.listener.name`"""
    replica_lag_time_max_ms: int = 30_000
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 10_485_760
    partition_max_bytes: int = 1_048_576
    backoff_ms: int = 1_000
    socket_timeout_ms: int = 30_000
    receive_buffer_bytes: int = -1
    """`replica.socket.receive.buffer.bytes`; -1: the system's default."""
    fetchers_per_leader: int = 1
    selects_by_rack: bool = False
    """`replica.selector.class` is the one that goes by racks."""


class LocalReplicaLog:
    """The log of a replica as the machines see it (`ReplicaLog`), and as the compiled exchange does."""

    __slots__ = ("offsets", "partition", "survey")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.offsets: Callable[[], tuple[int, int, int]] = partition.appender.offsets
        """Log start, log end and high watermark."""
        self.survey: Callable[[Any, int, int, int], tuple[int, int] | None]
        self.survey = partition.appender.survey_leaders

    @property
    def log_start_offset(self) -> int:
        return self.partition.appender.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition.appender.buffer.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.partition.appender.high_watermark.offset

    @property
    def latest_epoch(self) -> int:
        return self.partition.log.leader_epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        partition = self.partition
        return partition.log.leader_epochs.end_offset_for(epoch, partition.log_end_offset)

    def take(self, buffer: Any, start: int, end: int, high_watermark: int) -> None:
        """Append the surveyed batches `buffer[start:end]`, if any; then the high watermark goes up to
        `high_watermark`, never down. Raises KafkaError."""
        partition = self.partition
        if start < end:
            partition.appender.append_leaders(buffer, start, end)
        if high_watermark > partition.appender.high_watermark.offset:
            partition.advance_high_watermark(high_watermark)
