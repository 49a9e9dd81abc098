"""Inputs of the machines of replication: the log of a replica, the metadata of its partition, the brokers.

They are Protocols, so that the machines know neither the storage nor the records of a metadata log. `now_ms`
is everywhere a monotonic clock; no machine compares it with the clock of another node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

NO_LEADER = -1
UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1

ReplicaKey = tuple[str, int]
"""Name of the topic and number of the partition."""


class ReplicaLog(Protocol):
    """The log of this node's replica. The machines only read it; effects change it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int:
        """After the last record that was written; what is only staged does not count."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The newest entry of the leader epochs, also one without records; -1 when there is none."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not after `epoch` and the offset at which it ended, as
        `LeaderEpochs.end_offset_for`; (-1, -1) when unknown.
        """


class PartitionMetadata(Protocol):
    """A partition in a view of the cluster's metadata."""

    @property
    def leader(self) -> int:
        """A broker's id, or -1 when there is none."""

    @property
    def leader_epoch(self) -> int: ...

    @property
    def partition_epoch(self) -> int:
        """Grows with each change of the partition."""

    @property
    def replicas(self) -> Sequence[int]: ...

    @property
    def isr(self) -> Collection[int]: ...


class BrokerState(NamedTuple):
    """A registered broker, as the newest view of this node has it."""

    epoch: int
    is_fenced: bool = False
    is_in_shutdown: bool = False


Brokers = Callable[[int], BrokerState | None]
"""A broker of the newest view by its id; None for one that is not registered."""
