"""What a read asks before it hands anything out, of the system and of headers."""

def is_in_memory(mapped: memoryview, position: int, size_bytes: int) -> bool | None:
    """Whether all pages of a piece of a mapped file are in memory; None where that is not to be had."""

def hop(window: bytes, place: int, limit: int, offset: int) -> tuple[int, int]:
    """From the batch at `place` on to the first whose last offset is not before `offset`: its place and size.

    Where `window` or `limit` ends first: the place of the batch that begins there, with 0. At a header that
    gives no length: its place with -1.
    """
