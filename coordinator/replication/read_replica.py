"""Which replica a consumer should read from (KIP-392): the leader, or one that is nearer.

Source: `ReplicaManager.findPreferredReadReplica` and `RackAwareReplicaSelector` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.coordinator.replication.replica_state import LeaderState

Racks = Callable[[int], str | None]
"""The rack of a live broker by its id; None where it has none, or is fenced."""


class Candidate(NamedTuple):
    replica_id: int
    log_end_offset: int
    caught_up_ms: int


def candidates(leader: LeaderState, fetch_offset: int) -> list[Candidate]:
    """The followers that can serve this offset: in the ISR, as others may lag for ever, and with the offset
    in their log (KAFKA-14372).
    """
    return [
        Candidate(replica_id, follower.log_end_offset, follower.caught_up_ms)
        for replica_id, follower in leader.followers.items()
        if replica_id in leader.in_sync.isr
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
    ]


def preferred_read_replica(
    leader: LeaderState, client_rack: str, fetch_offset: int, racks: Racks
) -> int | None:
    """The follower in the client's rack that has most; None: the leader. For consumers alone: a replica is
    never sent elsewhere (KAFKA-13778). The response that names it has no records.
    """
    if not client_rack or not leader.is_leading:
        return None
    if racks(leader.node_id) == client_rack:
        return None
    near = [one for one in candidates(leader, fetch_offset) if racks(one.replica_id) == client_rack]
    best = max(near, key=lambda one: (one.log_end_offset, one.caught_up_ms, one.replica_id), default=None)
    return None if best is None else best.replica_id
