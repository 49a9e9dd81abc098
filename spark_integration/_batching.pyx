# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The part of `batching` that runs for every row.

It reads Arrow's buffers where they are; what it is given are whole arrays of the types that `Rows` names.

Sources: `Utils.murmur2` and KIP-480, KIP-794 (which partition a record goes to), `DefaultRecord.java`.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

from typing import NamedTuple

cdef extern from "row_hash.h":
    uint32_t _murmur2 "murmur2"(const uint8_t *bytes, size_t size) nogil
    uint64_t mixed(uint64_t hash, uint64_t word) nogil
    uint64_t content_hash(uint64_t hash, const uint8_t *bytes, size_t size) nogil
    int varint_size(int64_t value) nogil

include "wire/layout.pxi"

cdef enum:
    NOT_GIVEN = -1
    NO_TOPIC = -2
    NO_PARTITION = -3
    NO_HEADER = -4
    SAMPLE_ROWS = 32

cdef uint64_t NO_TIMESTAMP_GIVEN = <uint64_t> 1 << 63


class RowRefused(ValueError):
    """`row` cannot be a record. `what` is "topic" (it is null), "partition" (the topic has no such one) or
    "header" (one has no key)."""

    def __init__(self, row, what):
        super().__init__(f"row {row}: {what}")
        self.row, self.what = row, what


class Rows(NamedTuple):
    """Rows as Arrow arrays of one length, None for a column that is not there.

    `topics` (int32) holds numbers that `RecordEncoder.add_topic` gave, without it all rows go to topic 0;
    `partitions` is int32; `keys` and `values` are binary; `timestamps` (int64) are microseconds; `headers` is
    list<struct<string or binary, binary>>.
    """

    row_count: int
    topics: object = None
    partitions: object = None
    keys: object = None
    values: object = None
    timestamps: object = None
    headers: object = None


class EncodedRecords(NamedTuple):
    """The section of records of one batch, without compression."""

    topic: int
    partition: int
    section: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def murmur2(bytes content not None):
    """MurmurHash2 of 32 bits with the seed of Kafka's clients, unsigned."""
    return _murmur2(<const uint8_t *> PyBytes_AsString(content), len(content))


# Arrow's arrays -------------------------------------------------------------------------------------------

cdef struct Column:
    bint there
    const uint8_t *valid
    const int32_t *ends
    const uint8_t *data
    int64_t shift


cdef uintptr_t _address(object buffer) except? 0:
    return 0 if buffer is None else <uintptr_t> buffer.address


cdef int _open(object array, bint is_sized, Column *column) except -1:
    memset(column, 0, sizeof(Column))
    if array is None:
        return 0
    cdef list buffers = array.buffers()
    column.there = True
    column.shift = array.offset
    column.valid = <const uint8_t *> _address(buffers[0])
    if is_sized:
        column.ends = <const int32_t *> _address(buffers[1])
        column.data = <const uint8_t *> _address(buffers[2]) if len(buffers) == 3 else NULL
    else:
        column.data = <const uint8_t *> _address(buffers[1]) if len(buffers) > 1 else NULL
    return 0


cdef inline bint _is_there(const Column *column, int64_t row) noexcept nogil:
    cdef int64_t bit = column.shift + row
    return column.there and (column.valid is NULL or column.valid[bit >> 3] >> (bit & 7) & 1)


cdef inline int64_t _bytes_of(const Column *column, int64_t row, const uint8_t **start) noexcept nogil:
    """The size of the row's bytes, -1 for null, and where they begin."""
    cdef const int32_t *ends = column.ends + column.shift + row
    if not _is_there(column, row):
        return -1
    start[0] = column.data + ends[0]
    return ends[1] - ends[0]


cdef struct Columns:
    Column topics
    Column partitions
    Column keys
    Column values
    Column timestamps
    Column header_lists
    Column headers
    Column header_names
    Column header_contents


