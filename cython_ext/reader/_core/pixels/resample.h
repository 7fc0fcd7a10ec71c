/* The arithmetic of resizing an image of 8 bits: each output pixel is a weighted mean of the pixels
 * below it (a triangle as wide as two output pixels; between two pixels where the image grows).  May
 * include the C++ library alone.  Keeps no state; needs no GIL.
 */
#ifndef READER_CORE_RESAMPLE_H
#define READER_CORE_RESAMPLE_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* The inputs of each output sample of one axis: `taps` inputs from `first[i]` on, with the weights from
 * `i * taps` on, which add up to 1.  All outputs have the same number of taps, so that all inner loops
 * have one length. */
struct rd_axis {
    int64_t taps;
    std::vector<int64_t> first;
    std::vector<float> weights;
};

/* The axis that maps `size` outputs onto inputs [start, start + length). No input outside of
 * [low, high) is read, which holds one or more. */
static inline rd_axis rd_axis_of(int64_t size, double start, double length, int64_t low,
                                 int64_t high) {
    double step = length / (double)size, radius = step > 1.0 ? step : 1.0;
    rd_axis axis;
    axis.taps = std::min((int64_t)std::ceil(2.0 * radius), high - low);
    axis.first.resize(size);
    axis.weights.resize(size * axis.taps);
    for (int64_t i = 0; i < size; i++) {
        double center = start + ((double)i + 0.5) * step, sum = 0.0;
        int64_t first = (int64_t)std::floor(center - radius + 0.5);
        first = std::max(low, std::min(first, high - axis.taps));
        float *weights = &axis.weights[i * axis.taps];
        for (int64_t k = 0; k < axis.taps; k++) {
            double away = std::fabs((double)(first + k) + 0.5 - center) / radius;
            weights[k] = away < 1.0 ? (float)(1.0 - away) : 0.0f;
            sum += weights[k];
        }
        if (sum <= 0.0) weights[0] = 1.0f, sum = 1.0; /* beside the last input, by rounding */
        for (int64_t k = 0; k < axis.taps; k++) weights[k] = (float)(weights[k] / sum);
        axis.first[i] = first;
    }
    return axis;
}

/* The weights of an axis in whole units, `units` of which are 1; those of each output add up to 1. Each is
 * the growth of the rounded running sum, so that rounding errors do not add up. One that is 65536 becomes
 * 65535. */
static inline std::vector<uint16_t> rd_whole_weights(const rd_axis &axis, int units) {
    std::vector<uint16_t> whole(axis.weights.size());
    for (size_t first = 0; first < whole.size(); first += axis.taps) {
        double sum = 0.0;
        int before = 0;
        for (int64_t k = 0; k < axis.taps; k++) {
            sum += axis.weights[first + k];
            const int after =
                k + 1 < axis.taps ? std::min(units, (int)(sum * (double)units + 0.5)) : units;
            whole[first + k] = (uint16_t)std::min(65535, after - before);
            before = after;
        }
    }
    return whole;
}

/* A function that is also compiled for wider registers; the program uses the one that fits the machine. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define RD_FOR_EACH_MACHINE __attribute__((target_clones("avx2", "default")))
#else
#define RD_FOR_EACH_MACHINE
#endif

/* sums[i] = the weighted sum of `count` rows; it fits in 16 bits, since the weights are 256 together
 * and a pixel is 255 at most. */
RD_FOR_EACH_MACHINE
static void rd_add_rows(const uint8_t *row, int64_t pitch, const uint16_t *weights,
                               int64_t count, int64_t n, uint16_t *__restrict__ sums) {
    const uint8_t *a = row, *b = row + pitch;
    uint16_t u = weights[0], v = count > 1 ? weights[1] : 0;
    if (count == 1) b = a;
    for (int64_t i = 0; i < n; i++) sums[i] = (uint16_t)(u * a[i] + v * b[i]);
    int64_t k = 2;
    for (; k + 1 < count; k += 2) {
        a = row + k * pitch, b = a + pitch, u = weights[k], v = weights[k + 1];
        for (int64_t i = 0; i < n; i++) sums[i] = (uint16_t)(sums[i] + u * a[i] + v * b[i]);
    }
    if (k < count) {
        a = row + k * pitch, u = weights[k];
        for (int64_t i = 0; i < n; i++) sums[i] = (uint16_t)(sums[i] + u * a[i]);
    }
}

/* Eight numbers of 16 bits at once, one of each of eight rows. */
typedef uint16_t rd_eight __attribute__((vector_size(16)));

static inline rd_eight rd_load_eight(const uint16_t *from) {
    rd_eight eight;
    std::memcpy(&eight, from, sizeof eight);
    return eight;
}

static inline rd_eight rd_all_eight(uint16_t value) {
    return rd_eight{value, value, value, value, value, value, value, value};
}

/* a * b / 65536, cut off. */
static inline rd_eight rd_multiply_high(rd_eight a, rd_eight b) {
#ifdef __x86_64__
    return (rd_eight)_mm_mulhi_epu16((__m128i)a, (__m128i)b);
#else
    typedef uint32_t wide __attribute__((vector_size(32)));
    wide product = __builtin_convertvector(a, wide) * __builtin_convertvector(b, wide);
    return __builtin_convertvector(product >> 16, rd_eight);
#endif
}

