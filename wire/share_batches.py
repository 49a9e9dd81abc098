"""State batches of a share partition, and what older and newer ones are together.

What is known of an offset is the highest delivery count that was told of it, and of equal counts the highest
state: acknowledgements only go on.

Source: PersisterStateBatchCombiner of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
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
    batch.
    """
    batches = [*known, *new]
    if start_offset != -1:
        batches = _from(start_offset, batches)
    return batches if len(batches) < 2 else _without_overlaps(batches)


def _from(start_offset: int, batches: list[Batch]) -> list[Batch]:
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _without_overlaps(batches: list[Batch]) -> list[Batch]:
    """A sweep over the offsets at which a batch begins or ends."""
    # Both lists are sorted as a rule, or nearly so.
    batches.sort()
    edges = sorted({edge for batch in batches for edge in (batch.first_offset, batch.last_offset + 1)})
    done: list[Batch] = []
    open_batches: list[tuple[int, int, int]] = []
    """A heap with the batch that counts on top: negative count, negative state, last offset. A batch that has
    ended goes when it comes to the top."""
    position = 0
    for offset, following in pairwise(edges):
        while position < len(batches) and batches[position].first_offset == offset:
            batch = batches[position]
            heappush(open_batches, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            position += 1
        while open_batches and open_batches[0][2] < offset:
            heappop(open_batches)
        if not open_batches:
            continue
        count, state = -open_batches[0][0], -open_batches[0][1]
        if done and done[-1].last_offset + 1 == offset and done[-1][2:] == (count, state):
            done[-1] = done[-1]._replace(last_offset=following - 1)
        else:
            done.append(Batch(offset, following - 1, count, state))
    return done
