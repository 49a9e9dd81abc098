# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The compiled part of `records`: reading and writing of headers, checksums and records of batches.

It only recognises sound bytes. Other bytes go to `record_refusals`, which has the error codes and texts.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from odradek.wire import record_refusals as _refusals
from odradek.wire.checksums import crc32c as _crc32c_of_many
from odradek.wire.record_layout import Record as _Record, RecordTable as _RecordTable

cdef object _new_tuple = tuple.__new__

include "wire/layout.pxi"

cdef enum:
    COLUMNS = 7
    # Beyond this the crc32c package's three interleaved sums outrun one sum in our own loop.
    FEW_BYTES = 4096
    LATEST_PRODUCE_VERSION = 13

cdef bint _crc_in_hardware = has_crc32c()


cdef class BatchHeader:
    """The first 61 bytes of a batch; `size_bytes` is the size of the whole batch, with the 12 leading
    bytes."""

    cdef public int64_t base_offset
    cdef public int64_t size_bytes
    cdef public int64_t leader_epoch
    cdef public int64_t magic
    cdef public int64_t crc
    cdef public int64_t attributes
    cdef public int64_t last_offset_delta
    cdef public int64_t base_timestamp
    cdef public int64_t max_timestamp
    cdef public int64_t producer_id
    cdef public int64_t producer_epoch
    cdef public int64_t base_sequence
    cdef public int64_t record_count

    def __init__(
        self,
        base_offset,
        size_bytes,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ):
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def compression(self):
        """A `Compression`, or 5 to 7, which are undefined and refused by `validate_header`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self):
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self):
        return self.attributes & CONTROL != 0

    @property
    def uses_log_append_time(self):
        """Whether every record's timestamp is `max_timestamp`; its own delta is ignored."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def delete_horizon_ms(self):
        """The time at which compaction may drop this batch's tombstones (KIP-534), in the field of the base
        timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_offset(self):
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self):
        """The sequence of the last record, or NO_SEQUENCE; after 2**31 - 1 comes 0."""
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFFULL

    def _fields(self):
        return (
            self.base_offset,
            self.size_bytes,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def __eq__(self, other):
        if not isinstance(other, BatchHeader):
            return NotImplemented
        return self._fields() == other._fields()

    def __repr__(self):
        fields = ", ".join([f"{name}={value}" for name, value in zip(_FIELDS, self._fields())])
        return f"BatchHeader({fields})"


_FIELDS = (
    "base_offset",
    "size_bytes",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


cdef BatchHeader _parse_header(const uint8_t *start):
    cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
    cdef batch_header found
    unpack_header(start, &found)
    header.base_offset = found.base_offset
    header.size_bytes = found.size_bytes
    header.leader_epoch = found.leader_epoch
    header.magic = found.magic
    header.crc = found.crc
    header.attributes = found.attributes
    header.last_offset_delta = found.last_offset_delta
    header.base_timestamp = found.base_timestamp
    header.max_timestamp = found.max_timestamp
    header.producer_id = found.producer_id
    header.producer_epoch = found.producer_epoch
    header.base_sequence = found.base_sequence
    header.record_count = found.record_count
    return header


def read_batch_header(object buffer, Py_ssize_t position=0):
    """The header at `position`; the 61 bytes suffice, the rest of the batch need not be in `buffer`.

    Refuses with CORRUPT_MESSAGE a header that is too short, has another magic than 2, or a size below its
    own.
    """
    cdef Py_buffer view
    cdef BatchHeader header = None
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    if 0 <= position <= view.len - HEADER_SIZE_BYTES:
        header = _parse_header(<const uint8_t *> view.buf + position)
    PyBuffer_Release(&view)
    if header is None or header.magic != 2 or header.size_bytes < HEADER_SIZE_BYTES:
        _refusals.refuse_header(buffer, position)
    return header


def rising_batches(object buffer, int64_t next_offset, int64_t leader_epoch_max):
    """How far `buffer` has whole batches whose offsets rise from `next_offset` on, of no later leader epoch:
    the size of these batches in bytes, and the offset after the last one. Checksums are not checked."""
    cdef Py_buffer view
    cdef batch_header header
    cdef Py_ssize_t position = 0
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    while view.len - position >= HEADER_SIZE_BYTES:
        unpack_header(<const uint8_t *> view.buf + position, &header)
        if header.magic != 2 or not HEADER_SIZE_BYTES <= header.size_bytes <= view.len - position:
            break
        if header.leader_epoch > leader_epoch_max or header.base_offset < next_offset:
            break
        next_offset = header.base_offset + header.last_offset_delta + 1
        position += header.size_bytes
    PyBuffer_Release(&view)
    return position, next_offset


cdef bint _crc_fits(object buffer, const Py_buffer *view, Py_ssize_t position, BatchHeader header) except -1:
    """Whether the checksum is right; the batch has to lie within the view."""
    cdef Py_ssize_t end = position + header.size_bytes
    if _crc_in_hardware and header.size_bytes <= FEW_BYTES:
        return header.crc == crc32c_of_few(
            <const uint8_t *> view.buf + position + ATTRIBUTES_POSITION,
            <size_t> (header.size_bytes - ATTRIBUTES_POSITION),
        )
    return header.crc == _crc32c_of_many(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])


def verify_crc(object buffer, Py_ssize_t position, BatchHeader header not None):
    """Refuse with CORRUPT_MESSAGE a batch with a wrong CRC-32C, or an incomplete one."""
    cdef Py_buffer view
    cdef bint sound = False
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if 0 <= position <= view.len and HEADER_SIZE_BYTES <= header.size_bytes <= view.len - position:
            sound = _crc_fits(buffer, &view, position, header)
    finally:
        PyBuffer_Release(&view)
    if not sound:
        _refusals.refuse_checksum(buffer, position, header)


def read_client_batch(
    object buffer, Py_ssize_t position, Py_ssize_t size_bytes, int produce_version=LATEST_PRODUCE_VERSION
):
    """The header of a client's v2 batch, which has to fill the `size_bytes` bytes from `position` on.

    Refuses as `read_batch_header`, `verify_crc` and `validate_header` do, and with INVALID_RECORD bytes after
    the batch: from Produce version 3 on a partition gets one batch. Records are not read.
    """
    cdef Py_buffer view
    cdef BatchHeader header = None
    cdef bint sound = False
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if 0 <= position <= view.len - HEADER_SIZE_BYTES:
            header = _parse_header(<const uint8_t *> view.buf + position)
            sound = (
                header.magic == 2
                and header.size_bytes == size_bytes
                and HEADER_SIZE_BYTES <= size_bytes <= view.len - position
                and _client_may_send(header, produce_version)
                and _crc_fits(buffer, &view, position, header)
            )
    finally:
        PyBuffer_Release(&view)
    if not sound:
        header = read_batch_header(buffer, position)
        if header.size_bytes != size_bytes:
            _refusals.refuse_other_size(header, size_bytes)
        verify_crc(buffer, position, header)
        _refusals.validate_header(header, produce_version=produce_version)
        raise AssertionError("a sound batch is refused")
    return header


cdef bint _client_may_send(BatchHeader header, int produce_version):
    """`record_refusals.validate_header`, as a bool."""
    cdef int64_t attributes = header.attributes
    if attributes & (LOG_APPEND_TIME | CONTROL | DELETE_HORIZON):
        return False
    if attributes & COMPRESSION_MASK > 4 or (attributes & COMPRESSION_MASK == 4 and produce_version < 7):
        return False
    if header.base_offset != 0 or header.record_count <= 0:
        return False
    if header.record_count != header.last_offset_delta + 1:
        return False
    if header.producer_id == -1:
        return not attributes & TRANSACTIONAL
    return header.producer_id >= 0 and header.producer_epoch >= 0 and header.base_sequence >= 0


# Records ------------------------------------------------------------------------------------------------

cdef inline bint _scan_one(
    const uint8_t **at,
    const uint8_t *data,
    const uint8_t *end,
    int64_t base_offset,
    int64_t base_timestamp,
    int64_t *row,
) noexcept nogil:
    """Read the record at `at` into the seven columns of `row`, and move after it; returns whether it is
    sound."""
    cdef walked_record record
    if not walk_record(at[0], end, &record):
        return False
    at[0] = record.end
    row[2] = record.key - data
    row[3] = record.key_size
    row[4] = record.value - data
    row[5] = record.value_size
    row[6] = record.headers - data if record.headers != NULL else -1
    return sum_fits(base_offset, record.offset_delta, &row[0]) and sum_fits(
        base_timestamp, record.timestamp_delta, &row[1]
    )


cdef bint _scan(
    const uint8_t *data,
    Py_ssize_t size,
    Py_ssize_t count,
    int64_t base_offset,
    int64_t base_timestamp,
    int64_t *columns,
) noexcept nogil:
    """Fill in the columns, `count` numbers each; returns whether all records are sound."""
    cdef const uint8_t *at = data
    cdef int64_t cells[COLUMNS]
    cdef Py_ssize_t row, column
    for row in range(count):
        if not _scan_one(&at, data, data + size, base_offset, base_timestamp, cells):
            return False
        for column in range(COLUMNS):
            columns[column * count + row] = cells[column]
    return at == data + size


cdef struct Survey:
    int64_t least
    int64_t most
    bint keys_missing


cdef bint _survey(
    const uint8_t *data, Py_ssize_t size, Py_ssize_t count, int64_t base_timestamp, Survey *survey
) noexcept nogil:
    """Fill in the survey; returns whether all records are sound."""
    cdef const uint8_t *at = data
    cdef int64_t cells[COLUMNS]
    cdef Py_ssize_t row
    if not 0 < count <= size // RECORD_BYTES_MIN:
        return False
    survey.keys_missing = False
    for row in range(count):
        if not _scan_one(&at, data, data + size, 0, base_timestamp, cells) or cells[0] != row:
            return False
        if row == 0 or cells[1] < survey.least:
            survey.least = cells[1]
        if row == 0 or cells[1] > survey.most:
            survey.most = cells[1]
        survey.keys_missing |= cells[3] < 0
    return at == data + size


def survey_if_sound(object data, object record_count, object base_timestamp):
    """`survey_records`, or None instead of a refusal, whose reason plain Python may need long to find. It
    needs no memory for the records."""
    cdef Py_buffer view
    cdef Survey survey
    cdef bint sound
    cdef Py_ssize_t count = record_count
    cdef int64_t timestamp = base_timestamp
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        sound = _survey(<const uint8_t *> view.buf, view.len, count, timestamp, &survey)
    PyBuffer_Release(&view)
    return (survey.least, survey.most, bool(survey.keys_missing)) if sound else None


def survey_records(object data, object record_count, object base_timestamp):
    """The facts of the records in `data` that a broker checks before an append: the earliest and the latest
    timestamp, and whether a key is missing.

    Refuses with INVALID_RECORD all that `scan_records` refuses, an empty batch, and offsets that do not count
    up from 0.
    """
    survey = survey_if_sound(data, record_count, base_timestamp)
    if survey is None:
        _refusals.refuse_offsets(bytes(data), record_count, base_timestamp)
    return survey


def scan_records(object data, object record_count, object base_offset, object base_timestamp):
    """The table of the `record_count` records in `data`; refuses with INVALID_RECORD.

    Every number and length is checked, also of headers: any client can read accepted records. The columns are
    memoryviews of one block of memory.
    """
    cdef Py_buffer view
    cdef bytes cells
    cdef bint sound = False
    cdef int64_t offset = base_offset
    cdef int64_t timestamp = base_timestamp
    cdef Py_ssize_t count = record_count
    cdef int64_t *columns
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if 0 <= count <= view.len // RECORD_BYTES_MIN:
            cells = PyBytes_FromStringAndSize(NULL, count * COLUMNS * sizeof(int64_t))
            columns = <int64_t *> PyBytes_AsString(cells)
            # Releases the GIL, since many megabytes take a while.
            with nogil:
                sound = _scan(<const uint8_t *> view.buf, view.len, count, offset, timestamp, columns)
    finally:
        PyBuffer_Release(&view)
    if not sound:
        _refusals.refuse_records(bytes(data), record_count, base_offset, base_timestamp)
    table = memoryview(cells).cast("q")
    return _RecordTable(*[table[i * count : (i + 1) * count] for i in range(COLUMNS)])


def read_records(bytes data not None, BatchHeader header not None):
    """The records in the records section `data` of a batch; refuses as `scan_records`."""
    cdef int64_t one_row[COLUMNS]  # a batch of one record, which a slow producer sends, needs no memory
    cdef int64_t *columns = one_row
    cdef int64_t count = header.record_count
    cdef Py_ssize_t size = len(data)
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AsString(data)
    if not 0 <= count <= size // RECORD_BYTES_MIN:
        _refusals.refuse_records(data, count, header.base_offset, header.base_timestamp)
    if count > 1:
        columns = <int64_t *> PyMem_Malloc(count * COLUMNS * sizeof(int64_t))
        if columns is NULL:
            raise MemoryError
    try:
        if not _scan(start, size, count, header.base_offset, header.base_timestamp, columns):
            _refusals.refuse_records(data, count, header.base_offset, header.base_timestamp)
        return _records_at(data, start, count, columns, header)
    finally:
        if columns is not one_row:
            PyMem_Free(columns)


cdef list _records_at(
    bytes data, const uint8_t *start, Py_ssize_t count, const int64_t *columns, BatchHeader header
):
    cdef list records = []
    cdef Py_ssize_t row
    cdef bint append_time = header.attributes & LOG_APPEND_TIME != 0
    cdef const int64_t *at
    cdef const uint8_t *end = start + len(data)
    for row in range(count):
        at = columns + row
        records.append(
            _new_tuple(
                _Record,
                (
                    at[0],
                    header.max_timestamp if append_time else at[count],
                    _bytes_at(start + at[2 * count], at[3 * count]),
                    _bytes_at(start + at[4 * count], at[5 * count]),
                    () if at[6 * count] < 0 else _headers_at(start + at[6 * count], end),
                ),
            )
        )
    return records


cdef object _bytes_at(const uint8_t *start, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *> start, size)


cdef tuple _headers_at(const uint8_t *start, const uint8_t *end):
    """Names and values of the headers of a sound record."""
    cdef walk_cursor cursor
    cdef int64_t size, i
    cdef object name
    cdef list headers = []
    cursor.at, cursor.end, cursor.sound = start, end, 1
    for i in range(walk_varint(&cursor, 5)):
        size = walk_bytes(&cursor)
        name = PyUnicode_DecodeUTF8(<const char *> cursor.at - size, size, "surrogateescape")
        size = walk_bytes(&cursor)
        headers.append((name, _bytes_at(cursor.at - size if size > 0 else cursor.at, size)))
    return tuple(headers)


# Building -----------------------------------------------------------------------------------------------


def build_keyed_batch(list rows not None, int64_t producer_id=-1, int64_t producer_epoch=-1):
    """A coordinator's batch: as `build_batch` of at least one record from offset 0 on, each a key, a value
    (None deletes) and a timestamp. With a producer it is a part of the producer's transaction."""
    cdef Py_ssize_t count = len(rows)
    cdef Py_ssize_t size_bytes = HEADER_SIZE_BYTES
    cdef Py_ssize_t offset
    cdef int64_t base_timestamp = 0, max_timestamp = 0, timestamp
    cdef int64_t body_bytes
    cdef bytes key, value, batch
    cdef uint32_t crc
    cdef batch_header header
    cdef uint8_t *start
    cdef uint8_t *at
    if count == 0:
        raise ValueError("a batch without records")
    for offset in range(count):
        key, value, timestamp = rows[offset]
        if offset == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        body_bytes = _body_bytes(key, value, timestamp - base_timestamp, offset)
        size_bytes += _varint_bytes(body_bytes) + body_bytes
    batch = PyBytes_FromStringAndSize(NULL, size_bytes)
    start = <uint8_t *> PyBytes_AsString(batch)
    memset(&header, 0, sizeof(header))
    header.size_bytes = size_bytes
    header.leader_epoch = -1  # set by the partition
    header.magic = 2
    header.attributes = 0 if producer_id == -1 else TRANSACTIONAL
    header.last_offset_delta = count - 1
    header.base_timestamp = base_timestamp
    header.max_timestamp = max_timestamp
    header.producer_id = producer_id
    header.producer_epoch = producer_epoch
    header.base_sequence = -1  # a coordinator has no sequences
    header.record_count = count
    pack_header(start, &header)
    at = start + HEADER_SIZE_BYTES
    for offset in range(count):
        key, value, timestamp = rows[offset]
        at = put_varint(at, _body_bytes(key, value, timestamp - base_timestamp, offset))
        at[0] = 0
        at = put_varint(at + 1, timestamp - base_timestamp)
        at = put_varint(at, offset)
        at = _put_bytes(at, key)
        at = _put_bytes(at, value)
        at[0] = 0  # no headers
        at += 1
    assert at == start + size_bytes
    if _crc_in_hardware and size_bytes <= FEW_BYTES:
        crc = crc32c_of_few(start + ATTRIBUTES_POSITION, size_bytes - ATTRIBUTES_POSITION)
    else:
        crc = _crc32c_of_many(memoryview(batch)[ATTRIBUTES_POSITION:])
    put_big_endian(start + CRC_POSITION, <uint64_t> crc, 4)
    return batch


cdef int64_t _body_bytes(bytes key, bytes value, int64_t timestamp_delta, int64_t offset_delta):
    """The size of a record from its attributes on."""
    cdef int64_t size = 2 + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta)
    size += 1 if key is None else _varint_bytes(len(key)) + len(key)
    size += 1 if value is None else _varint_bytes(len(value)) + len(value)
    return size


cdef inline int _varint_bytes(int64_t value) noexcept:
    cdef uint64_t left = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    cdef int size = 1
    while left > 0x7F:
        left >>= 7
        size += 1
    return size


cdef uint8_t *_put_bytes(uint8_t *at, bytes value):
    if value is None:
        return put_varint(at, -1)
    at = put_varint(at, len(value))
    memcpy(at, PyBytes_AsString(value), len(value))
    return at + len(value)
