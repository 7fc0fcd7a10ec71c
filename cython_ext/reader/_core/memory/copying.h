/* Copies of rows into a batch: past the cache where that is faster, and gathered by number.
 *
 * An ordinary copy reads each line of its target before it overwrites it, so three lines move for each line
 * copied, and other data is evicted from the cache. An uncached copy writes whole lines by non-temporal
 * stores. Its bytes are in memory, in order, when it returns, so publishing the batch needs no further
 * fence. Includes system headers only and owns no state: copying.pyx chooses among the ways. */
#ifndef READER_CORE_COPYING_H
#define READER_CORE_COPYING_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* How the lines of an uncached copy are written, the narrowest first. */
enum rd_copy_way { RD_PLAIN, RD_SSE2, RD_AVX2, RD_AVX512, RD_NEON, RD_COPY_WAYS };

enum {
    RD_LINE = 64,
    RD_AHEAD = 8 * RD_LINE,    /* how far ahead an uncached copy prefetches its source */
    RD_ROWS_AHEAD = 8,         /* how many rows ahead a gathered copy prefetches */
    RD_ROW_LINES_AHEAD = 16    /* lines of such a row; the processor prefetches the rest by itself */
};

typedef void (*rd_copy_lines)(char *to, const char *from, size_t lines);

#if defined(__x86_64__)
/* The ways differ in the width of a register alone. */
#define RD_COPY_LINES(NAME, TARGET, TYPE, LOAD, STORE)                                             \
    __attribute__((target(TARGET))) static void NAME(char *to, const char *from, size_t lines) {   \
        enum { WIDTH = sizeof(TYPE), COUNT = RD_LINE / sizeof(TYPE) };                             \
        for (; lines; lines--, to += RD_LINE, from += RD_LINE) {                                   \
            TYPE parts[COUNT];                                                                     \
            _mm_prefetch(from + RD_AHEAD, _MM_HINT_NTA);                                           \
            for (int i = 0; i < COUNT; i++)                                                        \
                parts[i] = LOAD((const TYPE *)(from + i * WIDTH));                                 \
            for (int i = 0; i < COUNT; i++)                                                        \
                STORE((TYPE *)(to + i * WIDTH), parts[i]);                                         \
        }                                                                                          \
        _mm_sfence();                                                                              \
    }

RD_COPY_LINES(rd_copy_lines_sse2, "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128)
RD_COPY_LINES(rd_copy_lines_avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_stream_si256)
RD_COPY_LINES(rd_copy_lines_avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512)
#elif defined(__aarch64__)
static void rd_copy_lines_neon(char *to, const char *from, size_t lines) {
    for (; lines; lines--, to += RD_LINE, from += RD_LINE) {
        const uint8x16_t a = vld1q_u8((const uint8_t *)from), b = vld1q_u8((const uint8_t *)from + 16);
        const uint8x16_t c = vld1q_u8((const uint8_t *)from + 32);
        const uint8x16_t d = vld1q_u8((const uint8_t *)from + 48);
        __asm__ volatile("stnp %q1, %q2, [%0]\n\tstnp %q3, %q4, [%0, #32]"
                         :: "r"(to), "w"(a), "w"(b), "w"(c), "w"(d) : "memory");
    }
    /* later release stores order these as any others */
}
#endif

/* Return the function that copies lines in a way; NULL if this machine or build lacks it. */
static inline rd_copy_lines rd_copy_lines_of(int way) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (way == RD_SSE2)
        return rd_copy_lines_sse2;
    if (way == RD_AVX2 && __builtin_cpu_supports("avx2"))
        return rd_copy_lines_avx2;
    if (way == RD_AVX512 && __builtin_cpu_supports("avx512f"))
        return rd_copy_lines_avx512;
#elif defined(__aarch64__)
    if (way == RD_NEON)
        return rd_copy_lines_neon;
#endif
    (void)way;
    return NULL;
}

/* Copy past the cache; memory that overlaps is not allowed.  `lines` NULL: an ordinary copy. */
static inline void rd_copy_uncached(rd_copy_lines lines, char *to, const char *from, size_t nbytes) {
    size_t head = (size_t)(-(uintptr_t)to) % RD_LINE, whole;
    if (lines == NULL || nbytes < head + RD_LINE) {
        memcpy(to, from, nbytes);
        return;
    }
    memcpy(to, from, head);
    whole = (nbytes - head) / RD_LINE;
    lines(to + head, from + head, whole);
    head += whole * RD_LINE;
    memcpy(to + head, from + head, nbytes - head);
}

/* Copy the rows with the given numbers end to end.
 *
 * Row k lies at base + k * stride and has nbytes bytes; rows that follow each other in memory are copied at
 * once. Rows to come are prefetched. `lines` NULL: ordinary copies. */
static inline void rd_gather(rd_copy_lines lines, char *to, const char *base, int64_t stride,
                             const int64_t *rows, size_t count, size_t nbytes) {
    const size_t asked = nbytes < RD_ROW_LINES_AHEAD * RD_LINE ? nbytes : RD_ROW_LINES_AHEAD * RD_LINE;
    size_t i = 0, next = 0, run, at;
    while (i < count) {
        run = 1;
        if (stride == (int64_t)nbytes)
            while (i + run < count && rows[i + run] == rows[i] + (int64_t)run)
                run++;
        if (next < i + run)
            next = i + run;
        for (; next < count && next < i + run + RD_ROWS_AHEAD; next++)
            for (at = 0; at < asked; at += RD_LINE)
                __builtin_prefetch(base + rows[next] * stride + at, 0, 3);
        if (lines != NULL)
            rd_copy_uncached(lines, to, base + rows[i] * stride, run * nbytes);
        else
            memcpy(to, base + rows[i] * stride, run * nbytes);
        to += run * nbytes;
        i += run;
    }
}

/* As rd_gather for rows of 1, 2, 4 or 8 bytes, such as labels. */
#define RD_GATHER_ITEMS(TYPE)                                                                      \
    for (i = 0; i < count; i++) {                                                                  \
        TYPE item;                                                                                 \
        if (i + 2 * RD_ROWS_AHEAD < count)                                                         \
            __builtin_prefetch(base + rows[i + 2 * RD_ROWS_AHEAD] * stride, 0, 3);                 \
        memcpy(&item, base + rows[i] * stride, sizeof(item));                                      \
        memcpy(to + i * sizeof(item), &item, sizeof(item));                                        \
    }

static inline int rd_gather_items(char *to, const char *base, int64_t stride, const int64_t *rows,
                                  size_t count, size_t nbytes) {
    size_t i;
    switch (nbytes) {
    case 1: RD_GATHER_ITEMS(uint8_t) return 1;
    case 2: RD_GATHER_ITEMS(uint16_t) return 1;
    case 4: RD_GATHER_ITEMS(uint32_t) return 1;
    case 8: RD_GATHER_ITEMS(uint64_t) return 1;
    default: return 0;
    }
}

#endif
