"""Producer ids, each given out once: to idempotent producers by InitProducerId, to transactional ones by
their coordinator.

Blocks of ids as in KIP-730.
"""

from __future__ import annotations

from collections.abc import Callable


class ProducerIds:
    """Hands out producer ids, one durable block after the other; what a restart leaves of a block is lost."""

    def __init__(self, allocate_block: Callable[[], range]) -> None:
        self._allocate_block = allocate_block
        self._left = iter(range(0))

    def next(self) -> int:
        """An id that no producer ever had. KafkaError when the metadata store fails."""
        producer_id = next(self._left, None)
        if producer_id is None:
            self._left = iter(self._allocate_block())
            producer_id = next(self._left)
        return producer_id
