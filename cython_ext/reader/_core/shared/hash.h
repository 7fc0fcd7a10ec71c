/* A hash of bytes, 64 bits wide: where a key lies in a table, and whether stored bytes are whole.
 *
 * Four lanes take eight bytes each, one after the other; each step is a bijection of its lane, so that a
 * change of one word changes the hash. It depends on the bytes and their number alone, in every process,
 * and has no secret: a caller who chooses keys can make them collide. Includes system headers only. */
#ifndef READER_CORE_SHARED_HASH_H
#define READER_CORE_SHARED_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t rd_rotated(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

/* Spread what is in any bits of a value over all of them. */
static inline uint64_t rd_mixed(uint64_t value) {
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 29;
    value *= UINT64_C(0x9e3779b97f4a7c15);
    return value ^ value >> 32;
}

static inline uint64_t rd_word(const uint8_t *from) {
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

static inline uint64_t rd_hash(const void *bytes, size_t nbytes) {
    enum { LANES = 4, WORD = 8 };
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    const uint8_t *at = (const uint8_t *)bytes;
    uint64_t lanes[LANES] = {odd, odd * 3, odd * 5, odd * 7}, tail[LANES] = {0, 0, 0, 0}, found;
    size_t left = nbytes;
    for (; left >= LANES * WORD; left -= LANES * WORD, at += LANES * WORD)
        for (int i = 0; i < LANES; i++)
            lanes[i] = rd_rotated((lanes[i] ^ rd_word(at + i * WORD)) * odd, 29);
    if (left) {
        memcpy(tail, at, left);
        for (int i = 0; i < LANES; i++)
            lanes[i] = rd_rotated((lanes[i] ^ tail[i]) * odd, 29);
    }
    found = nbytes * odd;
    for (int i = 0; i < LANES; i++)
        found = rd_mixed(found ^ lanes[i]);
    return found;
}

#endif
