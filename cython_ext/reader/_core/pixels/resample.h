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

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Which inputs each output of one axis reads: `taps` of them, from `rd_first` on. All outputs have the same
 * number of taps, so that all inner loops have one length. */
struct rd_axis {
    double start, step, radius;
    int64_t low, high, taps;
};

/* The axis that maps `size` outputs onto inputs [start, start + length). No input outside of
 * [low, high) is read, which holds one or more. */
static inline rd_axis rd_axis_of(int64_t size, double start, double length, int64_t low,
                                 int64_t high) {
    const double step = length / (double)size, radius = step > 1.0 ? step : 1.0;
    return {start, step, radius, low, high, std::min((int64_t)std::ceil(2.0 * radius), high - low)};
}

static inline double rd_center(const rd_axis &axis, int64_t i) {
    return axis.start + ((double)i + 0.5) * axis.step;
}

/* The first input of output i. It never decreases with i. */
static inline int64_t rd_first(const rd_axis &axis, int64_t i) {
    const int64_t first = (int64_t)std::floor(rd_center(axis, i) - axis.radius + 0.5);
    return std::max(axis.low, std::min(first, axis.high - axis.taps));
}

/* The weights of the inputs of one output, in whole units, `units` of which are 1; they add up to 1. They
 * are made in order, some at a time, so that many of them need no memory. Each is the growth of the rounded
 * running sum, so that rounding errors do not add up. One that is 65536 becomes 65535. */
struct rd_weights {
    enum : int64_t { KEPT = 64 };
    double center, radius, total = 0.0, sum = 0.0;
    int64_t first, taps, next = 0;
    int units, before = 0;
    float kept[KEPT]; /* the first ones before they are divided by `total`; others are computed twice */

    rd_weights(const rd_axis &axis, int64_t i, int units)
        : center(rd_center(axis, i)), radius(axis.radius), first(rd_first(axis, i)), taps(axis.taps),
          units(units) {
        const int64_t few = std::min<int64_t>(taps, KEPT);
        for (int64_t k = 0; k < few; k++) total += kept[k] = computed(k);
        for (int64_t k = few; k < taps; k++) total += computed(k);
        if (total <= 0.0) kept[0] = 1.0f, total = 1.0; /* beside the last input, by rounding */
    }

    float computed(int64_t k) const {
        const double away = std::fabs((double)(first + k) + 0.5 - center) / radius;
        return away < 1.0 ? (float)(1.0 - away) : 0.0f;
    }

    /* Write the next `count` weights. */
    void write(int64_t count, uint16_t *whole) {
        const int64_t end = next + count, few = std::min<int64_t>(end, KEPT);
        const double all = total, scale = (double)units;
        double so_far = sum;
        int last = before;
        for (int64_t k = next; k < end; k++) {
            so_far += (float)((k < few ? kept[k] : computed(k)) / all);
            const int after = k + 1 < taps ? std::min(units, (int)(so_far * scale + 0.5)) : units;
            *whole++ = (uint16_t)std::min(65535, after - last);
            last = after;
        }
        next = end, sum = so_far, before = last;
    }
};

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

/* Outputs of some columns, which are made at once. */
struct rd_tile {
    int64_t x, width;        /* the first output, and how many */
    int64_t left, right;     /* the inputs that they read */
    int64_t taps;            /* of each */
    const int64_t *offsets;  /* of each output's first input from `left` */
    const uint16_t *weights; /* `taps` for each output, in units of 1/65536 */
};

enum : int64_t { RD_TILE = 1 << 16 }; /* numbers of a row that are resized at once, in and out */

/* The first output behind a tile that begins with output x. A tile reads RD_TILE inputs at most, or has one
 * output. */
static inline int64_t rd_tile_end(const rd_axis &axis, int64_t x, int64_t width, int channels) {
    const int64_t most = RD_TILE / channels;
    int64_t end = std::min(width, x + most);
    while (end - x > 1 && rd_first(axis, end - 1) + axis.taps - rd_first(axis, x) > most)
        end = x + (end - x) / 2;
    return end;
}

/* Make the outputs of eight rows at once: `columns` has the sums of each input pixel's channels, which
 * are pixels times 256. Half a unit for each tap compensates for the truncation. */
template <int channels>
static void rd_resize_columns(const rd_eight *columns, const rd_tile &tile, rd_eight *out) {
    const int64_t taps = tile.taps;
    const uint16_t *weights = tile.weights;
    const rd_eight half = rd_all_eight((uint16_t)(128 + taps / 2));
    for (int64_t x = 0; x < tile.width; x++, out += channels, weights += taps) {
        const rd_eight *pixel = columns + tile.offsets[x] * channels;
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
static void rd_shrink_rows(const uint8_t *row, int64_t pitch, rd_weights weights, int64_t n,
                           uint32_t *__restrict__ work, uint16_t *__restrict__ sums) {
    for (int64_t i = 0; i < n; i++) work[i] = 128;
    for (int64_t k = 0; k < weights.taps; k++, row += pitch) {
        uint16_t weight = 0;
        weights.write(1, &weight);
        for (int64_t i = 0; i < n; i++) work[i] += (uint32_t)weight * row[i];
    }
    for (int64_t i = 0; i < n; i++) sums[i] = (uint16_t)(work[i] >> 8);
}

typedef uint32_t rd_wide __attribute__((vector_size(32)));

/* Add `count` inputs to the sums of one output's channels. */
template <int channels>
static inline void rd_add_columns(const rd_eight *columns, const uint16_t *weights, int64_t count,
                                  rd_wide *sums) {
    for (int c = 0; c < channels; c++) {
        const rd_eight *pixel = columns + c;
        rd_wide sum = sums[c];
        for (int64_t k = 0; k < count; k++, pixel += channels)
            sum += __builtin_convertvector(*pixel, rd_wide) * (uint32_t)weights[k];
        sums[c] = sum;
    }
}

/* Write the output of which these are the sums. */
template <int channels> static inline void rd_write_sums(const rd_wide *sums, rd_eight *out) {
    for (int c = 0; c < channels; c++)
        out[c] = __builtin_convertvector((sums[c] + (1u << 23)) >> 24, rd_eight);
}

/* As rd_resize_columns, truncated only at the end: for images that become much smaller. */
template <int channels>
static void rd_shrink_columns(const rd_eight *columns, const rd_tile &tile, rd_eight *out) {
    for (int64_t x = 0; x < tile.width; x++, out += channels) {
        rd_wide sums[channels] = {};
        rd_add_columns<channels>(columns + tile.offsets[x] * channels, tile.weights + x * tile.taps,
                                 tile.taps, sums);
        rd_write_sums<channels>(sums, out);
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
RD_SIXTEEN static void rd_resize_columns(const rd_sixteen *columns, const rd_tile &tile, rd_sixteen *out) {
    const int64_t taps = tile.taps;
    const uint16_t *weights = tile.weights;
    const __m256i half = _mm256_set1_epi16((short)(128 + taps / 2));
    for (int64_t x = 0; x < tile.width; x++, out += channels, weights += taps) {
        const rd_sixteen *pixel = columns + tile.offsets[x] * channels;
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
