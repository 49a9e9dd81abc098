# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Records into the buffers of Arrow columns.

Records are walked and copied without Python and without the GIL, into memory that Arrow then has as it is.
A column of bytes is what Arrow has for it: 32-bit offsets, one more than there are rows, and the bytes; a
bitmap says which rows are there, least significant bit first. Numbers are in the machine's order.
Source: the Arrow columnar format, https://arrow.apache.org/docs/format/Columnar.html
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from typing import NamedTuple

include "wire/layout.pxi"

cdef enum:
    LEAST_ROOM_BYTES = 1024
    MICROSECONDS = 1000

cdef enum Outcome:
    TAKEN = 0
    DOUBTFUL = 1
    NO_MEMORY = 2

cdef int64_t MILLISECONDS_MOST = 9223372036854775
cdef int64_t MILLISECONDS_LEAST = -9223372036854775


class BytesColumn(NamedTuple):
    """Buffers of a column of bytes; `nulls` counts the rows that are not there."""

    validity: object
    nulls: int
    offsets: object
    data: object


class HeadersColumn(NamedTuple):
    """Buffers of a column of lists: `offsets` into the names and values of all headers, `total` of them."""

    validity: object
    nulls: int
    offsets: object
    total: int
    names: BytesColumn
    values: BytesColumn


class TakenColumns(NamedTuple):
    """Gathered columns, None for a column that is not wanted. Timestamps are in microseconds."""

    rows: int
    keys: BytesColumn | None
    values: BytesColumn | None
    offsets: object
    timestamps: object
    headers: HeadersColumn | None


# Memory that grows ----------------------------------------------------------------------------------------

cdef struct Memory:
    uint8_t *start
    size_t used
    size_t room


cdef inline bint _reserve(Memory *memory, size_t more) noexcept nogil:
    """Room for so many bytes more; False if there is none. By halves, so that growing costs little."""
    cdef size_t wanted = memory.used + more
    cdef uint8_t *start
    if wanted <= memory.room and memory.start != NULL:
        return True
    wanted = max(wanted, memory.room + memory.room // 2, <size_t> LEAST_ROOM_BYTES)
    start = <uint8_t *> realloc(memory.start, wanted)
    if start == NULL:
        return False
    memory.start = start
    memory.room = wanted
    return True


cdef inline void _put(Memory *memory, const uint8_t *bytes, size_t size) noexcept nogil:
    memcpy(memory.start + memory.used, bytes, size)
    memory.used += size


cdef inline void _put_int32(Memory *memory, int32_t number) noexcept nogil:
    (<int32_t *> (memory.start + memory.used))[0] = number
    memory.used += 4


cdef inline void _put_int64(Memory *memory, int64_t number) noexcept nogil:
    (<int64_t *> (memory.start + memory.used))[0] = number
    memory.used += 8


cdef class Block:
    """Memory that was filled, for whoever takes it over; freed with this object."""

    cdef uint8_t *_start
    cdef Py_ssize_t _size

    def __dealloc__(self):
        free(self._start)

    def __len__(self):
        return self._size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._start, self._size, 1, flags)


cdef Block _handed_over(Memory *memory):
    """The memory becomes a block's, and there is none any more."""
    cdef Block block = Block.__new__(Block)
    block._start = memory.start
    block._size = memory.used
    memory.start = NULL
    memory.used = 0
    memory.room = 0
    return block


# Bitmaps and columns of bytes -----------------------------------------------------------------------------

cdef struct Validity:
    Memory bits
    int64_t nulls


cdef inline bint _reserve_rows(Validity *validity, int64_t rows, int64_t more) noexcept nogil:
    """Bits for `more` rows behind the first `rows`, all set."""
    cdef size_t wanted = (rows + more + 7) // 8
    if wanted > validity.bits.used:
        if not _reserve(&validity.bits, wanted - validity.bits.used):
            return False
        memset(validity.bits.start + validity.bits.used, 0xFF, wanted - validity.bits.used)
        validity.bits.used = wanted
    return True


cdef inline void _put_null(Validity *validity, int64_t row) noexcept nogil:
    validity.bits.start[row >> 3] &= ~(1 << (row & 7))
    validity.nulls += 1


