/* The numbers that an output has for bytes: table[byte] for each byte of a row, in a channel's table of 256; or the
 * same numbers by arithmetic, which is quicker. May include the C++ library alone. Keeps the last tables of a thread;
 * needs no GIL. */
#ifndef READER_CORE_LOOK_UP_H
#define READER_CORE_LOOK_UP_H

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* out[i] = table[from[i * step]]. */
template <typename Item>
static inline void rd_look_up(const uint8_t *from, int64_t step, const Item *table, Item *out, int64_t n) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4, from += 4 * step) {
        const Item a = table[from[0]], b = table[from[step]];
        const Item c = table[from[2 * step]], d = table[from[3 * step]];
        out[i] = a, out[i + 1] = b, out[i + 2] = c, out[i + 3] = d;
    }
    for (; i < n; i++, from += step)
        out[i] = table[*from];
}

#if defined(__x86_64__)
/* The same for 64 bytes at once, where a register of 64 bytes can be looked up in 256 others: the first
 * bytes of all numbers are looked up, then their second bytes, and so on. */
#define RD_BYTE_PERMUTE __attribute__((target("avx512f,avx512bw,avx512vbmi")))

static inline bool rd_has_byte_permute() {
    static const bool found =
        (__builtin_cpu_init(), __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw"));
    return found;
}

/* As rd_look_up, for `count` rows of numbers of 2 or 4 bytes; those of `out` are `out_pitch` apart.
 * `step` is 1 or -1. */
template <typename Item>
RD_BYTE_PERMUTE static void rd_look_up_bytes(const uint8_t *from, int64_t pitch, int64_t step,
                                             const Item *table, Item *out, int64_t out_pitch,
                                             int64_t width, int64_t count) {
    enum : int { BYTES = sizeof(Item), PER_STORE = 64 / BYTES, PER_LANE = 16 / BYTES };
    /* Unpacking interleaves numbers of each quarter of a register, so bytes are interleaved first: the
     * bytes for quarter l of store q go to part q of quarter l. */
    uint8_t order[64], by_bytes[BYTES][256];
    for (int q = 0; q < BYTES; q++)
        for (int l = 0; l < 4; l++)
            for (int r = 0; r < PER_LANE; r++) {
                const int at = PER_STORE * q + PER_LANE * l + r;
                order[16 * l + PER_LANE * q + r] = (uint8_t)(step > 0 ? at : 63 - at);
            }
    for (int b = 0; b < BYTES; b++)
        for (int i = 0; i < 256; i++)
            by_bytes[b][i] = (uint8_t)(table[i] >> (8 * b));
    const __m512i turns = _mm512_loadu_si512(order);
    __m512i parts[BYTES][4];
    for (int b = 0; b < BYTES; b++)
        for (int part = 0; part < 4; part++)
            parts[b][part] = _mm512_loadu_si512(by_bytes[b] + 64 * part);
    for (int64_t k = 0; k < count; k++, from += pitch, out += out_pitch)
        for (int64_t i = 0; i < width; i += 64) {
            const int64_t n = width - i < 64 ? width - i : 64;
            const __mmask64 read = ~(__mmask64)0 >> (64 - n);
            const __m512i bytes = step > 0
                                      ? _mm512_maskz_loadu_epi8(read, from + i)
                                      : _mm512_maskz_loadu_epi8(read << (64 - n), from - i - 63);
            const __m512i at = _mm512_maskz_permutexvar_epi8(~(__mmask64)0, turns, bytes);
            const __mmask64 is_upper = _mm512_movepi8_mask(at);
            __m512i found[BYTES], numbers[BYTES];
            for (int b = 0; b < BYTES; b++)
                found[b] = _mm512_mask_blend_epi8(
                    is_upper, _mm512_permutex2var_epi8(parts[b][0], at, parts[b][1]),
                    _mm512_permutex2var_epi8(parts[b][2], at, parts[b][3]));
            const __m512i low = _mm512_unpacklo_epi8(found[0], found[1]);
            const __m512i high = _mm512_unpackhi_epi8(found[0], found[1]);
            if constexpr (BYTES == 4) {
                const __m512i upper_low = _mm512_unpacklo_epi8(found[2], found[3]);
                const __m512i upper_high = _mm512_unpackhi_epi8(found[2], found[3]);
                numbers[0] = _mm512_unpacklo_epi16(low, upper_low);
                numbers[1] = _mm512_unpackhi_epi16(low, upper_low);
                numbers[2] = _mm512_unpacklo_epi16(high, upper_high);
                numbers[3] = _mm512_unpackhi_epi16(high, upper_high);
            } else
                numbers[0] = low, numbers[1] = high;
            for (int q = 0; q < BYTES; q++) {
                const int64_t left = n - q * PER_STORE;
                if (left >= PER_STORE)
                    _mm512_storeu_si512(out + i + q * PER_STORE, numbers[q]);
                else if (left > 0 && BYTES == 4)
                    _mm512_mask_storeu_epi32(out + i + q * PER_STORE, (__mmask16)((1u << left) - 1),
                                             numbers[q]);
                else if (left > 0)
                    _mm512_mask_storeu_epi16(out + i + q * PER_STORE, (__mmask32)((1ull << left) - 1),
                                             numbers[q]);
            }
        }
}
#endif

/* What Normalize makes of a byte: (byte / 255 - mean) / std as floats, rounded at each step. */
struct rd_normal {
    float mean, std; /* std 0: these numbers are others */
};

/* Dividing takes a processor long: a product with the reciprocal, and one step of Newton's, give the same. */
__attribute__((always_inline)) static inline float rd_divided(float number, float by, float reciprocal) {
    const float near = number * reciprocal;
    return __builtin_fmaf(__builtin_fmaf(-near, by, number), reciprocal, near);
}

/* out[i] = the number of from[i * step]. */
template <int step>
__attribute__((always_inline)) static inline void rd_normalize_row(const uint8_t *from, rd_normal normal,
                                                                   float *__restrict__ out, int64_t n) {
    const float of_255 = 1.0f / 255.0f, of_std = 1.0f / normal.std;
    for (int64_t i = 0; i < n; i++)
        out[i] = rd_divided(rd_divided(from[i * step], 255.0f, of_255) - normal.mean, normal.std, of_std);
}

#ifdef __x86_64__
#define RD_FMA __attribute__((target("avx2,fma")))

/* Whether arithmetic is quicker: there is FMA, and no byte permutation. */
static inline bool rd_computes() {
    static const bool found = (__builtin_cpu_init(), __builtin_cpu_supports("fma") &&
                                                         __builtin_cpu_supports("avx2") && !rd_has_byte_permute());
    return found;
}

/* out[i] = the number of from[i * step]; `step` is 1 or -1. It takes rd_computes. */
RD_FMA static void rd_normalize(const uint8_t *from, int64_t step, rd_normal normal, float *out, int64_t n) {
    if (step == 1)
        rd_normalize_row<1>(from, normal, out, n);
    else
        rd_normalize_row<-1>(from, normal, out, n);
}
#else
static inline bool rd_computes() { return false; }
static inline void rd_normalize(const uint8_t *, int64_t, rd_normal, float *, int64_t) {}
#endif

/* Return the mean and std with which rd_normalize makes a table, bit for bit. The table's first and last numbers
 * tell them but for their last bits: those are tried. */
static rd_normal rd_find_normal(const float *table) {
    enum : int { TRIED = 3 };
    const float span = (float)(1.0 / ((double)table[255] - (double)table[0]));
    if (!rd_computes() || !std::isfinite(span) || span == 0)
        return {0, 0};
    uint8_t bytes[256];
    float made[256];
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    float std = span;
    for (int i = 0; i < TRIED; i++) std = std::nextafterf(std, -INFINITY);
    for (int i = -TRIED; i <= TRIED; i++, std = std::nextafterf(std, INFINITY)) {
        float mean = -table[0] * std;
        for (int k = 0; k < TRIED; k++) mean = std::nextafterf(mean, -INFINITY);
        for (int k = -TRIED; k <= TRIED; k++, mean = std::nextafterf(mean, INFINITY)) {
            if ((0.0f - mean) / std != table[0] || (1.0f - mean) / std != table[255])
                continue;
            rd_normalize(bytes, 1, {mean, std}, made, 256);
            if (memcmp(made, table, sizeof made) == 0)
                return {mean, std};
        }
    }
    return {0, 0};
}

/* The same for `channels` tables, at most three. Trying takes longer than a small image: the last tables are kept
 * with what was found. */
static void rd_find_normals(const float *tables, int channels, rd_normal *found) {
    struct last {
        float tables[3 * 256];
        rd_normal found[3];
        int channels;
    };
    static thread_local last kept = {};
    const size_t nbytes = (size_t)channels * 256 * sizeof(float);
    if (kept.channels != channels || memcmp(kept.tables, tables, nbytes) != 0) {
        kept.channels = channels;
        memcpy(kept.tables, tables, nbytes);
        for (int c = 0; c < channels; c++) kept.found[c] = rd_find_normal(tables + c * 256);
    }
    memcpy(found, kept.found, (size_t)channels * sizeof *found);
}

#endif
