"""The ISR of a partition as its leader has it: what is committed, and one change that is pending.

The *maximal* ISR is what the high watermark waits for: while a replica is being added, with it; while
replicas are being removed, still with them. So the leader is right whatever becomes of the change (KIP-497).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.coordinator.replication.values import ReplicaKey

UNKNOWN_BROKER_EPOCH = -1


class AlterIsr(NamedTuple):
    """A change for the controller: a partition of AlterPartition. Its leader recovery state is RECOVERED."""

    key: ReplicaKey
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    """Broker id and broker epoch; -1 where this leader has not heard of that broker."""


class AlteredIsr(NamedTuple):
    """The response to it: what the controller has now."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class InSync(NamedTuple):
    """`pending` is None, or the change that is on its way; a replica is then added or some are removed."""

    isr: frozenset[int]
    """The committed ISR."""
    pending: AlterIsr | None = None

    @property
    def maximal(self) -> frozenset[int]:
        if self.pending is None:
            return self.isr
        return self.isr | {broker_id for broker_id, _ in self.pending.new_isr}
