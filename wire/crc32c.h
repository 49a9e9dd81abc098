/* For the compiled modules: numbers of the protocol, and CRC-32C of small buffers. */
#ifndef ODRADEK_CRC32C_H
#define ODRADEK_CRC32C_H

#include <stdint.h>
#include <string.h>

static inline uint64_t big_endian(const uint8_t *bytes, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value = value << 8 | bytes[i];
    return value;
}

static inline void put_big_endian(uint8_t *bytes, uint64_t value, int size) {
    for (int i = size - 1; i >= 0; i--, value >>= 8) bytes[i] = (uint8_t) value;
}

/* CRC-32C by the processor's own instruction; 0 if this machine or compiler does not have it. */
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
static inline int has_crc32c(void) { return __builtin_cpu_supports("sse4.2"); }
#if defined(__clang__) && __clang_major__ >= 14
__attribute__((target("sse4.2,crc32")))
#else
__attribute__((target("sse4.2")))
#endif
static inline uint32_t crc32c_of_few(const uint8_t *bytes, size_t size) {
    uint64_t sum = 0xFFFFFFFF;
    for (; size >= 8; size -= 8, bytes += 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    for (; size; size--, bytes++) sum = _mm_crc32_u8((uint32_t) sum, *bytes);
    return (uint32_t) sum ^ 0xFFFFFFFF;
}
#else
static inline int has_crc32c(void) { return 0; }
static inline uint32_t crc32c_of_few(const uint8_t *bytes, size_t size) { return 0; }
#endif

#endif