cdef struct Bytes:
    Validity validity
    Memory offsets
    Memory data


cdef inline bint _reserve_bytes(Bytes *column, int64_t rows, int64_t more, size_t size) noexcept nogil:
    if not _reserve(&column.offsets, 4 * (more + 1)) or not _reserve(&column.data, size):
        return False
    if column.offsets.used == 0:
        _put_int32(&column.offsets, 0)
    return _reserve_rows(&column.validity, rows, more)


cdef inline void _put_bytes(Bytes *column, int64_t row, const uint8_t *bytes, int64_t size) noexcept nogil:
    """For a row that room was reserved for; a size of -1 is null."""
    if size < 0:
        _put_null(&column.validity, row)
    else:
        _put(&column.data, bytes, size)
    _put_int32(&column.offsets, <int32_t> column.data.used)


cdef void _cut_bits(Validity *validity, int64_t rows) noexcept nogil:
    """Bits behind the last row are set again, whatever a section that was not taken has left there."""
    cdef size_t kept = (rows + 7) // 8
    if validity.bits.used > kept:
        validity.bits.used = kept
    if rows & 7 and validity.bits.used == kept:
        validity.bits.start[kept - 1] |= <uint8_t> (0xFF << (rows & 7))


cdef void _cut_bytes(Bytes *column, int64_t rows, size_t data_used, int64_t nulls) noexcept nogil:
    _cut_bits(&column.validity, rows)
    column.validity.nulls = nulls
    column.data.used = data_used
    if column.offsets.used:
        column.offsets.used = 4 * (rows + 1)


cdef object _taken_bytes(Bytes *column, int64_t rows):
    if not _reserve_bytes(column, rows, 0, 0):
        raise MemoryError
    nulls = column.validity.nulls
    column.validity.nulls = 0
    return BytesColumn(
        _handed_over(&column.validity.bits), nulls, _handed_over(&column.offsets), _handed_over(&column.data)
    )


cdef void _free_bytes(Bytes *column) noexcept:
    free(column.validity.bits.start)
    free(column.offsets.start)
    free(column.data.start)


# The columns ----------------------------------------------------------------------------------------------

# How far everything was before a section.
cdef struct Mark:
    int64_t rows
    int64_t headers
    int64_t key_nulls
    int64_t value_nulls
    int64_t header_nulls
    int64_t header_value_nulls
    size_t keys
    size_t values
    size_t names
    size_t header_values


cdef class RecordColumns:
    """Gathers the columns that are wanted of one records section after the other."""

    cdef bint _has_keys, _has_values, _has_offsets, _has_timestamps, _has_headers
    cdef Bytes _keys
    cdef Bytes _values
    cdef Memory _offsets
    cdef Memory _timestamps
    cdef Validity _header_validity
    cdef Memory _header_offsets
    cdef Bytes _names
    cdef Bytes _header_values
    cdef int64_t _header_count
    cdef readonly int64_t rows

    def __cinit__(self, *, bint keys, bint values, bint offsets, bint timestamps, bint headers):
        self._has_keys = keys
        self._has_values = values
        self._has_offsets = offsets
        self._has_timestamps = timestamps
        self._has_headers = headers

    def __dealloc__(self):
        _free_bytes(&self._keys)
        _free_bytes(&self._values)
        _free_bytes(&self._names)
        _free_bytes(&self._header_values)
        free(self._offsets.start)
        free(self._timestamps.start)
        free(self._header_validity.bits.start)
        free(self._header_offsets.start)

    @property
    def size_bytes(self):
        """How many bytes the columns have, without the bitmaps."""
        cdef size_t size = self._offsets.used + self._timestamps.used
        if self._has_keys:
            size += self._keys.data.used + 4 * (self.rows + 1)
        if self._has_values:
            size += self._values.data.used + 4 * (self.rows + 1)
        if self._has_headers:
            size += self._names.data.used + self._header_values.data.used
            size += 8 * (self._header_count + 1) + 4 * (self.rows + 1)
        return size

    def add_section(self, section, header, start, end, names_checked=False):
        """Takes the records of [start, end) of a batch's records section, which is not compressed (any more).

        False, and nothing is taken, if the section is not sound, or if it has what has to be looked at: a
        timestamp beyond 64 bits of microseconds or, unless `names_checked`, a header's name that is not
        ASCII.
        """
        cdef Py_buffer view
        cdef Section what
        cdef Outcome outcome
        cdef Mark mark = _mark(self)
        what.count = header.record_count
        what.base_offset = header.base_offset
        what.base_timestamp = header.base_timestamp
        what.append_time = header.max_timestamp
        what.uses_append_time = header.attributes & LOG_APPEND_TIME
        what.first = start
        what.behind = end
        what.names_checked = names_checked
        PyObject_GetBuffer(section, &view, PyBUF_SIMPLE)
        what.data = <const uint8_t *> view.buf
        what.size = view.len
        with nogil:
            outcome = _take_section(self, &what)
            if outcome != TAKEN:
                _back_to(self, &mark)
        PyBuffer_Release(&view)
        if outcome == NO_MEMORY:
            raise MemoryError
        return outcome == TAKEN

    def take(self):
        """Hands over the gathered columns; after that there is nothing."""
        rows = self.rows
        keys = _taken_bytes(&self._keys, self.rows) if self._has_keys else None
        values = _taken_bytes(&self._values, self.rows) if self._has_values else None
        headers = _taken_headers(self) if self._has_headers else None
        self.rows = 0
        return TakenColumns(
            rows,
            keys,
            values,
            _taken_numbers(&self._offsets) if self._has_offsets else None,
            _taken_numbers(&self._timestamps) if self._has_timestamps else None,
            headers,
        )


