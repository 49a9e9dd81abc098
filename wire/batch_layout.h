/* The layout of a record batch in format v2 for the compiled modules; `record_layout.py` says what it is. */
#ifndef ODRADEK_BATCH_LAYOUT_H
#define ODRADEK_BATCH_LAYOUT_H

#include "crc32c.h"

enum {
    HEADER_SIZE_BYTES = 61,
    LOG_OVERHEAD_BYTES = 12, /* base offset and length, which the length does not count */
    EXTENT_BYTES = 27,       /* up to the last offset delta: what it takes to step over a batch */
    RECORD_BYTES_MIN = 7,

    LENGTH_POSITION = 8,
    CRC_POSITION = 17,
    ATTRIBUTES_POSITION = 21, /* the checksum covers everything from here on */
    MAX_TIMESTAMP_POSITION = 35,
    RECORD_COUNT_POSITION = 57,

    COMPRESSION_MASK = 0x07,
    LOG_APPEND_TIME = 0x08,
    TRANSACTIONAL = 0x10,
    CONTROL = 0x20,
    DELETE_HORIZON = 0x40
};

/* What stands in the 61 bytes; `size_bytes` is of the whole batch. */
typedef struct {
    int64_t base_offset, size_bytes, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, record_count;
} batch_header;

static inline int64_t batch_base_offset(const uint8_t *start) { return (int64_t) big_endian(start, 8); }
static inline int64_t batch_length(const uint8_t *start) { return (int32_t) big_endian(start + LENGTH_POSITION, 4); }
static inline int64_t batch_last_offset_delta(const uint8_t *start) {
    return (int32_t) big_endian(start + 23, 4);
}

static inline void unpack_header(const uint8_t *start, batch_header *header) {
    header->base_offset = batch_base_offset(start);
    header->size_bytes = batch_length(start) + LOG_OVERHEAD_BYTES;
    header->leader_epoch = (int32_t) big_endian(start + 12, 4);
    header->magic = (int8_t) start[16];
    header->crc = (int64_t) big_endian(start + CRC_POSITION, 4);
    header->attributes = (int16_t) big_endian(start + ATTRIBUTES_POSITION, 2);
    header->last_offset_delta = batch_last_offset_delta(start);
    header->base_timestamp = (int64_t) big_endian(start + 27, 8);
    header->max_timestamp = (int64_t) big_endian(start + MAX_TIMESTAMP_POSITION, 8);
    header->producer_id = (int64_t) big_endian(start + 43, 8);
    header->producer_epoch = (int16_t) big_endian(start + 51, 2);
    header->base_sequence = (int32_t) big_endian(start + 53, 4);
    header->record_count = (int32_t) big_endian(start + RECORD_COUNT_POSITION, 4);
}

/* Writes all of them; the checksum is the caller's to compute afterwards. */
static inline void pack_header(uint8_t *start, const batch_header *header) {
    put_big_endian(start, (uint64_t) header->base_offset, 8);
    put_big_endian(start + LENGTH_POSITION, (uint64_t) (header->size_bytes - LOG_OVERHEAD_BYTES), 4);
    put_big_endian(start + 12, (uint64_t) header->leader_epoch, 4);
    start[16] = (uint8_t) header->magic;
    put_big_endian(start + CRC_POSITION, (uint64_t) header->crc, 4);
    put_big_endian(start + ATTRIBUTES_POSITION, (uint64_t) header->attributes, 2);
    put_big_endian(start + 23, (uint64_t) header->last_offset_delta, 4);
    put_big_endian(start + 27, (uint64_t) header->base_timestamp, 8);
    put_big_endian(start + MAX_TIMESTAMP_POSITION, (uint64_t) header->max_timestamp, 8);
    put_big_endian(start + 43, (uint64_t) header->producer_id, 8);
    put_big_endian(start + 51, (uint64_t) header->producer_epoch, 2);
    put_big_endian(start + 53, (uint64_t) header->base_sequence, 4);
    put_big_endian(start + RECORD_COUNT_POSITION, (uint64_t) header->record_count, 4);
}

#endif
