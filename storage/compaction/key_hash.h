/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein; the 128-bit form of its authors' reference). An
 * offset map has these hashes in place of keys: without the secret seed a client cannot make two keys collide. */
#ifndef ODRADEK_KEY_HASH_H
#define ODRADEK_KEY_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t first, second;
} key_hash;

static inline uint64_t little_endian(const uint8_t *bytes, size_t size) {
    uint64_t word = 0;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&word, bytes, size);
#else
    for (size_t i = 0; i < size; i++) word |= (uint64_t) bytes[i] << (8 * i);
#endif
    return word;
}

#define HASH_TURN(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))
#define HASH_ROUND                                                        \
    do {                                                                  \
        a += b; c += d;                                                   \
        b = HASH_TURN(b, 13) ^ a; d = HASH_TURN(d, 16) ^ c;               \
        a = HASH_TURN(a, 32);                                             \
        c += b; a += d;                                                   \
        b = HASH_TURN(b, 17) ^ c; d = HASH_TURN(d, 21) ^ a;               \
        c = HASH_TURN(c, 32);                                             \
    } while (0)

static inline key_hash hash_key(const uint8_t *key, size_t size, uint64_t seed0, uint64_t seed1) {
    uint64_t a = seed0 ^ 0x736f6d6570736575u, b = seed1 ^ 0x646f72616e646f6du ^ 0xee;
    uint64_t c = seed0 ^ 0x6c7967656e657261u, d = seed1 ^ 0x7465646279746573u;
    uint64_t word = (uint64_t) size << 56;
    key_hash hash;
    for (; size >= 8; size -= 8, key += 8) {
        uint64_t eight = little_endian(key, 8);
        d ^= eight;
        HASH_ROUND; HASH_ROUND;
        a ^= eight;
    }
    word |= little_endian(key, size);
    d ^= word;
    HASH_ROUND; HASH_ROUND;
    a ^= word;
    c ^= 0xee;
    HASH_ROUND; HASH_ROUND; HASH_ROUND; HASH_ROUND;
    hash.first = a ^ b ^ c ^ d;
    b ^= 0xdd;
    HASH_ROUND; HASH_ROUND; HASH_ROUND; HASH_ROUND;
    hash.second = a ^ b ^ c ^ d;
    return hash;
}

#endif
