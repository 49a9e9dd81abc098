/* Steps over the fields of a message up to one of them, by a program that `wire/prefixes.py` makes of the
   message's declaration. Every step is two bytes: what it is, and how many bytes where it is FIXED. */
#ifndef ODRADEK_PREFIX_H
#define ODRADEK_PREFIX_H

#include <stddef.h>
#include <stdint.h>

enum { FIXED, TEXT, NULLABLE_TEXT, COMPACT_TEXT, NULLABLE_COMPACT_TEXT, ONE, COMPACT_ONE, NO_TAGS, NUMBER_32,
       NUMBER_64 };

/* An unsigned varint of up to five bytes at *at, which moves behind it; -1 for any other. */
static inline int64_t read_varint(const uint8_t *bytes, ptrdiff_t *at, ptrdiff_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35 && *at < end; shift += 7) {
        uint8_t byte = bytes[(*at)++];
        value |= (uint64_t) (byte & 0x7F) << shift;
        if (byte < 0x80) return value > INT32_MAX ? -1 : (int64_t) value;
    }
    return -1;
}

/* A signed number of two or four bytes at *at, which moves behind it; INT64_MIN beyond the end. */
static inline int64_t read_number(const uint8_t *bytes, ptrdiff_t *at, ptrdiff_t end, int size) {
    if (end - *at < size) return INT64_MIN;
    int64_t value = (int8_t) bytes[*at];
    for (int i = 1; i < size; i++) value = value * 256 + bytes[*at + i];
    *at += size;
    return value;
}

/* The length of the text at *at, which moves behind that length; -1 for null, -2 for what is no such text. */
static inline int64_t read_text_size(const uint8_t *bytes, ptrdiff_t *at, ptrdiff_t end, int step) {
    int is_compact = step == COMPACT_TEXT || step == NULLABLE_COMPACT_TEXT;
    int is_nullable = step == NULLABLE_TEXT || step == NULLABLE_COMPACT_TEXT;
    int64_t size = is_compact ? read_varint(bytes, at, end) - 1 : read_number(bytes, at, end, 2);
    return size < (is_nullable ? -1 : 0) || size > end - *at ? -2 : size;
}

/* Where the steps end that begin at `at`; -1 for a message of another shape. */
static inline ptrdiff_t skip_prefix(const uint8_t *bytes, ptrdiff_t at, ptrdiff_t end, const uint8_t *steps,
                                    ptrdiff_t steps_size) {
    for (ptrdiff_t i = 0; i < steps_size; i += 2) {
        int64_t size = 0;
        switch (steps[i]) {
        case FIXED:
            size = steps[i + 1];
            break;
        case ONE:
            if (read_number(bytes, &at, end, 4) != 1) return -1;
            break;
        case COMPACT_ONE:
            if (read_varint(bytes, &at, end) != 2) return -1;
            break;
        case NO_TAGS:
            if (at >= end || bytes[at++]) return -1;
            break;
        default:
            size = read_text_size(bytes, &at, end, steps[i]);
            if (size == -2) return -1;
            if (size < 0) size = 0;
        }
        if (size > end - at) return -1;
        at += size;
    }
    return at;
}

#endif