cdef object _taken_numbers(Memory *numbers):
    if not _reserve(numbers, 8):
        raise MemoryError
    return _handed_over(numbers)


cdef object _taken_headers(RecordColumns self):
    if not _reserve_header_rows(self, 0):
        raise MemoryError
    count, nulls = self._header_count, self._header_validity.nulls
    names = _taken_bytes(&self._names, self._header_count)
    values = _taken_bytes(&self._header_values, self._header_count)
    self._header_count = self._header_validity.nulls = 0
    return HeadersColumn(
        _handed_over(&self._header_validity.bits),
        nulls,
        _handed_over(&self._header_offsets),
        count,
        names,
        values,
    )


cdef Mark _mark(RecordColumns self):
    cdef Mark mark
    mark.rows, mark.headers = self.rows, self._header_count
    mark.key_nulls, mark.value_nulls = self._keys.validity.nulls, self._values.validity.nulls
    mark.header_nulls = self._header_validity.nulls
    mark.header_value_nulls = self._header_values.validity.nulls
    mark.keys, mark.values = self._keys.data.used, self._values.data.used
    mark.names, mark.header_values = self._names.data.used, self._header_values.data.used
    return mark


cdef void _back_to(RecordColumns self, const Mark *mark) noexcept nogil:
    self.rows = mark.rows
    self._header_count = mark.headers
    _cut_bytes(&self._keys, mark.rows, mark.keys, mark.key_nulls)
    _cut_bytes(&self._values, mark.rows, mark.values, mark.value_nulls)
    _cut_bytes(&self._names, mark.headers, mark.names, 0)
    _cut_bytes(&self._header_values, mark.headers, mark.header_values, mark.header_value_nulls)
    _cut_bits(&self._header_validity, mark.rows)
    self._header_validity.nulls = mark.header_nulls
    if self._header_offsets.used:
        self._header_offsets.used = 4 * (mark.rows + 1)
    if self._has_offsets:
        self._offsets.used = 8 * mark.rows
    if self._has_timestamps:
        self._timestamps.used = 8 * mark.rows


# A section ------------------------------------------------------------------------------------------------

cdef struct Section:
    const uint8_t *data
    Py_ssize_t size
    int64_t count
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_time
    bint uses_append_time
    int64_t first
    int64_t behind
    bint names_checked


cdef inline bint _reserve_header_rows(RecordColumns self, int64_t more) noexcept nogil:
    if not _reserve(&self._header_offsets, 4 * (more + 1)):
        return False
    if self._header_offsets.used == 0:
        _put_int32(&self._header_offsets, 0)
    return _reserve_rows(&self._header_validity, self.rows, more)


