/* Resize an image of 8 bits: each output pixel is a weighted mean of the pixels below it (a triangle
 * as wide as two output pixels; between two pixels where the image grows).  May include the C++
 * library alone.  Owns its work space, for the length of one call; needs no GIL.
 */
#ifndef READER_CORE_RESAMPLE_H
#define READER_CORE_RESAMPLE_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
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

/* The weights of one output sample in units of 1/256, which add up to 256.  Each is the growth of the
 * rounded running sum, so that rounding errors do not add up. */
static inline void rd_whole_weights(const float *weights, int64_t count, uint16_t *whole) {
    float sum = 0.0f;
    int before = 0;
    for (int64_t k = 0; k < count; k++) {
        sum += weights[k];
        int after = k + 1 < count ? (int)(sum * 256.0f + 0.5f) : 256;
        whole[k] = (uint16_t)(after - before);
        before = after;
    }
}

/* sums[i] = the weighted sum of `count` rows; it fits in 16 bits, since the weights are 256 together
 * and a pixel is 255 at most. */
static inline void rd_add_rows(const uint8_t *row, int64_t pitch, const uint16_t *weights,
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

/* Four neighbouring numbers at once: the channels of a pixel, and up to three that are dropped. */
typedef float rd_four __attribute__((vector_size(16)));

static inline rd_four rd_load_four(const float *from) {
    rd_four four;
    std::memcpy(&four, from, sizeof four);
    return four;
}

/* Cut four numbers below 256 off to bytes, and store the first `channels`. */
static inline void rd_store_pixel(rd_four pixel, int channels, uint8_t *to) {
#ifdef __SSE2__
    __m128i words = _mm_cvttps_epi32((__m128)pixel);
    words = _mm_packs_epi32(words, words);
    int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(to, &bytes, (size_t)channels);
#else
    for (int c = 0; c < channels; c++) to[c] = (uint8_t)pixel[c];
#endif
}

/* Resize the box of an image into `out`.
 *
 * channels: bytes of a pixel, 1 to 4
 * in: rows of `in_width` pixels, one after the other
 * top, left, height, width: the box, in pixels, maybe fractions of them, within the image
 * out: `out_height` rows of `out_width` pixels, one after the other
 *
 * Throws std::bad_alloc; `out` is then as it was. */
template <int channels>
static void rd_resample(const uint8_t *in, int64_t in_height, int64_t in_width, double top,
                        double left, double height, double width, uint8_t *out, int64_t out_height,
                        int64_t out_width) {
    auto low_of = [](double edge) { return (int64_t)std::floor(edge + 1e-6); };
    auto high_of = [](double edge, int64_t size) {
        int64_t high = (int64_t)std::ceil(edge - 1e-6);
        return high < size ? high : size;
    };
    int64_t x_low = low_of(left), x_high = high_of(left + width, in_width);
    rd_axis rows = rd_axis_of(out_height, top, height, low_of(top), high_of(top + height, in_height));
    rd_axis columns = rd_axis_of(out_width, left, width, x_low, x_high);
    int64_t n = (x_high - x_low) * channels, pitch = in_width * channels;
    std::vector<uint16_t> sums(n), whole(rows.taps);
    std::vector<float> line(n + 4, 0.0f);
    for (int64_t y = 0; y < out_height; y++) {
        const uint8_t *from = in + rows.first[y] * pitch + x_low * channels;
        rd_whole_weights(&rows.weights[y * rows.taps], rows.taps, whole.data());
        rd_add_rows(from, pitch, whole.data(), rows.taps, n, sums.data());
        for (int64_t i = 0; i < n; i++) line[i] = (float)(int)sums[i] * (1.0f / 256.0f);
        uint8_t *to = out + y * out_width * channels;
        for (int64_t x = 0; x < out_width; x++, to += channels) {
            const float *pixel = &line[(columns.first[x] - x_low) * channels];
            const float *weights = &columns.weights[x * columns.taps];
            rd_four mean = {0.5f, 0.5f, 0.5f, 0.5f};
            for (int64_t k = 0; k < columns.taps; k++, pixel += channels)
                mean += rd_load_four(pixel) * weights[k];
            rd_store_pixel(mean, channels, to);
        }
    }
}

#endif
