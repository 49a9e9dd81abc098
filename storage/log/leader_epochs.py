"""The start offsets of leader epochs, for OffsetForLeaderEpoch, and `leader-epoch-checkpoint`.

Semantics as in `LeaderEpochFileCache.java`; the text format is in `checkpoints.py`.
"""

from bisect import bisect_right

UNKNOWN = (-1, -1)


class LeaderEpochs:
    """Epochs and their start offsets, both strictly ascending. `dirty` until written to the disk."""

    __slots__ = ("dirty", "epochs", "starts")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.epochs = [epoch for epoch, _ in entries or ()]
        self.starts = [start for _, start in entries or ()]
        self.dirty = False

    @property
    def latest(self) -> int:
        """The newest epoch with a record, -1 if there is none."""
        return self.epochs[-1] if self.epochs else -1

    def entries(self) -> list[tuple[int, int]]:
        # Called in a flush's thread: an epoch that is being added meanwhile comes with the next flush.
        return list(zip(self.epochs, self.starts, strict=False))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add the epoch of a batch at `start_offset`; epochs before the latest are ignored."""
        if epoch < 0 or (self.epochs and epoch <= self.epochs[-1]):
            return
        # An epoch without records is not kept.
        while self.starts and self.starts[-1] >= start_offset:
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start_offset)
        self.dirty = True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was appended, -1 when unknown."""
        found = bisect_right(self.starts, offset)
        return self.epochs[found - 1] if found else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch not after `epoch`, and its end offset.

        The latest epoch ends at the log's end, a later one is unknown: (-1, -1). For an epoch before the
        first known one: the epoch itself, and the start of the first one.
        """
        if epoch < 0 or not self.epochs or epoch > self.epochs[-1]:
            return UNKNOWN
        if epoch == self.epochs[-1]:
            return epoch, log_end_offset
        found = bisect_right(self.epochs, epoch)
        if found == 0:
            return epoch, self.starts[0]
        return self.epochs[found - 1], self.starts[found]

    def truncate_end(self, end_offset: int) -> None:
        """Remove epochs at and after the new log end."""
        while self.starts and self.starts[-1] >= end_offset:
            self.epochs.pop()
            self.starts.pop()
            self.dirty = True

    def truncate_start(self, start_offset: int) -> None:
        """Remove epochs before the new log start; the epoch at `start_offset` begins there."""
        found = bisect_right(self.starts, start_offset)
        if found > 1:
            del self.epochs[: found - 1], self.starts[: found - 1]
            self.dirty = True
        if found and self.starts[0] < start_offset:
            self.starts[0] = start_offset
            self.dirty = True
