"""The replicas of partitions that this node leads, as the handlers of Fetch and Produce see them.

A node alone has none: whoever fetches as a replica is refused with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from odradek.coordinator.replication.replica_state import FollowerRead

ReplicaKey = tuple[str, int]
"""Name of the topic and number of the partition."""


class FetchingReplica(NamedTuple):
    """The broker that fetches."""

    id: int
    epoch: int
    """Its broker epoch, -1 where it does not say it."""


class Replicas(Protocol):
    """Implemented by `server/replication.py`."""

    def read(
        self,
        key: ReplicaKey,
        replica: FetchingReplica,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
    ) -> FollowerRead:
        """What the replica may read: see `LeaderState.read_for_follower`, also for the refusals."""

    def fetched(
        self,
        key: ReplicaKey,
        replica: FetchingReplica,
        fetch_offset: int,
        log_start_offset: int,
        read: FollowerRead,
    ) -> None:
        """The replica has all before `fetch_offset`; may move the high watermark and the ISR."""

    def leads(self, key: ReplicaKey, leader_epoch: int) -> bool:
        """Whether this node has begun to lead in that epoch."""

    def check_append(self, key: ReplicaKey) -> None:
        """Refuses an append with acks=all with NOT_ENOUGH_REPLICAS."""

    def has_offsets(self, key: ReplicaKey) -> bool:
        """Whether the latest offset may be told; until then it is OFFSET_NOT_AVAILABLE (KIP-207)."""
