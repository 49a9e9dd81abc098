/* Walking the records section of a batch in format v2 (`DefaultRecord.java`), for the compiled modules.
 *
 * A record is its size, a byte of attributes that mean nothing, timestamp delta, offset delta, key, value and
 * headers. Numbers are zigzag varints of at most 5 bytes (32 bits) or 10 (64); bits beyond those are cut off, as
 * in Java. Every negative size is null. What `walk_record` calls sound any client can read.
 */
#ifndef ODRADEK_RECORD_WALK_H
#define ODRADEK_RECORD_WALK_H

#include <stdint.h>

typedef struct {
    const uint8_t *start;            /* the first byte of its size */
    const uint8_t *timestamp;        /* the first byte of its timestamp delta */
    const uint8_t *offset;           /* the first byte of its offset delta, which ends the timestamp's */
    const uint8_t *end;              /* behind its last byte */
    const uint8_t *key, *value;      /* where they are, or would be */
    const uint8_t *headers;          /* the number of its headers; NULL for none */
    int64_t timestamp_delta, offset_delta;
    int64_t key_size, value_size;    /* -1 for null */
} walked_record;

typedef struct {
    const uint8_t *at, *end;
    int sound;
} walk_cursor;

/* The sum of two 64-bit numbers, or 0 for one that does not fit. */
static inline int sum_fits(int64_t left, int64_t right, int64_t *sum) {
    if (right > 0 ? left > INT64_MAX - right : left < INT64_MIN - right) return 0;
    *sum = left + right;
    return 1;
}

static inline int64_t walk_varint(walk_cursor *cursor, int most_bytes) {
    uint64_t raw = 0;
    for (int i = 0; i < most_bytes; i++) {
        if (cursor->at >= cursor->end) break;
        uint8_t octet = *cursor->at++;
        raw |= (uint64_t) (octet & 0x7F) << (7 * i);
        if (octet < 0x80) {
            if (most_bytes == 5) raw = (uint32_t) raw;
            return (int64_t) (raw >> 1) ^ -(int64_t) (raw & 1);
        }
    }
    cursor->sound = 0;
    return 0;
}

/* The size of the bytes at the cursor, which ends up behind them; -1 for null. */
static inline int64_t walk_bytes(walk_cursor *cursor) {
    int64_t size = walk_varint(cursor, 5);
    if (size < 0) return -1;
    if (size > cursor->end - cursor->at) {
        cursor->sound = 0;
        return 0;
    }
    cursor->at += size;
    return size;
}

/* Whether there are headers; the cursor ends up behind them. */
static inline int walk_headers(walk_cursor *cursor) {
    int64_t count = walk_varint(cursor, 5);
    if (count < 0 || count > cursor->end - cursor->at) {
        cursor->sound = 0;
        return 0;
    }
    for (int64_t i = 0; i < count && cursor->sound; i++) {
        if (walk_bytes(cursor) < 0) cursor->sound = 0; /* a header without a name */
        walk_bytes(cursor);
    }
    return count > 0;
}

/* Reads the record that begins at `at`; whether it is sound and ends before `end`. */
static inline int walk_record(const uint8_t *at, const uint8_t *end, walked_record *record) {
    walk_cursor cursor = {at, end, 1};
    record->start = at;
    int64_t size = walk_varint(&cursor, 5);
    if (!cursor.sound || size < 1 || size > end - cursor.at) return 0;
    cursor.end = record->end = cursor.at + size;
    record->timestamp = ++cursor.at;
    record->timestamp_delta = walk_varint(&cursor, 10);
    record->offset = cursor.at;
    record->offset_delta = walk_varint(&cursor, 5);
    record->key_size = walk_bytes(&cursor);
    record->key = record->key_size > 0 ? cursor.at - record->key_size : cursor.at;
    record->value_size = walk_bytes(&cursor);
    record->value = record->value_size > 0 ? cursor.at - record->value_size : cursor.at;
    const uint8_t *headers = cursor.at;
    record->headers = walk_headers(&cursor) ? headers : 0;
    return cursor.sound && cursor.at == record->end;
}

/* Writes a zigzag varint; returns what is behind it. */
static inline uint8_t *put_varint(uint8_t *at, int64_t value) {
    uint64_t raw = ((uint64_t) value << 1) ^ (uint64_t) (value >> 63);
    for (; raw > 0x7F; raw >>= 7) *at++ = (uint8_t) (raw & 0x7F) | 0x80;
    *at++ = (uint8_t) raw;
    return at;
}

#endif
