# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Checks before a read returns a slice: pages in memory, and headers of batches."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memchr

import mmap as _mmap

include "wire/layout.pxi"

cdef extern from *:
    """
    #if defined(_WIN32)
    static int pages_in_memory(void *start, size_t size_bytes, unsigned char *pages) { return -1; }
    #else
    #include <sys/mman.h>
    static int pages_in_memory(void *start, size_t size_bytes, unsigned char *pages) {
        return mincore(start, size_bytes, (void *) pages);
    }
    #endif
    """
    int pages_in_memory(void *start, size_t size_bytes, unsigned char *pages) nogil

cdef enum:
    PAGES_AT_ONCE = 1024

cdef uintptr_t _page_bytes = _mmap.PAGESIZE


def is_in_memory(mapped, Py_ssize_t position, Py_ssize_t size_bytes):
    """mincore(2) for a part of a mapped file: whether all its pages are in memory; None where the system
    cannot tell. Unlike a read without waiting it loads nothing. On a fast disk such a read loads its own page
    and reports it as present; the pages between the samples may be missing, and each would stop the sender.
    Costs less than samples."""
    cdef Py_buffer buffer
    cdef uintptr_t start, end, stop
    cdef unsigned char pages[PAGES_AT_ONCE]
    PyObject_GetBuffer(mapped, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= position + size_bytes <= buffer.len:
            raise ValueError(f"{size_bytes} bytes at {position} of {buffer.len}")
        start = <uintptr_t> buffer.buf + position
        end = start + size_bytes
        start -= start % _page_bytes
        while start < end:
            stop = min(start + PAGES_AT_ONCE * _page_bytes, end)
            if pages_in_memory(<void *> start, stop - start, pages) != 0:
                return None
            if memchr(pages, 0, (stop - start + _page_bytes - 1) / _page_bytes) != NULL:
                return False
            start = stop
        return True
    finally:
        PyBuffer_Release(&buffer)


def hop(bytes window not None, int64_t place, int64_t limit, int64_t offset):
    """Walks from the batch at `place` to the first batch whose last offset is not before `offset`.

    Returns the position and the size of this batch. Where `window` or `limit` ends first: the position of the
    next batch, and 0. At a header without a valid length: its position, and -1.
    """
    cdef const uint8_t *content = <const uint8_t *> PyBytes_AsString(window)
    cdef int64_t last = min(limit - 1, <int64_t> len(window) - EXTENT_BYTES)
    cdef int64_t length
    if place < 0:
        raise ValueError(f"the batch position {place} is negative")
    while place <= last:
        length = batch_length(content + place)
        if length <= 0:
            return place, -1
        if _reaches(batch_base_offset(content + place), batch_last_offset_delta(content + place), offset):
            return place, length + LOG_OVERHEAD_BYTES
        place += length + LOG_OVERHEAD_BYTES
    return place, 0


cdef bint _reaches(int64_t base_offset, int64_t last_offset_delta, int64_t offset) noexcept:
    """Whether base offset plus delta is not before `offset`. In a damaged header the sum may overflow an
    int64; the difference always fits."""
    cdef uint64_t base = <uint64_t> base_offset, wanted = <uint64_t> offset
    if base_offset >= offset:
        return last_offset_delta >= 0 or base - wanted >= <uint64_t> -last_offset_delta
    return last_offset_delta > 0 and wanted - base <= <uint64_t> last_offset_delta
