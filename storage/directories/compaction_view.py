"""The interface of a store for compaction (`Cleanable`)."""

from collections.abc import Iterable, Sequence

from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.places import Places
from odradek.storage.directories.relocation import Relocation
from odradek.storage.directories.upkeep import Upkeep
from odradek.storage.disk import Disk
from odradek.storage.log.partition import Partition
from odradek.storage.log.segment import Segment
from odradek.wire.work import Work


class CompactionView:
    """See the module."""

    def __init__(
        self, places: Places, checkpointing: Checkpointing, upkeep: Upkeep, relocation: Relocation
    ) -> None:
        self._places = places
        self._checkpointing = checkpointing
        self._upkeep = upkeep
        self._relocation = relocation

    @property
    def disk(self) -> Disk:
        return self._places.disk

    def loaded(self) -> Iterable[Partition]:
        return self._places.loaded()

    def is_held(self, partition: Partition) -> bool:
        """Whether the store still has this partition, and does not move it."""
        is_there = self._places.place_of(partition) is not None
        return is_there and not self._relocation.is_moved((partition.topic, partition.index))

    def first_dirty_of(self, partition: Partition) -> int:
        return self._checkpointing.first_dirty_of(partition)

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]:
        return self._checkpointing.noting_first_dirty(partition, offset)

    def noting_flushed(self, partition: Partition, end_offset: int) -> Work[bool]:
        """See `Checkpointing.noting_flushed`; False for a partition that is not held."""
        if not self.is_held(partition):
            return False
        return (yield from self._checkpointing.noting_flushed(partition, end_offset))

    def remove_later(self, segments: Sequence[Segment], due_ms: int) -> None:
        self._upkeep.remove_segments(segments, due_ms)

    def new_token(self) -> str:
        """A unique part of file names."""
        return self._places.new_id()[:8]
