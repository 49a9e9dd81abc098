# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The parts of compaction that run for every batch and every record. `index_batches` and `filter_batches`
take only sound and plain batches and stop at any other batch. The caller then takes this one alone; the
result is the same. Records that are not sound go to `record_refusals`, which names the fault.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from typing import NamedTuple

from odradek.wire.checksums import crc32c as _crc32c_of_many
from odradek.wire.record_refusals import refuse_records as _refuse

include "wire/layout.pxi"

cdef extern from "key_hash.h":
    ctypedef struct key_hash:
        uint64_t first
        uint64_t second

    key_hash hash_key(const uint8_t *key, size_t size, uint64_t seed0, uint64_t seed1) nogil

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define prefetch(address) __builtin_prefetch(address)
    #else
    #define prefetch(address) ((void) (address))
    #endif
    """
    void prefetch(const void *address) nogil

cdef enum:
    FIRST_SLOTS = 4096
    GROWTH = 4
    # Keys that are hashed before the first lookup: meanwhile the processor loads the memory of their slots.
    GROUP = 16
    # Beyond this the crc32c package's three interleaved sums outrun one sum in our own loop.
    FEW_BYTES = 4096

cdef enum Taken:
    ALL = 0
    FULL = 1
    UNSOUND = 2

# Batches with these attributes are left to the caller.
cdef int64_t NOT_PLAIN = COMPRESSION_MASK | TRANSACTIONAL | CONTROL

SLOT_BYTES = 24
cdef bint _crc_in_hardware = has_crc32c()


class FilterRules(NamedTuple):
    """The rules of a round. Batches that end at an offset in `kept_offsets`, or just before `end_offset`,
    stay even when they are empty: the former are the last batches of producers, the latter is the round's
    last batch."""

    end_offset: int
    now_ms: int
    kept_offsets: frozenset[int]


class Selection(NamedTuple):
    """The records of a batch that stay. `section` is None when all stay; `max_timestamp` and `has_tombstones`
    describe the records that stay."""

    record_count: int
    has_tombstones: bool
    max_timestamp: int
    section: bytes | None


# The map ------------------------------------------------------------------------------------------------

cdef struct Entry:
    key_hash name
    int64_t place  # the offset and one; 0 is a free slot


cdef class OffsetMap:
    """The latest offset of each key, for at most `slots` keys.

    A hash of 16 bytes stands for a key. `seed` is 16 secret random bytes, so that a client cannot make two
    keys with the same hash. `latest_offset` is the last offset of the log that is in the map; the owner sets
    it.

    24 bytes a slot, as in Kafka's `SkimpyOffsetMap`, but the table begins small and grows when it is half
    full: touching 128 MB takes longer than compacting most logs. While it grows for the last time it takes a
    quarter more memory.
    """

    cdef Entry *_entries
    cdef Py_ssize_t _size
    cdef readonly Py_ssize_t slots
    cdef public int64_t latest_offset
    cdef Py_ssize_t _count
    cdef uint64_t _seed0
    cdef uint64_t _seed1

    def __cinit__(self, Py_ssize_t slots, bytes seed not None):
        if not 1 <= slots < 1 << 32 or len(seed) != 16:
            raise ValueError("an offset map needs at least one slot and a seed of 16 bytes")
        self.slots = slots
        self._size = min(slots, FIRST_SLOTS)
        self._entries = <Entry *> calloc(self._size, sizeof(Entry))
        if self._entries == NULL:
            raise MemoryError()
        self.latest_offset = -1
        self._seed0 = big_endian(<const uint8_t *> PyBytes_AsString(seed), 8)
        self._seed1 = big_endian(<const uint8_t *> PyBytes_AsString(seed) + 8, 8)

    def __dealloc__(self):
        free(self._entries)

    def __len__(self):
        return self._count

    def put(self, bytes key not None, int64_t offset):
        """ValueError for a new key when every slot has one."""
        cdef key_hash name = _name_of(self, <const uint8_t *> PyBytes_AsString(key), len(key))
        if not _put(self, &name, offset):
            raise ValueError(f"the offset map has {self.slots} slots, and all are in use")

    def get(self, bytes key not None):
        """The key's latest offset; -1 when it is not known."""
        cdef key_hash name = _name_of(self, <const uint8_t *> PyBytes_AsString(key), len(key))
        return _get(self, &name)