cdef int _open_all(object rows, Columns *columns) except -1:
    _open(rows.topics, False, &columns.topics)
    _open(rows.partitions, False, &columns.partitions)
    _open(rows.keys, True, &columns.keys)
    _open(rows.values, True, &columns.values)
    _open(rows.timestamps, False, &columns.timestamps)
    _open(None, False, &columns.headers)
    _open(None, False, &columns.header_names)
    _open(None, False, &columns.header_contents)
    if rows.headers is None:
        _open(None, False, &columns.header_lists)
        return 0
    _open(rows.headers, True, &columns.header_lists)
    structs = rows.headers.values
    _open(structs, False, &columns.headers)
    _open(structs.field(0), True, &columns.header_names)
    _open(structs.field(1), True, &columns.header_contents)
    return 0


# One record -----------------------------------------------------------------------------------------------

cdef struct Row:
    const uint8_t *key
    const uint8_t *value
    int64_t key_size
    int64_t value_size
    int64_t first_header
    int64_t end_of_headers
    int64_t tail_size
    int64_t timestamp
    bint has_timestamp


cdef inline int64_t _sized(int64_t size) noexcept nogil:
    return varint_size(size) + (size if size > 0 else 0)


cdef inline uint8_t *_put_sized(uint8_t *at, const uint8_t *start, int64_t size) noexcept nogil:
    at = put_varint(at, size)
    if size > 0:
        memcpy(at, start, size)
        at += size
    return at


cdef int _measure(const Columns *columns, int64_t number, int64_t now_ms, Row *row) noexcept nogil:
    """Fills in the row but for its place; 0 or what is wrong with it."""
    cdef const uint8_t *start
    cdef const int32_t *ends
    cdef int64_t header, size, microseconds
    row.key_size = _bytes_of(&columns.keys, number, &row.key)
    row.value_size = _bytes_of(&columns.values, number, &row.value)
    row.first_header = row.end_of_headers = 0
    if _is_there(&columns.header_lists, number):
        ends = columns.header_lists.ends + columns.header_lists.shift + number
        row.first_header, row.end_of_headers = ends[0], ends[1]
    row.tail_size = _sized(row.key_size) + _sized(row.value_size)
    row.tail_size += varint_size(row.end_of_headers - row.first_header)
    for header in range(row.first_header, row.end_of_headers):
        size = _bytes_of(&columns.header_names, header, &start)
        if size < 0 or not _is_there(&columns.headers, header):
            return NO_HEADER
        row.tail_size += _sized(size) + _sized(_bytes_of(&columns.header_contents, header, &start))
    row.has_timestamp = _is_there(&columns.timestamps, number)
    row.timestamp = now_ms
    if row.has_timestamp:
        microseconds = (<const int64_t *> columns.timestamps.data)[columns.timestamps.shift + number]
        row.timestamp = microseconds // 1000 - (1 if microseconds % 1000 < 0 else 0)
    return 0


cdef void _put_tail(const Columns *columns, const Row *row, uint8_t *at) noexcept nogil:
    """Writes the record from its key on."""
    cdef const uint8_t *start = NULL
    cdef int64_t header, size
    at = _put_sized(at, row.key, row.key_size)
    at = _put_sized(at, row.value, row.value_size)
    at = put_varint(at, row.end_of_headers - row.first_header)
    for header in range(row.first_header, row.end_of_headers):
        size = _bytes_of(&columns.header_names, header, &start)
        at = _put_sized(at, start, size)
        size = _bytes_of(&columns.header_contents, header, &start)
        at = _put_sized(at, start, size)


# What is gathered -----------------------------------------------------------------------------------------

cdef struct Slot:
    uint8_t *data
    size_t size
    size_t capacity
    int64_t count
    int64_t base_timestamp
    int64_t max_timestamp


cdef struct Topic:
    int64_t first_slot
    int64_t partitions
    uint64_t seed
    int64_t sticky
    int64_t sticky_bytes