/* Exchange rows and columns of 8 x 8 numbers. */
static inline void rd_transpose(rd_eight *m) {
    typedef uint32_t fours __attribute__((vector_size(16)));
    typedef uint64_t twos __attribute__((vector_size(16)));
    rd_eight a[8];
    for (int i = 0; i < 4; i++) {
        const rd_eight low = {0, 8, 1, 9, 2, 10, 3, 11}, high = {4, 12, 5, 13, 6, 14, 7, 15};
        a[2 * i] = __builtin_shuffle(m[2 * i], m[2 * i + 1], low);
        a[2 * i + 1] = __builtin_shuffle(m[2 * i], m[2 * i + 1], high);
    }
    fours b[8];
    for (int i = 0; i < 2; i++) {
        const fours low = {0, 4, 1, 5}, high = {2, 6, 3, 7};
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = __builtin_shuffle((fours)a[4 * i + j], (fours)a[4 * i + 2 + j], low);
            b[4 * i + 2 * j + 1] = __builtin_shuffle((fours)a[4 * i + j], (fours)a[4 * i + 2 + j], high);
        }
    }
    for (int i = 0; i < 4; i++) {
        const twos low = {0, 2}, high = {1, 3};
        m[2 * i] = (rd_eight)__builtin_shuffle((twos)b[i], (twos)b[4 + i], low);
        m[2 * i + 1] = (rd_eight)__builtin_shuffle((twos)b[i], (twos)b[4 + i], high);
    }
}

/* Lay eight rows of n sums, which lie `pitch` apart, out as n columns of eight. n: a multiple of 8. */
static inline void rd_rows_to_columns(const uint16_t *rows, int64_t pitch, int64_t n, rd_eight *columns) {
    for (int64_t i = 0; i < n; i += 8) {
        rd_eight block[8];
        for (int k = 0; k < 8; k++)
            block[k] = rd_load_eight(rows + k * pitch + i);
        rd_transpose(block);
        for (int k = 0; k < 8; k++)
            columns[i + k] = block[k];
    }
}

/* Lay columns of eight numbers below 256, each `step` behind the last, out as eight rows of n bytes, which
 * lie `pitch` apart. n: a multiple of 8. */
static inline void rd_columns_to_bytes(const rd_eight *columns, int64_t step, int64_t n, uint8_t *rows,
                                       int64_t pitch) {
    typedef uint8_t bytes __attribute__((vector_size(8)));
    for (int64_t i = 0; i < n; i += 8) {
        rd_eight block[8];
        for (int k = 0; k < 8; k++)
            block[k] = columns[(i + k) * step];
        rd_transpose(block);
        for (int k = 0; k < 8; k++) {
            const bytes row = __builtin_convertvector(block[k], bytes);
            std::memcpy(rows + k * pitch + i, &row, sizeof row);
        }
    }
}

/* Make the outputs of eight rows at once: `columns` has the sums of each input pixel's channels, which
 * are pixels times 256. Half a unit for each tap compensates for the truncation. */
template <int channels>
static void rd_resize_columns(const rd_eight *columns, const rd_axis &axis, const uint16_t *weights,
                              int64_t from, int64_t width, rd_eight *out) {
    const int64_t taps = axis.taps;
    const rd_eight half = rd_all_eight((uint16_t)(128 + taps / 2));
    for (int64_t x = 0; x < width; x++, out += channels, weights += taps) {
        const rd_eight *pixel = columns + (axis.first[x] - from) * channels;
        rd_eight sums[channels];
        for (int c = 0; c < channels; c++)
            sums[c] = half;
        for (int64_t k = 0; k < taps; k++, pixel += channels) {
            const rd_eight weight = rd_all_eight(weights[k]);
            for (int c = 0; c < channels; c++)
                sums[c] += rd_multiply_high(pixel[c], weight);
        }
        for (int c = 0; c < channels; c++)
            out[c] = sums[c] >> 8;
    }
}

enum { RD_FEW_TAPS = 16 }; /* beyond these, rounding and truncation would add up */

/* As rd_add_rows, with weights in units of 1/65536: for images that become much smaller. `work` has n
 * numbers. */
RD_FOR_EACH_MACHINE
static void rd_shrink_rows(const uint8_t *row, int64_t pitch, const uint16_t *weights, int64_t count,
                           int64_t n, uint32_t *__restrict__ work, uint16_t *__restrict__ sums) {
    for (int64_t i = 0; i < n; i++) work[i] = 128;
    for (int64_t k = 0; k < count; k++, row += pitch) {
        const uint32_t weight = weights[k];
        for (int64_t i = 0; i < n; i++) work[i] += weight * row[i];
    }
    for (int64_t i = 0; i < n; i++) sums[i] = (uint16_t)(work[i] >> 8);
}