cdef bint _reserve_section(RecordColumns self, const Section *what) noexcept nogil:
    if self._has_keys and not _reserve_bytes(&self._keys, self.rows, what.count, what.size):
        return False
    if self._has_values and not _reserve_bytes(&self._values, self.rows, what.count, what.size):
        return False
    if self._has_offsets and not _reserve(&self._offsets, 8 * what.count):
        return False
    if self._has_timestamps and not _reserve(&self._timestamps, 8 * what.count):
        return False
    return not self._has_headers or _reserve_header_rows(self, what.count)


cdef Outcome _take_section(RecordColumns self, const Section *what) noexcept nogil:
    cdef walked_record record
    cdef const uint8_t *at = what.data
    cdef const uint8_t *end = what.data + what.size
    cdef int64_t offset, timestamp, row
    cdef Outcome outcome
    cdef bint check_names = self._has_headers and not what.names_checked
    # A record has at least seven bytes: a lying count must not make us reserve memory for it.
    if not 0 <= what.count <= what.size // RECORD_BYTES_MIN:
        return DOUBTFUL
    if not _reserve_section(self, what):
        return NO_MEMORY
    for row in range(what.count):
        if not walk_record(at, end, &record):
            return DOUBTFUL
        at = record.end
        if not sum_fits(what.base_offset, record.offset_delta, &offset):
            return DOUBTFUL
        if not sum_fits(what.base_timestamp, record.timestamp_delta, &timestamp):
            return DOUBTFUL
        if what.uses_append_time:
            timestamp = what.append_time
        if self._has_timestamps and not MILLISECONDS_LEAST <= timestamp <= MILLISECONDS_MOST:
            return DOUBTFUL
        if record.headers != NULL and check_names and not _has_ascii_names(&record):
            return DOUBTFUL
        if what.first <= offset < what.behind:
            outcome = _take_record(self, &record, offset, timestamp)
            if outcome != TAKEN:
                return outcome
    return TAKEN if at == end else DOUBTFUL


cdef inline Outcome _take_record(
    RecordColumns self, const walked_record *record, int64_t offset, int64_t timestamp
) noexcept nogil:
    if self._has_keys:
        _put_bytes(&self._keys, self.rows, record.key, record.key_size)
    if self._has_values:
        _put_bytes(&self._values, self.rows, record.value, record.value_size)
    if self._has_offsets:
        _put_int64(&self._offsets, offset)
    if self._has_timestamps:
        _put_int64(&self._timestamps, MICROSECONDS * timestamp)
    if self._has_headers and not _take_headers(self, record):
        return NO_MEMORY
    self.rows += 1
    return TAKEN


cdef bint _take_headers(RecordColumns self, const walked_record *record) noexcept nogil:
    """The headers of a record that was found sound; False if memory is short."""
    cdef walk_cursor cursor
    cdef int64_t count, size, i
    if record.headers == NULL:
        _put_null(&self._header_validity, self.rows)
    else:
        cursor.at, cursor.end, cursor.sound = record.headers, record.end, 1
        size = record.end - record.headers
        count = walk_varint(&cursor, 5)
        if not _reserve_bytes(&self._names, self._header_count, count, size):
            return False
        if not _reserve_bytes(&self._header_values, self._header_count, count, size):
            return False
        for i in range(count):
            size = walk_bytes(&cursor)
            _put_bytes(&self._names, self._header_count, cursor.at - size, size)
            size = walk_bytes(&cursor)
            _put_bytes(&self._header_values, self._header_count, cursor.at - size if size > 0 else cursor.at, size)
            self._header_count += 1
    _put_int32(&self._header_offsets, <int32_t> self._header_count)
    return True


cdef bint _has_ascii_names(const walked_record *record) noexcept nogil:
    cdef walk_cursor cursor
    cdef int64_t count, size, i, place
    cursor.at, cursor.end, cursor.sound = record.headers, record.end, 1
    count = walk_varint(&cursor, 5)
    for i in range(count):
        size = walk_bytes(&cursor)
        for place in range(1, size + 1):
            if cursor.at[-place] >= 0x80:
                return False
        walk_bytes(&cursor)
    return True
