"""The replicas of partitions that this node leads, as the handlers of Fetch and Produce see them.

A node alone has none: whoever fetches as a replica is refused with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.coordinator.replication.replica_state import FollowerRead

ReplicaKey = tuple[str, int]
"""Name of the topic and number of the partition."""


class FetchingReplica(NamedTuple):
    """The broker that fetches."""

    id: int
    epoch: int
    """Its broker epoch, -1 where it does not say it."""
    version: int = -1
    """Version of its request."""


class EpochNotSaved(KafkaError):
    """The disk does not have the leader epoch yet, so a replica's fetch has to wait. Watchers of the log are
    woken when it has."""

    records = b""
    """An outcome of a fetch has records."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The disk does not have this leader epoch yet.")


class Replicas(Protocol):
    """Implemented by `server/cluster/leading.py`."""

    def read(
        self,
        key: ReplicaKey,
        replica: FetchingReplica,
        leader_epoch: int,
        fetch_offset: int,
        last_fetched_epoch: int,
    ) -> FollowerRead:
        """Range that the replica may read: see `LeaderState.read_for_follower`, also for the refusals. Raises
        `EpochNotSaved` as long as the replica has to wait."""

    def fetched(
        self,
        key: ReplicaKey,
        replica: FetchingReplica,
        fetch_offset: int,
        log_start_offset: int,
        read: FollowerRead,
    ) -> None:
        """The replica has all before `fetch_offset`; may move the high watermark and the ISR."""

    def serve_in_place(self, handler: Any, session: Any, replica: FetchingReplica, context: Any) -> None:
        """The session (`fetch_sessions.FetchSession`) is as a request with that context has left it. Later
        ones of its connection may be served without their handler (`in_place.FetchHandler`), which is asked
        again for everything that is unusual."""

    def holds_back(self, key: ReplicaKey, replica: FetchingReplica) -> bool:
        """Whether the replica is sent nothing now: it is throttled, out of sync, and the rate of all that are
        throttled is over its limit."""

    def sent(self, key: ReplicaKey, size_bytes: int) -> None:
        """Counts bytes of that partition that go to a replica."""

    def leads(self, key: ReplicaKey, leader_epoch: int) -> bool:
        """Whether this node has begun to lead in that epoch."""

    def check_append(self, key: ReplicaKey) -> None:
        """Refuses an append with acks=all with NOT_ENOUGH_REPLICAS."""

    def has_offsets(self, key: ReplicaKey) -> bool:
        """Whether the latest offset may be told; until then it is OFFSET_NOT_AVAILABLE (KIP-207)."""

    def low_watermark(self, key: ReplicaKey) -> int | None:
        """Where the records begin on all live replicas, -1 while a live one has not fetched. None: this node
        leads no replicated partition of this key."""

    def watch_low_watermark(self, key: ReplicaKey, wake: Callable[[], None]) -> None:
        """`wake` is called when the low watermark may have changed, until `unwatch_low_watermark`."""

    def unwatch_low_watermark(self, key: ReplicaKey, wake: Callable[[], None]) -> None:
        """Harmless where it does not watch."""

    @property
    def selects_by_rack(self) -> bool:
        """Whether `replica.selector.class` picks a replica in the consumer's rack (KIP-392)."""

    def preferred_read_replica(self, key: ReplicaKey, rack: str, fetch_offset: int) -> int | None:
        """The follower from which a consumer in that rack should read; None: this node."""