/* As rd_resize_columns, truncated only at the end: for images that become much smaller. */
template <int channels>
static void rd_shrink_columns(const rd_eight *columns, const rd_axis &axis, const uint16_t *weights,
                              int64_t from, int64_t width, rd_eight *out) {
    typedef uint32_t wide __attribute__((vector_size(32)));
    const int64_t taps = axis.taps;
    for (int64_t x = 0; x < width; x++, out += channels, weights += taps)
        for (int c = 0; c < channels; c++) {
            const rd_eight *pixel = columns + (axis.first[x] - from) * channels + c;
            wide sum = {};
            for (int64_t k = 0; k < taps; k++, pixel += channels)
                sum += __builtin_convertvector(*pixel, wide) * (uint32_t)weights[k];
            out[c] = __builtin_convertvector((sum + (1u << 23)) >> 24, rd_eight);
        }
}

#if defined(__x86_64__)
/* The same for sixteen rows at once, in registers of AVX2. Each half of a register has eight rows, so
 * that a block of 8 columns is exchanged as two of 8 x 8 side by side. */
#define RD_SIXTEEN __attribute__((target("avx2")))

typedef uint16_t rd_sixteen __attribute__((vector_size(32)));

static inline bool rd_has_sixteen() {
    static const bool found = (__builtin_cpu_init(), __builtin_cpu_supports("avx2"));
    return found;
}

/* Exchange rows and columns of the two blocks of 8 x 8 numbers. */
RD_SIXTEEN static inline void rd_transpose(__m256i *m) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi16(m[2 * i], m[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(m[2 * i], m[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            b[4 * i + 2 * j] = _mm256_unpacklo_epi32(a[4 * i + j], a[4 * i + 2 + j]);
            b[4 * i + 2 * j + 1] = _mm256_unpackhi_epi32(a[4 * i + j], a[4 * i + 2 + j]);
        }
    for (int i = 0; i < 4; i++) {
        m[2 * i] = _mm256_unpacklo_epi64(b[i], b[4 + i]);
        m[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[4 + i]);
    }
}

RD_SIXTEEN static void rd_rows_to_columns(const uint16_t *rows, int64_t pitch, int64_t n,
                                          rd_sixteen *columns) {
    for (int64_t i = 0; i < n; i += 8) {
        __m256i block[8];
        for (int k = 0; k < 8; k++)
            block[k] = _mm256_loadu2_m128i((const __m128i *)(rows + (k + 8) * pitch + i),
                                           (const __m128i *)(rows + k * pitch + i));
        rd_transpose(block);
        for (int k = 0; k < 8; k++)
            _mm256_storeu_si256((__m256i *)(columns + i + k), block[k]);
    }
}

RD_SIXTEEN static void rd_columns_to_bytes(const rd_sixteen *columns, int64_t step, int64_t n,
                                           uint8_t *rows, int64_t pitch) {
    for (int64_t i = 0; i < n; i += 8) {
        __m256i block[8];
        for (int k = 0; k < 8; k++)
            block[k] = _mm256_loadu_si256((const __m256i *)(columns + (i + k) * step));
        rd_transpose(block);
        for (int k = 0; k < 8; k += 2) { /* from each half: 8 bytes of row k, and 8 of row k + 1 */
            const __m256i two = _mm256_packus_epi16(block[k], block[k + 1]);
            const __m128i low = _mm256_castsi256_si128(two), high = _mm256_extracti128_si256(two, 1);
            _mm_storel_epi64((__m128i *)(rows + k * pitch + i), low);
            _mm_storel_epi64((__m128i *)(rows + (k + 1) * pitch + i), _mm_unpackhi_epi64(low, low));
            _mm_storel_epi64((__m128i *)(rows + (k + 8) * pitch + i), high);
            _mm_storel_epi64((__m128i *)(rows + (k + 9) * pitch + i), _mm_unpackhi_epi64(high, high));
        }
    }
}

template <int channels>
RD_SIXTEEN static void rd_resize_columns(const rd_sixteen *columns, const rd_axis &axis,
                                         const uint16_t *weights, int64_t from, int64_t width,
                                         rd_sixteen *out) {
    const int64_t taps = axis.taps;
    const __m256i half = _mm256_set1_epi16((short)(128 + taps / 2));
    for (int64_t x = 0; x < width; x++, out += channels, weights += taps) {
        const rd_sixteen *pixel = columns + (axis.first[x] - from) * channels;
        __m256i sums[channels];
        for (int c = 0; c < channels; c++)
            sums[c] = half;
        for (int64_t k = 0; k < taps; k++, pixel += channels) {
            const __m256i weight = _mm256_set1_epi16((short)weights[k]);
            for (int c = 0; c < channels; c++) {
                const __m256i value = _mm256_loadu_si256((const __m256i *)(pixel + c));
                sums[c] = _mm256_add_epi16(sums[c], _mm256_mulhi_epu16(value, weight));
            }
        }
        for (int c = 0; c < channels; c++)
            _mm256_storeu_si256((__m256i *)(out + c), _mm256_srli_epi16(sums[c], 8));
    }
}
#endif

#endif
