# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""What a read asks before it hands anything out, of the system and of headers."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString
from libc.stdint cimport int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memchr

import mmap as _mmap

cdef extern from "batch_layout.h":
    enum:
        LOG_OVERHEAD_BYTES
        EXTENT_BYTES

    int64_t batch_base_offset(const uint8_t *start) nogil
    int64_t batch_length(const uint8_t *start) nogil
    int64_t batch_last_offset_delta(const uint8_t *start) nogil

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
    """mincore(2) of a piece of a mapped file: whether all its pages are there to be read; None where that is
    not to be had. Unlike a read that would not wait it fetches nothing. On a fast disk such a read has its
    own page fetched, and says that it was there; those in between are not, and each would stop whoever sends
    them. Costs less than samples."""
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
    """From the batch at `place` on to the first whose last offset is not before `offset`.

    Its place, and its size. Where `window` or `limit` ends first: the place of the batch that begins there,
    with 0. At a header that gives no length: its place with -1.
    """
    cdef const uint8_t *content = <const uint8_t *> PyBytes_AsString(window)
    cdef int64_t last = min(limit - 1, <int64_t> len(window) - EXTENT_BYTES)
    cdef int64_t length
    if place < 0:
        raise ValueError(f"a batch at {place}")
    while place <= last:
        length = batch_length(content + place)
        if length <= 0:
            return place, -1
        if _reaches(batch_base_offset(content + place), batch_last_offset_delta(content + place), offset):
            return place, length + LOG_OVERHEAD_BYTES
        place += length + LOG_OVERHEAD_BYTES
    return place, 0


cdef bint _reaches(int64_t base_offset, int64_t last_offset_delta, int64_t offset) noexcept:
    """Whether the sum of the first two is not before the third, though damage may say a sum that no int64
    holds: their distances always fit."""
    cdef uint64_t base = <uint64_t> base_offset, wanted = <uint64_t> offset
    if base_offset >= offset:
        return last_offset_delta >= 0 or base - wanted >= <uint64_t> -last_offset_delta
    return last_offset_delta > 0 and wanted - base <= <uint64_t> last_offset_delta