cdef inline key_hash _name_of(OffsetMap self, const uint8_t *key, Py_ssize_t size) noexcept nogil:
    return hash_key(key, size, self._seed0, self._seed1)


cdef inline Entry *_home(OffsetMap self, const key_hash *name) noexcept nogil:
    """The slot where the search for a key begins."""
    return self._entries + (((name.first >> 32) * <uint64_t> self._size) >> 32)


cdef inline Entry *_find(OffsetMap self, const key_hash *name) noexcept nogil:
    """The key's slot, or the free one that it would get; NULL when there is neither."""
    cdef Entry *entry = _home(self, name)
    cdef Entry *end = self._entries + self._size
    cdef Py_ssize_t i
    for i in range(self._size):
        if entry.place == 0 or (entry.name.first == name.first and entry.name.second == name.second):
            return entry
        entry += 1
        if entry == end:
            entry = self._entries
    return NULL


cdef void _grow(OffsetMap self) noexcept nogil:
    """Makes the table larger if there is enough memory."""
    cdef Py_ssize_t size = self._size
    cdef Entry *entries = self._entries
    cdef Py_ssize_t larger = min(GROWTH * size, self.slots)
    cdef Entry *grown = <Entry *> calloc(larger, sizeof(Entry))
    cdef Py_ssize_t i
    if grown == NULL:
        return
    self._entries = grown
    self._size = larger
    for i in range(size):
        if entries[i].place != 0:
            _find(self, &entries[i].name)[0] = entries[i]
    free(entries)


cdef inline bint _put(OffsetMap self, const key_hash *name, int64_t offset) noexcept nogil:
    cdef Entry *entry = _find(self, name)
    if (entry == NULL or entry.place == 0) and 2 * self._count >= self._size and self._size < self.slots:
        _grow(self)
        entry = _find(self, name)
    if entry == NULL:
        return False
    if entry.place == 0:
        entry.name = name[0]
        self._count += 1
    entry.place = offset + 1
    return True


cdef inline int64_t _get(OffsetMap self, const key_hash *name) noexcept nogil:
    cdef Entry *entry = _find(self, name)
    return -1 if entry == NULL else entry.place - 1


cdef Taken _index(
    OffsetMap self,
    const uint8_t *data,
    Py_ssize_t size,
    int64_t count,
    int64_t base_offset,
    int64_t first_offset,
    int64_t entries_max,
) noexcept nogil:
    """Take the records of a section into the map, in groups: all keys of a group are hashed first."""
    cdef walked_record record
    cdef key_hash names[GROUP]
    cdef int64_t offsets[GROUP]
    cdef const uint8_t *at = data
    cdef const uint8_t *end = data + size
    cdef int64_t row = 0
    cdef int64_t offset
    cdef Py_ssize_t held, i
    while row < count:
        held = 0
        while row < count and held < GROUP:
            if not walk_record(at, end, &record) or not sum_fits(base_offset, record.offset_delta, &offset):
                return UNSOUND
            at = record.end
            row += 1
            if record.key_size >= 0 and offset >= first_offset:
                names[held] = _name_of(self, record.key, record.key_size)
                offsets[held] = offset
                prefetch(_home(self, &names[held]))
                held += 1
        for i in range(held):
            if self._count >= entries_max or not _put(self, &names[i], offsets[i]):
                return FULL
            self.latest_offset = offsets[i]
    return ALL if at == end else UNSOUND


