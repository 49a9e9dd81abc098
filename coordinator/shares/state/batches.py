"""State batches of a share partition, and what older and newer ones are together.

What is known of an offset is the highest delivery count that was told of it, and of equal counts the highest
state: acknowledgements only go on.

Source: PersisterStateBatchCombiner of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple


class Batch(NamedTuple):
    """Records in one state. The fields are in the order by which batches are sorted."""

    first_offset: int
    last_offset: int
    """Included."""
    delivery_count: int
    delivery_state: int
    """A number of `DeliveryState`, or of a state that a later broker has."""


def are_sound(batches: Iterable[Batch]) -> bool:
    """Whether each has an offset; what is to be combined has to be sound."""
    return all(batch.first_offset <= batch.last_offset for batch in batches)


def combined(known: Sequence[Batch], new: Iterable[Batch], start_offset: int) -> Sequence[Batch]:
    """One list for both, in the order of offsets, in which no batch overlaps another.

    What is before `start_offset` is left out; -1 leaves nothing out. Neighbours in one state become one
    batch, but not where Kafka leaves them two: if the second of them came out of a later overlap.
    """
    batches = [*known, *new]
    if start_offset != -1:
        batches = _from(start_offset, batches)
    if len(batches) < 2:
        return batches
    # Both are sorted as a rule, or nearly so.
    batches.sort()
    return _without_overlaps(batches)


def _from(start_offset: int, batches: list[Batch]) -> list[Batch]:
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _without_overlaps(batches: list[Batch]) -> list[Batch]:
    """The first two of what is left are looked at, again and again. What comes out of them goes back: it may
    overlap a third. A batch that touches no other is done."""
    done: list[Batch] = []
    pieces: list[Batch] = []
    """A heap of what went back."""
    position, end = 0, len(batches)
    while position < end or pieces:
        if pieces and (position == end or pieces[0] <= batches[position]):
            first = heappop(pieces)
        else:
            first = batches[position]
            position += 1
        from_pieces = bool(pieces) and (position == end or pieces[0] <= batches[position])
        if not from_pieces and position == end:
            done.append(first)
            break
        second = pieces[0] if from_pieces else batches[position]
        if second.first_offset > first.last_offset and not (
            second.first_offset == first.last_offset + 1 and second[2:] == first[2:]
        ):
            done.append(first)
            continue
        if from_pieces:
            heappop(pieces)
        else:
            position += 1
        for piece in _of_two(first, second):
            heappush(pieces, piece)
    return done


def _of_two(first: Batch, second: Batch) -> list[Batch]:
    """Batches in place of two that overlap, or touch in one state; `first` comes before `second`."""
    if first[2:] == second[2:]:
        return [first._replace(last_offset=max(first.last_offset, second.last_offset))]
    if second[2:] < first[2:]:
        if second.last_offset <= first.last_offset:
            return [first]
        return [first, second._replace(first_offset=first.last_offset + 1)]
    pieces = [second]
    if first.first_offset < second.first_offset:
        pieces.append(first._replace(last_offset=second.first_offset - 1))
    if first.last_offset > second.last_offset:
        pieces.append(first._replace(first_offset=second.last_offset + 1))
    return pieces
