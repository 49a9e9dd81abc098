"""A look at all bytes of the metadata log that a start needs: what is sound, mended, torn or lost.

Each batch is synced before the next one is written, and offsets have no gaps. So what a loss of power may
leave is a torn last batch, which was never acknowledged and is cut. Whatever else is not sound was damaged
later. Nothing is changed here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from odradek.server.metadata.batch_mending import (
    Patch,
    ReadBatch,
    base_offset_at,
    mended_batch,
    sound_after,
)
from odradek.storage.checkpoints import LEADER_EPOCHS, read_leader_epochs
from odradek.storage.disk import Disk, read_file
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.segment_paths import LOG, base_offset_of, file_name
from odradek.wire.messages.metadata_records import LeaderChangeMessage


class Place(NamedTuple):
    """A position in a segment's log file."""

    name: str
    position: int


@dataclass(slots=True, eq=False, repr=False)
class Survey:
    """The log from a segment on; see the module."""

    start_offset: int
    """First offset of the whole log; -1 if there is no segment."""
    end_offset: int
    """Offset after the last record that can be read."""
    batches: list[ReadBatch] = field(default_factory=list)
    patches: list[tuple[str, Patch]] = field(default_factory=list)
    """By the name of the file."""
    torn: Place | None = None
    """From here on the log is a write that was never finished."""
    lost: list[Place] = field(default_factory=list)
    """Batches that are damaged beyond mending, or missing."""


def segment_offsets(disk: Disk, directory: str) -> list[int]:
    """First offsets of the segments, ascending. Raises OSError."""
    names = disk.list(directory)
    return sorted(offset for name in names if (offset := base_offset_of(name, LOG)) is not None)


def survey(disk: Disk, directory: str, from_offset: int, quorum_epoch: int | None = None) -> Survey:
    """Look at the log from the segment on that holds `from_offset`. `quorum_epoch` is the epoch in
    `quorum-state`, if it is known. Raises OSError.
    """
    bases = segment_offsets(disk, directory)
    if not bases:
        return Survey(-1, from_offset)
    first = max(bisect_right(bases, from_offset) - 1, 0)
    found = Survey(bases[0], bases[first])
    if bases[0] > from_offset:
        found.lost.append(Place(file_name(bases[0], LOG), 0))
    known = LeaderEpochs(read_leader_epochs(disk, f"{directory}/{LEADER_EPOCHS}"))
    walk = _Walk(found)
    for base in bases[first:]:
        walk.over_segment(file_name(base, LOG), base, read_file(disk, f"{directory}/{file_name(base, LOG)}"))
    walk.end()
    walk.settle_epochs(known, quorum_epoch)
    return found


class _Gap(NamedTuple):
    """An unsound place."""

    place: Place
    is_missing: bool
    """Whether batches are missing there; otherwise the bytes are not sound."""


class _Walk:
    """On its way over the segments."""

    def __init__(self, found: Survey) -> None:
        self._found = found
        self._names: list[str] = []
        """The file of each batch."""
        self._gaps: list[_Gap] = []
        self._has_gone_on = False
        """Whether there are batches after a gap."""

    def over_segment(self, name: str, base: int, content: bytes) -> None:
        found = self._found
        if base != found.end_offset:
            self._gaps.append(_Gap(Place(name, 0), True))
            found.end_offset = base
        position = 0
        while position < len(content):
            batch = mended_batch(content, position, found.end_offset)
            if batch is None:
                self._gaps.append(_Gap(Place(name, position), False))
                following = next(sound_after(content, position, found.end_offset), None)
                if following is None:
                    return
                position, found.end_offset = following, base_offset_at(content, following)
                continue
            found.batches.append(batch)
            self._names.append(name)
            self._has_gone_on = bool(self._gaps)
            found.end_offset = batch.header.last_offset + 1
            position = batch.end_position

    def end(self) -> None:
        """Tell torn writes from damage."""
        found = self._found
        if not self._gaps:
            return
        place, is_missing = self._gaps[0]
        if is_missing or len(self._gaps) > 1 or self._has_gone_on:
            found.lost += [gap.place for gap in self._gaps]
        else:
            found.torn = place

    def settle_epochs(self, known: LeaderEpochs, quorum_epoch: int | None) -> None:
        """Mend leader epochs: each begins with a LeaderChange, and all batches up to the next have it.
        `known` is the checkpoint.
        """
        batches = self._found.batches
        starts = [number for number, batch in enumerate(batches) if _is_leader_change(batch)]
        if batches and (not starts or starts[0] > 0):
            starts.insert(0, 0)
        exactly = dict(zip(known.starts, known.epochs, strict=True))
        for start, end in pairwise([*starts, len(batches)]):
            offset = batches[start].header.base_offset
            epoch = exactly.get(offset)
            if epoch is None and not _is_leader_change(batches[start]) and known.epochs:
                epoch = known.epoch_at(offset)
            if epoch is None or epoch < 0:
                of_last = quorum_epoch if end == len(batches) else None
                epoch = _likely_epoch([one.header.leader_epoch for one in batches[start:end]], of_last)
            batches[start:end] = [batch.with_epoch(epoch) for batch in batches[start:end]]
        for name, batch in zip(self._names, batches, strict=True):
            self._found.patches += [(name, patch) for patch in batch.patches]


def _is_leader_change(batch: ReadBatch) -> bool:
    return batch.header.is_control and isinstance(batch.records()[0], LeaderChangeMessage)


def _likely_epoch(told: Sequence[int], quorum_epoch: int | None) -> int:
    """The epoch of neighbouring batches that the checkpoint does not have: that of most of them."""
    if len(told) > 1:
        return Counter(told[1:]).most_common(1)[0][0]
    # A crash came before the checkpoint was written. Then `quorum-state` is as old as the batch.
    if quorum_epoch is not None and (told[0] ^ quorum_epoch).bit_count() == 1:
        return quorum_epoch
    return told[0]