def index_section(
    OffsetMap offset_map not None, bytes section not None, record_count, base_offset, first_offset, entries_max
):
    """Take the records of a batch from `first_offset` on into the map; returns whether the map is full.

    As in Kafka a map with `entries_max` keys takes no further record, not even of a known key;
    `latest_offset` is then the offset of the last record in the map. Refuses with INVALID_RECORD.
    """
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AsString(section)
    cdef Taken taken = UNSOUND
    if 0 <= record_count <= len(section) // RECORD_BYTES_MIN:
        taken = _index(offset_map, data, len(section), record_count, base_offset, first_offset, entries_max)
    if taken == UNSOUND:
        _refuse(section, record_count, base_offset, 0)
    return taken == FULL


# Batches ------------------------------------------------------------------------------------------------

cdef struct Batch:
    const uint8_t *start
    Py_ssize_t size
    int64_t base_offset
    int64_t last_offset
    int64_t attributes
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int64_t record_count
    uint32_t crc


cdef bint _is_plain(const uint8_t *start, Py_ssize_t left, int64_t least_offset, Batch *batch) noexcept nogil:
    """Whether a whole batch that this module takes is there; the checksum is not checked."""
    cdef batch_header header
    if left < HEADER_SIZE_BYTES:
        return False
    batch.start = start
    unpack_header(start, &header)
    if not HEADER_SIZE_BYTES <= header.size_bytes <= left or header.magic != 2:
        return False
    batch.size = header.size_bytes
    batch.base_offset = header.base_offset
    batch.last_offset = header.base_offset + header.last_offset_delta
    batch.attributes = header.attributes
    batch.base_timestamp = header.base_timestamp
    batch.max_timestamp = header.max_timestamp
    batch.producer_id = header.producer_id
    batch.record_count = header.record_count
    batch.crc = <uint32_t> header.crc
    return (
        not batch.attributes & NOT_PLAIN
        and batch.base_offset >= least_offset
        and batch.base_offset < (1LL << 62)
        and batch.last_offset >= batch.base_offset
        and 0 < batch.record_count <= (batch.size - HEADER_SIZE_BYTES) // RECORD_BYTES_MIN
    )


cdef bint _crc_fits(bytes data, const Batch *batch) except -1:
    cdef Py_ssize_t position = batch.start - <const uint8_t *> PyBytes_AsString(data)
    if _crc_in_hardware and batch.size <= FEW_BYTES:
        return batch.crc == _crc_of_few(batch.start, batch.size)
    return batch.crc == _crc32c_of_many(memoryview(data)[position + ATTRIBUTES_POSITION : position + batch.size])


cdef inline uint32_t _crc_of_few(const uint8_t *start, Py_ssize_t size) noexcept nogil:
    return crc32c_of_few(start + ATTRIBUTES_POSITION, <size_t> (size - ATTRIBUTES_POSITION))


def index_batches(
    OffsetMap offset_map not None,
    bytes data not None,
    Py_ssize_t position,
    int64_t least_offset,
    int64_t first_offset,
    int64_t entries_max,
):
    """Take batches from `position` on into the map. Returns the position of the first batch that was not
    taken, the lowest offset that this batch may have, and whether the map is full.

    It takes sound and whole batches of plain records from `least_offset` on, and passes over batches that end
    before `first_offset`. It sets the map's `latest_offset`.
    """
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AsString(data)
    cdef Py_ssize_t size = len(data)
    cdef Batch batch
    cdef Taken taken
    while _is_plain(start + position, size - position, least_offset, &batch):
        if batch.last_offset >= first_offset:
            if not _crc_fits(data, &batch):
                break
            taken = _index(
                offset_map,
                batch.start + HEADER_SIZE_BYTES,
                batch.size - HEADER_SIZE_BYTES,
                batch.record_count,
                batch.base_offset,
                first_offset,
                entries_max,
            )
            if taken == UNSOUND:
                break
            if taken == FULL:
                return position, least_offset, True
            offset_map.latest_offset = batch.last_offset
        position += batch.size
        least_offset = batch.last_offset + 1
    return position, least_offset, False


