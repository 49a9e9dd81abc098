# What the headers of this folder say to the compiled modules: numbers in bytes, batches, records.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "crc32c.h":
    uint64_t big_endian(const uint8_t *bytes, int size) nogil
    void put_big_endian(uint8_t *bytes, uint64_t value, int size) nogil
    bint has_crc32c() nogil
    uint32_t crc32c_of_few(const uint8_t *bytes, size_t size) nogil

cdef extern from "batch_layout.h":
    enum:
        HEADER_SIZE_BYTES
        LOG_OVERHEAD_BYTES
        EXTENT_BYTES
        RECORD_BYTES_MIN
        LENGTH_POSITION
        CRC_POSITION
        ATTRIBUTES_POSITION
        MAX_TIMESTAMP_POSITION
        RECORD_COUNT_POSITION
        COMPRESSION_MASK
        LOG_APPEND_TIME
        TRANSACTIONAL
        CONTROL
        DELETE_HORIZON

    ctypedef struct batch_header:
        int64_t base_offset
        int64_t size_bytes
        int64_t leader_epoch
        int64_t magic
        int64_t crc
        int64_t attributes
        int64_t last_offset_delta
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int64_t producer_epoch
        int64_t base_sequence
        int64_t record_count

    int64_t batch_base_offset(const uint8_t *start) nogil
    int64_t batch_length(const uint8_t *start) nogil
    int64_t batch_last_offset_delta(const uint8_t *start) nogil
    void unpack_header(const uint8_t *start, batch_header *header) nogil
    void pack_header(uint8_t *start, const batch_header *header) nogil

cdef extern from "record_walk.h":
    ctypedef struct walked_record:
        const uint8_t *start
        const uint8_t *timestamp
        const uint8_t *offset
        const uint8_t *end
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int64_t timestamp_delta
        int64_t offset_delta
        int64_t key_size
        int64_t value_size

    ctypedef struct walk_cursor:
        const uint8_t *at
        const uint8_t *end
        int sound

    bint sum_fits(int64_t left, int64_t right, int64_t *sum) nogil
    bint walk_record(const uint8_t *at, const uint8_t *end, walked_record *record) nogil
    int64_t walk_varint(walk_cursor *cursor, int most_bytes) nogil
    int64_t walk_bytes(walk_cursor *cursor) nogil
    uint8_t *put_varint(uint8_t *at, int64_t value) nogil
