"""Where a follower has to end its log so that it is the beginning of its leader's (KIP-101, KIP-279)."""

from __future__ import annotations

from odradek.coordinator.replication.values import UNKNOWN_EPOCH, UNKNOWN_OFFSET, ReplicaLog


def truncation_offset(log: ReplicaLog, leader_epoch: int, leader_end_offset: int) -> int:
    """The new end of the log, by the leader's response to the last epoch of this log: the largest epoch not
    after it that the leader has, and where that ended.

    Where this log lacks that epoch, too, it is cut after its own largest epoch before it, and the next fetch,
    which names that epoch, asks again (KIP-279).
    """
    end_offset = log.log_end_offset
    if leader_end_offset == UNKNOWN_OFFSET:
        return min(log.high_watermark, end_offset)
    epoch, epoch_end_offset = log.end_offset_for_epoch(leader_epoch)
    if epoch == UNKNOWN_EPOCH:
        return min(leader_end_offset, end_offset)
    if epoch < leader_epoch:
        return min(epoch_end_offset, end_offset)
    return min(epoch_end_offset, leader_end_offset, end_offset)