# What stays ---------------------------------------------------------------------------------------------

cdef struct Span:
    const uint8_t *start
    const uint8_t *end


cdef struct Kept:
    int64_t records
    Py_ssize_t spans
    Py_ssize_t bytes
    int64_t max_timestamp
    bint has_tombstones


cdef bint _select(
    OffsetMap self,
    const uint8_t *data,
    Py_ssize_t size,
    int64_t count,
    int64_t base_offset,
    int64_t base_timestamp,
    bint keeps_tombstones,
    Span *spans,
    Kept *kept,
) noexcept nogil:
    """Find the runs of records that stay, at most `count`; whether all records are sound."""
    cdef walked_record records[GROUP]
    cdef key_hash names[GROUP]
    cdef walked_record *record
    cdef const uint8_t *at = data
    cdef const uint8_t *end = data + size
    cdef int64_t row = 0
    cdef int64_t offset, timestamp
    cdef Py_ssize_t held, i
    kept.records = 0
    kept.spans = 0
    kept.bytes = 0
    kept.max_timestamp = -1
    kept.has_tombstones = False
    while row < count:
        held = 0
        while row < count and held < GROUP:
            if not walk_record(at, end, &records[held]):
                return False
            at = records[held].end
            row += 1
            if records[held].key_size >= 0:
                names[held] = _name_of(self, records[held].key, records[held].key_size)
                prefetch(_home(self, &names[held]))
            held += 1
        for i in range(held):
            record = &records[i]
            if not sum_fits(base_offset, record.offset_delta, &offset):
                return False
            if not sum_fits(base_timestamp, record.timestamp_delta, &timestamp):
                return False
            if offset <= self.latest_offset:
                if record.key_size < 0 or (record.value_size < 0 and not keeps_tombstones):
                    continue
                if offset < _get(self, &names[i]):
                    continue
            if kept.spans and spans[kept.spans - 1].end == record.start:
                spans[kept.spans - 1].end = record.end
            else:
                spans[kept.spans].start = record.start
                spans[kept.spans].end = record.end
                kept.spans += 1
            kept.records += 1
            kept.bytes += record.end - record.start
            kept.has_tombstones = kept.has_tombstones or record.value_size < 0
            if timestamp > kept.max_timestamp:
                kept.max_timestamp = timestamp
    return at == end