cdef class RecordEncoder:
    """Rows in, sections of records out: each as soon as its partition has `batch_bytes` of them.

    `rows` counts those that were added, `checksum` is the sum of their hashes, and `sample` has the smallest
    32 of these, ascending: all the same for the same rows in any order. What the hash covers is in the row:
    topic, key, value and headers, partition and timestamp where the row has them.
    """

    cdef Slot *_slots
    cdef Topic *_topics
    cdef int64_t _slot_count
    cdef int64_t _topic_count
    cdef int64_t _batch_bytes
    cdef int64_t _held_bytes
    cdef readonly int64_t rows
    cdef readonly uint64_t checksum
    cdef uint64_t[SAMPLE_ROWS] _sample
    cdef int _sampled

    def __cinit__(self, batch_bytes):
        self._slots = NULL
        self._topics = NULL
        self._batch_bytes = batch_bytes

    def __dealloc__(self):
        for number in range(self._slot_count):
            PyMem_Free(self._slots[number].data)
        PyMem_Free(self._slots)
        PyMem_Free(self._topics)

    @property
    def sample(self):
        return [self._sample[at] for at in range(self._sampled)]

    @property
    def held_bytes(self):
        return self._held_bytes

    def add_topic(self, partitions, seed, start):
        """The number of a topic with so many partitions.

        `seed` stands for the topic in the checksum (64 bits); rows without key and partition go first to
        partition `start` modulo `partitions`, and to the next one after every `batch_bytes`.
        """
        cdef int64_t count = partitions
        cdef Slot *slots
        cdef Topic *topics
        if count < 1:
            raise ValueError("a topic has at least one partition")
        slots = <Slot *> PyMem_Realloc(self._slots, (self._slot_count + count) * sizeof(Slot))
        if slots is NULL:
            raise MemoryError
        self._slots = slots
        memset(slots + self._slot_count, 0, count * sizeof(Slot))
        topics = <Topic *> PyMem_Realloc(self._topics, (self._topic_count + 1) * sizeof(Topic))
        if topics is NULL:
            raise MemoryError
        self._topics = topics
        topics[self._topic_count] = Topic(self._slot_count, count, seed, start % count, 0)
        self._slot_count += count
        self._topic_count += 1
        return self._topic_count - 1

    def add(self, object rows, int64_t now_ms):
        """Takes the rows up, those without a timestamp with that of `now_ms`; returns what is full."""
        cdef Columns columns
        cdef Row row
        cdef list full = []
        cdef int64_t number, topic, place
        _open_all(rows, &columns)
        for number in range(<int64_t> rows.row_count):
            topic = self._topic_of(&columns, number)
            if topic < 0:
                raise RowRefused(number, "topic")
            if _measure(&columns, number, now_ms, &row) < 0:
                raise RowRefused(number, "header")
            place = self._place(&columns, number, topic, &row)
            if place == NO_PARTITION:
                raise RowRefused(number, "partition")
            self._append(full, &columns, number, topic, place, &row)
        return full

    def drain(self):
        """Records left of every partition, in the order of topics and partitions.

        The memory is given back.
        """
        cdef list rest = []
        cdef int64_t topic, partition
        cdef Slot *slot
        for topic in range(self._topic_count):
            for partition in range(self._topics[topic].partitions):
                slot = self._slots + self._topics[topic].first_slot + partition
                if slot.count:
                    self._emit(rest, topic, partition)
                PyMem_Free(slot.data)
                slot.data = NULL
                slot.capacity = 0
        self._held_bytes = 0
        return rest

    cdef int64_t _topic_of(self, const Columns *columns, int64_t number) noexcept:
        if not columns.topics.there:
            return 0
        if not _is_there(&columns.topics, number):
            return NO_TOPIC
        return (<const int32_t *> columns.topics.data)[columns.topics.shift + number]

    cdef int64_t _place(self, const Columns *columns, int64_t number, int64_t topic, const Row *row) noexcept:
        cdef int64_t partition
        cdef int64_t count = self._topics[topic].partitions
        if _is_there(&columns.partitions, number):
            partition = (<const int32_t *> columns.partitions.data)[columns.partitions.shift + number]
            return partition if 0 <= partition < count else NO_PARTITION
        if row.key_size < 0:
            return NOT_GIVEN
        return <int64_t> (_murmur2(row.key, row.key_size) & 0x7FFFFFFF) % count

    cdef int _append(
        self,
        list full,
        const Columns *columns,
        int64_t number,
        int64_t topic,
        int64_t place,
        const Row *row,
    ) except -1:
        cdef Topic *state = self._topics + topic
        cdef int64_t partition = state.sticky if place == NOT_GIVEN else place
        cdef Slot *slot = self._slots + state.first_slot + partition
        cdef int64_t body_size = self._body_size(slot, row)
        cdef int64_t record_size = varint_size(body_size) + body_size
        if slot.count and <int64_t> slot.size + record_size > self._batch_bytes:
            self._emit(full, topic, partition)
            body_size = self._body_size(slot, row)
            record_size = varint_size(body_size) + body_size
        self._reserve(slot, record_size)
        self._write(slot, columns, row, body_size)
        self._count(columns, number, state.seed, row, slot.data + slot.size - row.tail_size)
        if place == NOT_GIVEN:
            state.sticky_bytes += record_size
            if state.sticky_bytes >= self._batch_bytes:
                state.sticky = (state.sticky + 1) % state.partitions
                state.sticky_bytes = 0
        return 0

    cdef int64_t _body_size(self, const Slot *slot, const Row *row) noexcept:
        cdef int64_t delta = row.timestamp - slot.base_timestamp if slot.count else 0
        return 1 + varint_size(delta) + varint_size(slot.count) + row.tail_size

    cdef void _write(self, Slot *slot, const Columns *columns, const Row *row, int64_t body_size) noexcept:
        cdef uint8_t *at = slot.data + slot.size
        if slot.count == 0:
            slot.base_timestamp = slot.max_timestamp = row.timestamp
        at = put_varint(at, body_size)
        at[0] = 0
        at = put_varint(at + 1, row.timestamp - slot.base_timestamp)
        at = put_varint(at, slot.count)
        _put_tail(columns, row, at)
        slot.size = at - slot.data + row.tail_size
        slot.count += 1
        slot.max_timestamp = max(slot.max_timestamp, row.timestamp)

    cdef void _count(
        self, const Columns *columns, int64_t number, uint64_t seed, const Row *row, const uint8_t *tail
    ) noexcept:
        cdef int64_t partition = NOT_GIVEN
        if _is_there(&columns.partitions, number):
            partition = (<const int32_t *> columns.partitions.data)[columns.partitions.shift + number]
        cdef uint64_t hashed = mixed(seed, <uint64_t> partition)
        hashed = mixed(hashed, <uint64_t> row.timestamp if row.has_timestamp else NO_TIMESTAMP_GIVEN)
        self.rows += 1
        hashed = content_hash(hashed, tail, row.tail_size)
        self.checksum += hashed
        if self._sampled < SAMPLE_ROWS or hashed < self._sample[SAMPLE_ROWS - 1]:
            self._take_into_sample(hashed)

    cdef void _take_into_sample(self, uint64_t hashed) noexcept:
        cdef int at = 0
        cdef int last
        while at < self._sampled and self._sample[at] < hashed:
            at += 1
        if at < self._sampled and self._sample[at] == hashed:
            return
        if self._sampled < SAMPLE_ROWS:
            self._sampled += 1
        for last in range(self._sampled - 1, at, -1):
            self._sample[last] = self._sample[last - 1]
        self._sample[at] = hashed

    cdef int _reserve(self, Slot *slot, int64_t more) except -1:
        cdef size_t needed = slot.size + more
        cdef size_t capacity = slot.capacity
        cdef uint8_t *data
        if needed <= capacity:
            return 0
        capacity = max(needed, 2 * capacity, 1024)
        data = <uint8_t *> PyMem_Realloc(slot.data, capacity)
        if data is NULL:
            raise MemoryError
        self._held_bytes += capacity - slot.capacity
        slot.data = data
        slot.capacity = capacity
        return 0

    cdef int _emit(self, list emitted, int64_t topic, int64_t partition) except -1:
        cdef Slot *slot = self._slots + self._topics[topic].first_slot + partition
        section = PyBytes_FromStringAndSize(<const char *> slot.data, slot.size)
        emitted.append(
            EncodedRecords(topic, partition, section, slot.count, slot.base_timestamp, slot.max_timestamp)
        )
        slot.size = 0
        slot.count = 0
        return 0
