"""What `odradek.storage._reading` has to say, in plain Python."""

import mmap
import os
from collections.abc import Callable

from odradek.storage.log.batches import EXTENT, LOG_OVERHEAD_BYTES

_mincore: Callable[[memoryview], bool] | None = None
_has_mincore = True


def is_in_memory(mapped: memoryview, position: int, size_bytes: int) -> bool | None:
    """mincore(2) of a piece of a mapped file: whether all its pages are there to be read; None where that is
    not to be had. Unlike a read that would not wait it fetches nothing. On a fast disk such a read has its
    own page fetched, and says that it was there; those in between are not, and each would stop whoever sends
    them. Costs less than samples.

    The first question takes 3 ms.
    """
    global _mincore, _has_mincore
    try:
        if _mincore is None and _has_mincore:
            _mincore = _make_mincore()
        if not _has_mincore or _mincore is None:
            return None
        return _mincore(mapped[position : position + size_bytes])
    except (ImportError, AttributeError, OSError):
        _has_mincore = False
        return None


def _make_mincore() -> Callable[[memoryview], bool]:
    import ctypes  # not needed to start

    class Buffer(ctypes.Structure):
        """Py_buffer, of which the address alone is of interest: ctypes takes it of writable buffers only."""

        _fields_ = [("address", ctypes.c_void_p), ("rest", ctypes.c_byte * 256)]

    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    get_buffer, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(Buffer), ctypes.c_int)
    release.argtypes = (ctypes.POINTER(Buffer),)
    release.restype = None
    page_bytes = mmap.PAGESIZE

    def ask(mapped: memoryview) -> bool:
        buffer = Buffer()
        get_buffer(mapped, buffer, 0)
        try:
            before = buffer.address % page_bytes
            size_bytes = before + len(mapped)
            pages = ctypes.create_string_buffer(-(-size_bytes // page_bytes))
            if mincore(buffer.address - before, size_bytes, pages) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            release(buffer)
        return b"\0" not in pages.raw

    return ask


def hop(window: bytes, place: int, limit: int, offset: int) -> tuple[int, int]:
    """From the batch at `place` on to the first whose last offset is not before `offset`.

    Its place, and its size. Where `window` or `limit` ends first: the place of the batch that begins there,
    with 0. At a header that gives no length: its place with -1.
    """
    unpack = EXTENT.unpack_from
    last = min(limit - 1, len(window) - EXTENT.size)
    while place <= last:
        base_offset, length, last_offset_delta = unpack(window, place)
        if length <= 0:
            return place, -1
        if base_offset + last_offset_delta >= offset:
            return place, length + LOG_OVERHEAD_BYTES
        place += length + LOG_OVERHEAD_BYTES
    return place, 0