cdef uint8_t *_write_spans(uint8_t *at, const Span *spans, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        memcpy(at, spans[i].start, spans[i].end - spans[i].start)
        at += spans[i].end - spans[i].start
    return at


def select_records(
    OffsetMap offset_map not None,
    bytes section not None,
    record_count,
    base_offset,
    base_timestamp,
    bint keeps_tombstones,
):
    """The records of a batch that stay by their keys; refuses with INVALID_RECORD.

    All records after the map's `latest_offset` stay. Of the others a record is removed if it has no key, if
    its key has a later record, or if it is a tombstone and `keeps_tombstones` is false.
    """
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AsString(section)
    cdef Py_ssize_t size = len(section)
    cdef int64_t count = record_count
    cdef Span *spans = NULL
    cdef Kept kept
    cdef bint sound = False
    cdef bytes stays = None
    if 0 <= count <= size // RECORD_BYTES_MIN:
        spans = <Span *> malloc((count + 1) * sizeof(Span))
        if spans == NULL:
            raise MemoryError()
    try:
        if spans != NULL:
            sound = _select(
                offset_map, data, size, count, base_offset, base_timestamp, keeps_tombstones, spans, &kept
            )
        if not sound:
            _refuse(section, record_count, base_offset, base_timestamp)
        if kept.records != count:
            stays = PyBytes_FromStringAndSize(NULL, kept.bytes)
            _write_spans(<uint8_t *> PyBytes_AsString(stays), spans, kept.spans)
    finally:
        free(spans)
    return Selection(kept.records, kept.has_tombstones, kept.max_timestamp, stays)


def shift_timestamps(bytes section not None, record_count, int64_t shift_ms):
    """The same records for a batch whose base timestamp is `shift_ms` earlier: their deltas are greater.

    The records must be sound. A delta beyond 64 bits is cut off, as in Java.
    """
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AsString(section)
    cdef const uint8_t *end = at + len(section)
    cdef int64_t count = record_count
    cdef int64_t row
    cdef walked_record record
    cdef uint8_t delta[10]
    cdef uint8_t *shifted
    cdef uint8_t *out
    cdef Py_ssize_t delta_size
    # A delta grows by at most nine bytes; the size field before it, at most five bytes long, by four.
    shifted = out = <uint8_t *> malloc(len(section) + 16 * count + 1)
    if shifted == NULL:
        raise MemoryError()
    try:
        for row in range(count):
            if not walk_record(at, end, &record):
                _refuse(section, record_count, 0, 0)
            delta_size = put_varint(
                delta, <int64_t> (<uint64_t> record.timestamp_delta + <uint64_t> shift_ms)
            ) - delta
            out = put_varint(out, 1 + delta_size + (record.end - record.offset))
            out[0] = record.timestamp[-1]
            memcpy(out + 1, delta, delta_size)
            memcpy(out + 1 + delta_size, record.offset, record.end - record.offset)
            out += 1 + delta_size + (record.end - record.offset)
            at = record.end
        return PyBytes_FromStringAndSize(<char *> shifted, out - shifted)
    finally:
        free(shifted)


cdef class Copy:
    """The content of a cleaned segment: bytes to be written, index entries, counts.

    `index_entries` are (last offset, position, latest timestamp so far, last offset of the first batch that
    has this timestamp). As with appends, an entry is added after more than `index_interval_bytes`.
    """

    cdef readonly int64_t size_bytes
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t max_timestamp_offset
    cdef readonly list index_entries
    cdef public int64_t records_read
    cdef public int64_t records_kept
    cdef int64_t _index_interval_bytes
    cdef int64_t _bytes_since_index
    cdef uint8_t *_pending
    cdef Py_ssize_t _used
    cdef Py_ssize_t _room
    cdef Span *_spans
    cdef Py_ssize_t _spans_room

    def __cinit__(self, base_offset, index_interval_bytes):
        self.max_timestamp_ms = -1
        self.max_timestamp_offset = base_offset
        self.index_entries = []
        self._index_interval_bytes = index_interval_bytes

    def __dealloc__(self):
        free(self._pending)
        free(self._spans)

    def append(self, batch, int64_t last_offset, int64_t max_timestamp):
        """Add a whole batch."""
        cdef bytes content = bytes(batch)
        cdef uint8_t *place = _reserve(self, len(content))
        memcpy(place, PyBytes_AsString(content), len(content))
        _account(self, len(content), last_offset, max_timestamp)

    @property
    def pending_bytes(self):
        return self._used

    def take(self):
        """The bytes added since the last call, to be written at `size_bytes` minus their length."""
        cdef bytes taken = PyBytes_FromStringAndSize(<char *> self._pending, self._used)
        self._used = 0
        return taken


cdef uint8_t *_reserve(Copy self, Py_ssize_t size) except NULL:
    """The address for the next `size` bytes."""
    cdef uint8_t *grown
    cdef Py_ssize_t room = self._room
    if self._used + size > room or room == 0:
        room = max(2 * room, self._used + size, 4096)
        grown = <uint8_t *> realloc(self._pending, room)
        if grown == NULL:
            raise MemoryError()
        self._pending = grown
        self._room = room
    return self._pending + self._used


cdef int _account(Copy self, Py_ssize_t size, int64_t last_offset, int64_t max_timestamp) except -1:
    """Counts the batch of `size` bytes at the address from `_reserve`: it stays."""
    if max_timestamp > self.max_timestamp_ms:
        self.max_timestamp_ms = max_timestamp
        self.max_timestamp_offset = last_offset
    if self._bytes_since_index > self._index_interval_bytes:
        self.index_entries.append(
            (last_offset, self.size_bytes, self.max_timestamp_ms, self.max_timestamp_offset)
        )
        self._bytes_since_index = 0
    self._bytes_since_index += size
    self._used += size
    self.size_bytes += size
    return 0


cdef Span *_spans_for(Copy self, int64_t count) except NULL:
    cdef Span *grown
    if count > self._spans_room or self._spans_room == 0:
        grown = <Span *> realloc(self._spans, (count + 64) * sizeof(Span))
        if grown == NULL:
            raise MemoryError()
        self._spans = grown
        self._spans_room = count + 64
    return self._spans


cdef int _copy_some(Copy self, const Batch *batch, const Kept *kept) except -1:
    """Add a batch without the records that go; its base timestamp, offsets and sequences stay."""
    cdef Py_ssize_t size = HEADER_SIZE_BYTES + kept.bytes
    cdef uint8_t *place = _reserve(self, size)
    cdef int64_t max_timestamp = kept.max_timestamp
    if batch.attributes & LOG_APPEND_TIME:
        max_timestamp = batch.max_timestamp
    memcpy(place, batch.start, HEADER_SIZE_BYTES)
    _write_spans(place + HEADER_SIZE_BYTES, self._spans, kept.spans)
    put_big_endian(place + LENGTH_POSITION, <uint64_t> (size - LOG_OVERHEAD_BYTES), 4)
    put_big_endian(place + MAX_TIMESTAMP_POSITION, <uint64_t> max_timestamp, 8)
    put_big_endian(place + RECORD_COUNT_POSITION, <uint64_t> kept.records, 4)
    put_big_endian(place + CRC_POSITION, _crc_of_few(place, size), 4)
    return _account(self, size, batch.last_offset, max_timestamp)


def filter_batches(
    OffsetMap offset_map not None,
    bytes data not None,
    Py_ssize_t position,
    int64_t least_offset,
    rules,
    Copy copy not None,
):
    """Copy the records that stay of batches from `position` on. Returns the position of the first batch that
    was not taken, the lowest offset that this batch may have, and False (no map gets full here).

    Batches that need a delete horizon, or that stay without records, are left to the caller.
    """
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AsString(data)
    cdef Py_ssize_t size = len(data)
    cdef int64_t end_offset = rules.end_offset
    cdef int64_t now_ms = rules.now_ms
    cdef object kept_offsets = rules.kept_offsets
    cdef Batch batch
    cdef Kept kept
    cdef bint has_horizon, keeps_tombstones, keeps_all
    cdef uint8_t *place
    while _is_plain(start + position, size - position, least_offset, &batch) and _crc_fits(data, &batch):
        has_horizon = batch.attributes & DELETE_HORIZON != 0
        keeps_tombstones = not has_horizon or now_ms < batch.base_timestamp
        if not _select(
            offset_map,
            batch.start + HEADER_SIZE_BYTES,
            batch.size - HEADER_SIZE_BYTES,
            batch.record_count,
            batch.base_offset,
            batch.base_timestamp,
            keeps_tombstones,
            _spans_for(copy, batch.record_count),
            &kept,
        ):
            break
        keeps_all = kept.records == batch.record_count
        if kept.has_tombstones and not has_horizon:
            break
        if kept.records == 0 and (
            batch.last_offset + 1 == end_offset
            or (batch.producer_id >= 0 and batch.last_offset in kept_offsets)
        ):
            break
        if keeps_all:
            place = _reserve(copy, batch.size)
            memcpy(place, batch.start, batch.size)
            _account(copy, batch.size, batch.last_offset, batch.max_timestamp)
        elif kept.records:
            if not _crc_in_hardware:
                break
            _copy_some(copy, &batch, &kept)
        copy.records_read += batch.record_count
        copy.records_kept += kept.records
        position += batch.size
        least_offset = batch.last_offset + 1
    return position, least_offset, False
