"""Batches of aborted transactions among those that were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.wire._records import BatchHeader


class Aborting:
    """Finds batches of aborted transactions, in the order of the log."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        """`aborted`: (producer id, first offset) of each aborted transaction."""
        self._coming = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._producers: set[int] = set()

    def reaches(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to one of them."""
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._producers.add(self._coming.pop()[0])
        if not header.is_transactional or header.producer_id not in self._producers:
            return False
        if header.is_control:
            # Its transaction ends here; the producer's next one may be committed.
            self._producers.discard(header.producer_id)
        return True
