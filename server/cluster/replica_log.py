"""Parts for both sides of replication: settings, and logs as the pure machines see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """The log of a replica as the machines see it (`ReplicaLog`)."""

    __slots__ = ("partition",)

    def __init__(self, partition: Partition) -> None:
        self.partition = partition

    @property
    def log_start_offset(self) -> int:
        return self.partition.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    @property
    def latest_epoch(self) -> int:
        return self.partition.log.leader_epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        partition = self.partition
        return partition.log.leader_epochs.end_offset_for(epoch, partition.log_end_offset)
