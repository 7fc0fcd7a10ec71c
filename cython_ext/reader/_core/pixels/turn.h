/* Reverse the pixels of a row, and take columns of an image as rows. May include the C++ library alone. Keeps no
 * state; needs no GIL. */
#ifndef READER_CORE_TURN_H
#define READER_CORE_TURN_H

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#define RD_SHUFFLE __attribute__((target("ssse3")))

static inline bool rd_has_shuffle() {
    static const bool found = (__builtin_cpu_init(), __builtin_cpu_supports("ssse3"));
    return found;
}

/* Write pixels of three bytes in reverse order, `from` being the last; return how many: those at the end
 * are left. */
RD_SHUFFLE static int64_t rd_reverse_pixels(const uint8_t *from, uint8_t *out, int64_t n) {
    const __m128i order = _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
    int64_t x = 0;
    for (; x + 6 <= n; x += 5) { /* 16 bytes are five pixels and a part of the sixth */
        const __m128i some = _mm_loadu_si128((const __m128i *)(from - 3 * x - 13));
        _mm_storeu_si128((__m128i *)(out + 3 * x), _mm_shuffle_epi8(some, order));
    }
    return x;
}

/* Take 16 columns of pixels of three bytes as rows, `pitch` apart, and return how many pixels of each:
 * those of the last rows are left. */
RD_SHUFFLE static int64_t rd_turn_pixels(const uint8_t *from, int64_t from_pitch, int64_t height, uint8_t *out,
                                         int64_t pitch) {
    /* from three bytes to four of a register, and back; the last four pixels are read with those before,
     * so that nothing behind them is read */
    const __m128i spread = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m128i last = _mm_setr_epi8(4, 5, 6, -1, 7, 8, 9, -1, 10, 11, 12, -1, 13, 14, 15, -1);
    const __m128i packed = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    int64_t x = 0;
    for (; x + 4 <= height; x += 4, from += 4 * from_pitch)
        for (int k = 0; k < 16; k += 4) {
            const uint8_t *at = from + (k == 12 ? 32 : 3 * k);
            const __m128i order = k == 12 ? last : spread;
            __m128i row[4];
            for (int i = 0; i < 4; i++)
                row[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(at + i * from_pitch)), order);
            const __m128i a = _mm_unpacklo_epi32(row[0], row[1]), b = _mm_unpackhi_epi32(row[0], row[1]);
            const __m128i c = _mm_unpacklo_epi32(row[2], row[3]), d = _mm_unpackhi_epi32(row[2], row[3]);
            const __m128i turned[4] = {_mm_unpacklo_epi64(a, c), _mm_unpackhi_epi64(a, c),
                                       _mm_unpacklo_epi64(b, d), _mm_unpackhi_epi64(b, d)};
            for (int i = 0; i < 4; i++) {
                const __m128i twelve = _mm_shuffle_epi8(turned[i], packed);
                uint8_t *to = out + (k + i) * pitch + 3 * x;
                _mm_storel_epi64((__m128i *)to, twelve);
                const int rest = _mm_cvtsi128_si32(_mm_srli_si128(twelve, 8));
                memcpy(to + 8, &rest, sizeof rest);
            }
        }
    return x;
}
#else
static inline bool rd_has_shuffle() { return false; }
static inline int64_t rd_reverse_pixels(const uint8_t *, uint8_t *, int64_t) { return 0; }
static inline int64_t rd_turn_pixels(const uint8_t *, int64_t, int64_t, uint8_t *, int64_t) { return 0; }
#endif

/* Have the processor fetch `nbytes` of `count` rows that are written next: their lines lie too far apart for it
 * to foresee. A count below 1 is none. */
static inline void rd_fetch_rows(const uint8_t *rows, int64_t pitch, int64_t count, int64_t nbytes) {
    enum : int64_t { LINE = 64 };
    for (int64_t k = 0; k < count; k++, rows += pitch)
        for (int64_t i = 0; i < nbytes + LINE; i += LINE)
            __builtin_prefetch(rows + std::min(i, nbytes - 1), 1);
}

/* Take `count` columns of `from`, of `height` rows, as rows: number k goes to `out` + k * pitch. With a
 * `c_step` each channel goes to a row of its own, so many bytes from that before. */
template <int channels>
static void rd_turn(const uint8_t *from, int64_t from_pitch, int64_t height, int64_t count, uint8_t *out,
                    int64_t pitch, int64_t c_step) {
    const bool is_packed = channels == 1 || c_step == 0;
    int64_t x = 0;
    if (channels == 3 && is_packed) {
        if (count == 16 && rd_has_shuffle())
            x = rd_turn_pixels(from, from_pitch, height, out, pitch);
    } else {
        for (; x + 4 <= height; x += 4)
            for (int64_t k = 0; k < count; k++)
                for (int c = 0; c < channels; c++) {
                    const uint8_t *at = from + x * from_pitch + channels * k + c;
                    const uint8_t four[4] = {at[0], at[from_pitch], at[2 * from_pitch],
                                             at[3 * from_pitch]};
                    memcpy(out + k * pitch + c * c_step + x, four, sizeof four);
                }
    }
    for (; x < height; x++)
        for (int64_t k = 0; k < count; k++)
            for (int c = 0; c < channels; c++)
                out[k * pitch + (is_packed ? channels * x + c : c * c_step + x)] =
                    from[x * from_pitch + channels * k + c];
}

#endif
