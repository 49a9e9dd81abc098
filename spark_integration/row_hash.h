/* For `_batching`: the hash of a key that chooses its partition, and the hash of a row's content. */
#ifndef ODRADEK_ROW_HASH_H
#define ODRADEK_ROW_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t little_endian_32(const uint8_t *bytes) {
    return (uint32_t) bytes[0] | (uint32_t) bytes[1] << 8 | (uint32_t) bytes[2] << 16 | (uint32_t) bytes[3] << 24;
}

/* MurmurHash2 of 32 bits with the seed of Kafka's clients. */
static inline uint32_t murmur2(const uint8_t *bytes, size_t size) {
    const uint32_t factor = 0x5BD1E995;
    uint32_t hash = 0x9747B28C ^ (uint32_t) size;
    for (; size >= 4; size -= 4, bytes += 4) {
        uint32_t word = little_endian_32(bytes) * factor;
        hash = hash * factor ^ (word ^ word >> 24) * factor;
    }
    if (size) {
        for (size_t i = size; i--;) hash ^= (uint32_t) bytes[i] << (8 * i);
        hash *= factor;
    }
    hash = (hash ^ hash >> 13) * factor;
    return hash ^ hash >> 15;
}

static inline uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    return hash ^ hash >> 29;
}

/* Of bytes, eight at a time as little-endian words, the last ones filled up with zeros; then of their number. */
static inline uint64_t content_hash(uint64_t hash, const uint8_t *bytes, size_t size) {
    size_t left = size;
    for (; left >= 8; left -= 8, bytes += 8)
        hash = mixed(hash, (uint64_t) little_endian_32(bytes) | (uint64_t) little_endian_32(bytes + 4) << 32);
    if (left) {
        uint64_t word = 0;
        for (size_t i = 0; i < left; i++) word |= (uint64_t) bytes[i] << (8 * i);
        hash = mixed(hash, word);
    }
    return mixed(hash, size);
}

static inline int varint_size(int64_t value) {
    uint64_t raw = ((uint64_t) value << 1) ^ (uint64_t) (value >> 63);
    int size = 1;
    for (; raw > 0x7F; raw >>= 7) size++;
    return size;
}

#endif
