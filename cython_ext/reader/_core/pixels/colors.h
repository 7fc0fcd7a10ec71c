/* Colors of an 8-bit RGB image: tables, histograms, grey, hue, sharpness, affine maps. The arithmetic is
 * Pillow's, and so are the results. Includes the C++ library alone. Keeps no state; needs no GIL. */
#ifndef READER_CORE_COLORS_H
#define READER_CORE_COLORS_H

#include <algorithm>
#include <cmath>
#include <cstdint>

/* Luminance of ITU-R 601-2, as Pillow rounds it. */
static inline uint8_t rd_grey(const uint8_t *pixel) {
    return (uint8_t)((pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
}

/* a + factor * (b - a), cut off at 0 and 255. */
static inline uint8_t rd_blend(uint8_t a, uint8_t b, float factor) {
    const float mixed = (float)a + factor * ((float)b - (float)a);
    return mixed <= 0.0f ? 0 : mixed >= 255.0f ? 255 : (uint8_t)mixed;
}

/* Replace each number by its table entry; `table` has 256 for each channel. */
static inline void rd_look_up(uint8_t *pixels, int64_t n, int channels, const uint8_t *table) {
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < channels; c++, pixels++)
            *pixels = table[c * 256 + *pixels];
}

/* Count each number; `counts` has 256 for each channel, and is 0. */
static inline void rd_count(const uint8_t *pixels, int64_t n, int channels, int64_t *counts) {
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < channels; c++)
            counts[c * 256 + *pixels++]++;
}

/* The sum of the grey of all pixels. */
static inline int64_t rd_sum_grey(const uint8_t *pixels, int64_t n, int channels) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++, pixels += channels)
        sum += channels == 3 ? rd_grey(pixels) : *pixels;
    return sum;
}

/* Mix each pixel with its grey: factor 0 gives grey, and 1 the image. */
static inline void rd_saturate(uint8_t *pixels, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i++, pixels += 3) {
        const uint8_t grey = rd_grey(pixels);
        for (int c = 0; c < 3; c++)
            pixels[c] = rd_blend(grey, pixels[c], factor);
    }
}

/* Turn the hue by shift / 256 of the circle of colors. */
static inline void rd_shift_hue(uint8_t *pixels, int64_t n, uint8_t shift) {
    for (int64_t i = 0; i < n; i++, pixels += 3) {
        const uint8_t r = pixels[0], g = pixels[1], b = pixels[2];
        const uint8_t high = std::max(r, std::max(g, b)), low = std::min(r, std::min(g, b));
        if (high == low)
            continue; /* grey has no hue */
        const float range = (float)(high - low);
        const float from_r = (high - r) / range, from_g = (high - g) / range, from_b = (high - b) / range;
        float hue;
        if (r == high)
            hue = from_b - from_g;
        else if (g == high)
            hue = (float)(2.0 + from_r - from_b);
        else
            hue = (float)(4.0 + from_g - from_r);
        hue = (float)std::fmod((double)hue / 6.0 + 1.0, 1.0);
        const int whole = std::min(255, std::max(0, (int)((double)hue * 255.0)));
        const int saturation = std::min(255, std::max(0, (int)((double)(range / (float)high) * 255.0)));
        const uint8_t turned = (uint8_t)(whole + shift);
        const float place = (float)turned * 6.0f / 255.0f;
        const int sector = (int)std::floor(place);
        const float inside = place - (float)sector, part = (float)saturation / 255.0f;
        const uint8_t p = (uint8_t)std::round((float)high * (1.0 - part));
        const uint8_t q = (uint8_t)std::round((float)high * (1.0 - part * inside));
        const uint8_t t = (uint8_t)std::round((float)high * (1.0 - part * (1.0 - inside)));
        const uint8_t v = high;
        const uint8_t colors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
        std::copy_n(colors[sector % 6], 3, pixels);
    }
}

/* Mix an image with its smoothed self, in `out`: factor 0 gives the smooth one, 1 the image, 2 a
 * sharper one.  Pixels at the edges stay. */
static inline void rd_sharpen(const uint8_t *in, int64_t height, int64_t width, int channels, float factor,
                              uint8_t *out) {
    const int64_t pitch = width * channels;
    std::copy_n(in, height * pitch, out);
    for (int64_t y = 1; y + 1 < height; y++) {
        const uint8_t *row = in + y * pitch;
        for (int64_t i = channels; i < pitch - channels; i++) {
            int sum = 4 * row[i];
            for (int64_t dy = -pitch; dy <= pitch; dy += pitch)
                sum += row[i + dy - channels] + row[i + dy] + row[i + dy + channels];
            const float mean = (float)sum / 13.0f + 0.5f;
            const uint8_t smooth = mean >= 255.0f ? 255 : (uint8_t)mean;
            out[y * pitch + i] = rd_blend(smooth, row[i], factor);
        }
    }
}

/* Take each pixel by an affine map, from the nearest pixel; pixels from outside are `fill`. `map`: (x, y)
 * of `out` comes from (m0 x + m1 y + m2, m3 x + m4 y + m5), of centers of pixels. */
static inline void rd_warp(const uint8_t *in, int64_t height, int64_t width, int channels,
                           const double *map, const uint8_t *fill, uint8_t *out) {
    auto fixed = [](double value) { return (int64_t)std::floor(value * 65536.0 + 0.5); };
    const int64_t x_x = fixed(map[0]), x_y = fixed(map[1]), y_x = fixed(map[3]), y_y = fixed(map[4]);
    int64_t x_row = fixed(map[2] + map[0] * 0.5 + map[1] * 0.5);
    int64_t y_row = fixed(map[5] + map[3] * 0.5 + map[4] * 0.5);
    for (int64_t y = 0; y < height; y++, x_row += x_y, y_row += y_y) {
        int64_t from_x = x_row, from_y = y_row;
        for (int64_t x = 0; x < width; x++, out += channels, from_x += x_x, from_y += y_x) {
            const int64_t column = from_x >> 16, row = from_y >> 16;
            const bool is_inside = column >= 0 && column < width && row >= 0 && row < height;
            std::copy_n(is_inside ? in + (row * width + column) * channels : fill, channels, out);
        }
    }
}

#endif
