"""Effects of a metadata view on this node's replica of one partition.

A new leader epoch is what counts: it restarts the work of a leader or follower even where the leader is the
same. A view with the same leader epoch brings only another assignment or ISR (KAFKA-13132, KAFKA-13161).

Source: `ReplicaManager.applyDelta`, `Partition.makeLeader` and `makeFollower` of Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.coordinator.replication.values import NO_LEADER, UNKNOWN_EPOCH, PartitionMetadata


class Known(NamedTuple):
    """The epochs that a replica has; the partition epoch may come from a response to AlterPartition."""

    leader_epoch: int = UNKNOWN_EPOCH
    partition_epoch: int = UNKNOWN_EPOCH


class Lead(NamedTuple):
    """Stop fetching; give the view to `LeaderState.lead`, which sees by itself what is new."""

    is_new_epoch: bool
    """Waiting fetches and produces of the old epoch are woken."""


class Follow(NamedTuple):
    """Drop the state of a leader. With `restarts` fetch from `leader` anew, else go on as before."""

    leader: int
    restarts: bool
    """The leader epoch is new: those who wait for an append here get NOT_LEADER_OR_FOLLOWER."""


class Stop(NamedTuple):
    """There is nobody to follow: drop the state of a leader, fetch nothing, keep the log."""

    is_new_epoch: bool


class Delete(NamedTuple):
    """This node has no replica any more: stop, and delete the log."""


Transition = Lead | Follow | Stop | Delete


def transition(
    node_id: int, known: Known, view: PartitionMetadata | None, *, is_in_shutdown: bool = False
) -> Transition | None:
    """Transition of the replica; None where the view says nothing new. A `view` of None: the topic is gone.

    Whoever is in a controlled shutdown fetches on for what it is in sync with, and nothing else: it would
    come into an ISR again (KAFKA-14292, KAFKA-14296).
    """
    if view is None:
        return Delete()
    if view.partition_epoch < known.partition_epoch:
        return None
    if node_id not in view.replicas:
        return Delete()
    is_new_epoch = view.leader_epoch > known.leader_epoch
    if view.leader == node_id:
        return Lead(is_new_epoch)
    if view.leader == NO_LEADER or (is_in_shutdown and node_id not in view.isr):
        return Stop(is_new_epoch)
    return Follow(view.leader, restarts=is_new_epoch)
