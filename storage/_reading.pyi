"""Checks before a read returns a slice: pages in memory, and headers of batches."""

def is_in_memory(mapped: memoryview, position: int, size_bytes: int) -> bool | None:
    """Whether all pages of a part of a mapped file are in memory; None where the system cannot tell."""

def hop(window: bytes, place: int, limit: int, offset: int) -> tuple[int, int]:
    """Walks from the batch at `place` to the first batch whose last offset is not before `offset`; returns
    the position and the size of this batch.

    Where `window` or `limit` ends first: the position of the next batch, and 0. At a header without a valid
    length: its position, and -1.
    """
