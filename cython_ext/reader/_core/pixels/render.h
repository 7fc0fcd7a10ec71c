/* Render a part of an image in its final form, in one pass over the rows: resized, flipped, its numbers
 * looked up in a table and laid out for the batch. Includes resample.h, look_up.h, turn.h and jpeg.h. Owns its work
 * space, which a thread keeps for the next image; needs no GIL. */
#ifndef READER_CORE_RENDER_H
#define READER_CORE_RENDER_H

#include <new>

#include "reader/_core/pixels/jpeg.h"
#include "reader/_core/pixels/look_up.h"
#include "reader/_core/pixels/resample.h"
#include "reader/_core/pixels/turn.h"

/* The inputs of one axis: `length` of them from `start` on, which may be fractions; none outside of [low,
 * high) is read. */
struct rd_span {
    double start, length;
    int64_t low, high;
};

/* The output to render. */
struct rd_render {
    rd_span rows, columns;
    int64_t height, width; /* of the output */
    int channels;          /* 1 or 3 */
    int flips_rows, flips_columns;
    int channels_first;
    int is_turned; /* rows of the output are columns of the image */
    int item; /* bytes of an output number: 1, 2, 4 or 8 */
    const void *table; /* 256 numbers for each channel; NULL: the bytes themselves */
    void *out;
};

/* Memory of one thread that is kept from image to image, up to a limit. */
struct rd_work {
    enum : size_t { MOST_KEPT = (size_t)16 << 20 };
    uint8_t *bytes = nullptr;
    size_t nbytes = 0;
    ~rd_work() { free(bytes); }
    uint8_t *of(size_t wanted) {
        if (wanted > nbytes) {
            free(bytes);
            bytes = (uint8_t *)malloc(wanted);
            nbytes = bytes ? wanted : 0;
            if (!bytes)
                throw std::bad_alloc();
        }
        return bytes;
    }
    void keep_little() {
        if (nbytes > MOST_KEPT) {
            free(bytes);
            bytes = nullptr;
            nbytes = 0;
        }
    }
};

/* Whether each output of an axis is one input. */
static inline bool rd_is_identity(const rd_span &span, int64_t size) {
    return span.length == (double)size && span.start == std::floor(span.start);
}

/* The inputs that an axis reads: [first, last). */
static inline void rd_reach(const rd_axis &axis, int64_t *first, int64_t *last) {
    *first = *std::min_element(axis.first.begin(), axis.first.end());
    *last = *std::max_element(axis.first.begin(), axis.first.end()) + axis.taps;
}

enum : int64_t { RD_AT_ONCE = 16 }; /* rows that stay in the nearest cache while they are read */

/* Rows of pixels: channel c of pixel x of row k is at k * pitch + x * x_step + c * c_step. */
struct rd_rows {
    const uint8_t *pixels;
    int64_t pitch, x_step, c_step;
};

/* out[x] = from[-x], eight bytes at a time. */
template <typename Item>
static inline void rd_reverse(const uint8_t *from, Item *out, int64_t n) {
    int64_t x = 0;
    if constexpr (sizeof(Item) == 1)
        for (; x + 8 <= n; x += 8) {
            uint64_t eight;
            memcpy(&eight, from - x - 7, sizeof eight);
            eight = __builtin_bswap64(eight);
            memcpy(out + x, &eight, sizeof eight);
        }
    for (; x < n; x++)
        out[x] = (Item)from[-x];
}

/* Write one channel of `count` rows: each byte, or its table entry. Rows of `out` are `out_pitch` numbers
 * apart. */
template <typename Item>
static void rd_write_planes(const uint8_t *from, int64_t pitch, int64_t step, const Item *table, Item *out,
                            int64_t out_pitch, int64_t width, int64_t count) {
#ifdef RD_BYTE_PERMUTE
    if constexpr (sizeof(Item) == 2 || sizeof(Item) == 4)
        if (table && (step == 1 || step == -1) && rd_has_byte_permute()) {
            rd_look_up_bytes(from, pitch, step, table, out, out_pitch, width, count);
            return;
        }
#endif
    for (int64_t k = 0; k < count; k++, from += pitch, out += out_pitch) {
        if (table)
            rd_look_up(from, step, table, out, width);
        else if (step == 1)
            for (int64_t x = 0; x < width; x++)
                out[x] = (Item)from[x];
        else if (step == -1)
            rd_reverse(from, out, width);
        else
            for (int64_t x = 0; x < width; x++)
                out[x] = (Item)from[x * step];
    }
}

/* Write `count` rows; the first is row `number` before rows are flipped. */
template <typename Item, int channels>
static void rd_write_items(rd_rows rows, const rd_render &to, int64_t number, int64_t count) {
    const Item *table = (const Item *)to.table;
    const int64_t y = to.flips_rows ? to.height - 1 - number : number, down = to.flips_rows ? -1 : 1;
    Item *out = (Item *)to.out;
    if (to.flips_columns) {
        rows.pixels += (to.width - 1) * rows.x_step;
        rows.x_step = -rows.x_step;
    }
    if (to.channels_first) {
        for (int c = 0; c < channels; c++)
            rd_write_planes(rows.pixels + c * rows.c_step, rows.pitch, rows.x_step,
                            table ? table + c * 256 : NULL, out + (c * to.height + y) * to.width,
                            down * to.width, to.width, count);
        return;
    }
    const int64_t length = to.width * channels;
    for (int64_t k = 0; k < count; k++) {
        const uint8_t *from = rows.pixels + k * rows.pitch;
        Item *row = out + (y + k * down) * length;
        if (!table && rows.x_step == channels) {
            memcpy(row, from, (size_t)length);
            continue;
        }
        int64_t x = 0;
        if (sizeof(Item) == 1 && channels == 3 && !table && rows.x_step == -3 && rd_has_shuffle()) {
            x = rd_reverse_pixels(from, (uint8_t *)row, to.width);
            from -= 3 * x, row += 3 * x;
        }
        for (; x < to.width; x++, from += rows.x_step, row += channels)
            for (int c = 0; c < channels; c++)
                row[c] = table ? table[c * 256 + from[c]] : (Item)from[c];
    }
}

template <int channels>
static void rd_write(const rd_rows &rows, const rd_render &to, int64_t number, int64_t count) {
    if (to.item == 1)
        rd_write_items<uint8_t, channels>(rows, to, number, count);
    else if (to.item == 2)
        rd_write_items<uint16_t, channels>(rows, to, number, count);
    else if (to.item == 4)
        rd_write_items<uint32_t, channels>(rows, to, number, count);
    else
        rd_write_items<uint64_t, channels>(rows, to, number, count);
}

/* The two axes of an image, and which part of it they read. */
struct rd_axes {
    bool is_identity;
    rd_axis rows, columns;
    int64_t top, bottom, left, right;
};

static inline rd_axes rd_axes_of(const rd_render &to) {
    rd_axes axes;
    axes.is_identity = rd_is_identity(to.rows, to.height) && rd_is_identity(to.columns, to.width);
    if (axes.is_identity) {
        axes.top = (int64_t)to.rows.start;
        axes.bottom = axes.top + to.height;
        axes.left = (int64_t)to.columns.start;
        axes.right = axes.left + to.width;
        return axes;
    }
    axes.rows = rd_axis_of(to.height, to.rows.start, to.rows.length, to.rows.low, to.rows.high);
    axes.columns =
        rd_axis_of(to.width, to.columns.start, to.columns.length, to.columns.low, to.columns.high);
    rd_reach(axes.rows, &axes.top, &axes.bottom);
    rd_reach(axes.columns, &axes.left, &axes.right);
    return axes;
}

/* Make the outputs of some columns, by the function that fits their number of inputs. */
template <int channels>
static void rd_make_columns(const rd_eight *columns, const rd_axis &axis, const uint16_t *weights,
                            int64_t from, int64_t width, rd_eight *out) {
    if (axis.taps > RD_FEW_TAPS)
        rd_shrink_columns<channels>(columns, axis, weights, from, width, out);
    else
        rd_resize_columns<channels>(columns, axis, weights, from, width, out);
}

#ifdef RD_SIXTEEN
template <int channels>
static void rd_make_columns(const rd_sixteen *columns, const rd_axis &axis, const uint16_t *weights,
                            int64_t from, int64_t width, rd_sixteen *out) {
    rd_resize_columns<channels>(columns, axis, weights, from, width, out);
}
#endif

/* Make the output of rows that are resized. `Column` has one number of each of several rows, which are
 * resized at once.  Throws std::bad_alloc. */
template <int channels, typename Column>
static void rd_resize(const uint8_t *corner, int64_t pitch, const rd_axes &axes, const rd_render &to) {
    enum : int64_t { ROWS = sizeof(Column) / sizeof(uint16_t) };
    /* rows of sums; the same as columns; the outputs as columns; the outputs as rows of bytes, by channel
     * if `out` is laid out so */
    const int64_t n = (axes.right - axes.left) * channels, padded = (n + 7) & ~(int64_t)7;
    const int64_t out_width = (to.width + 7) & ~(int64_t)7, out_padded = out_width * channels;
    static thread_local rd_work kept;
    const bool shrinks = axes.rows.taps > RD_FEW_TAPS;
    uint8_t *work = kept.of((size_t)(2 * padded + out_padded) * sizeof(Column) +
                            (size_t)(ROWS * out_padded) + (size_t)padded * sizeof(uint32_t));
    Column *columns = (Column *)work, *out_columns = columns + padded;
    uint16_t *sums = (uint16_t *)(out_columns + out_padded);
    uint32_t *row_work = (uint32_t *)(sums + ROWS * padded);
    uint8_t *rows = (uint8_t *)(row_work + padded);
    const std::vector<uint16_t> row_weights = rd_whole_weights(axes.rows, shrinks ? 65536 : 256);
    const std::vector<uint16_t> weights = rd_whole_weights(axes.columns, 65536);
    memset(sums, 0, (size_t)(ROWS * padded) * sizeof *sums);
    memset((void *)out_columns, 0, (size_t)out_padded * sizeof *out_columns);
    for (int64_t y = 0; y < to.height; y += ROWS) {
        const int64_t count = std::min<int64_t>(ROWS, to.height - y);
        for (int64_t k = 0; k < count; k++) {
            const int64_t taps = axes.rows.taps;
            const uint8_t *from = corner + (axes.rows.first[y + k] - axes.top) * pitch;
            const uint16_t *each = &row_weights[(y + k) * taps];
            if (shrinks)
                rd_shrink_rows(from, pitch, each, taps, n, row_work, sums + k * padded);
            else
                rd_add_rows(from, pitch, each, taps, n, sums + k * padded);
        }
        rd_rows_to_columns(sums, padded, padded, columns);
        rd_make_columns<channels>(columns, axes.columns, weights.data(), axes.left, to.width, out_columns);
        if (to.channels_first)
            for (int c = 0; c < channels; c++)
                rd_columns_to_bytes(out_columns + c, channels, out_width, rows + c * ROWS * out_width,
                                    out_width);
        else
            rd_columns_to_bytes(out_columns, 1, out_padded, rows, out_padded);
        const rd_rows made = to.channels_first ? rd_rows{rows, out_width, 1, ROWS * out_width}
                                               : rd_rows{rows, out_padded, channels, 1};
        rd_write<channels>(made, to, y, count);
    }
    kept.keep_little();
}

/* Make the output out of a region that has all that the axes read.  Throws std::bad_alloc. */
template <int channels>
static void rd_make(const rd_region &region, const rd_axes &axes, const rd_render &to) {
    const uint8_t *corner = region.pixels + (axes.top - region.top) * region.pitch +
                            (axes.left - region.left) * channels;
    if (axes.is_identity) {
        for (int64_t y = 0; y < to.height; y += RD_AT_ONCE)
            rd_write<channels>({corner + y * region.pitch, region.pitch, channels, 1}, to, y,
                               std::min<int64_t>(RD_AT_ONCE, to.height - y));
        return;
    }
#ifdef RD_SIXTEEN
    if (axes.columns.taps <= RD_FEW_TAPS && to.height > 8 && rd_has_sixteen()) {
        rd_resize<channels, rd_sixteen>(corner, region.pitch, axes, to);
        return;
    }
#endif
    rd_resize<channels, rd_eight>(corner, region.pitch, axes, to);
}

/* What a turned output is made of: the same part in the image's own order, plain bytes with the channels
 * last. */
static inline rd_render rd_unturned(const rd_render &to) {
    rd_render plain = to;
    plain.rows = to.columns, plain.columns = to.rows;
    plain.height = to.width, plain.width = to.height;
    plain.flips_rows = plain.flips_columns = plain.channels_first = plain.is_turned = 0;
    plain.item = 1;
    plain.table = NULL;
    return plain;
}

enum : int64_t { RD_TURNED_AT_ONCE = 64 }; /* rows of an image, so that few pages are written at once */

/* Write `count` columns of a turned output from rows of the same part; the first is column `number` before
 * columns are flipped. The output is plain bytes with the channels last. */
template <int channels>
static void rd_write_turned_columns(const uint8_t *from, int64_t pitch, const rd_render &to,
                                    int64_t number, int64_t count) {
    const int64_t row = to.width * channels, down = to.flips_rows ? -row : row;
    uint8_t *out = (uint8_t *)to.out + (to.flips_rows ? (to.height - 1) * row : 0);
    out += (to.flips_columns ? to.width - number - count : number) * channels;
    if (to.flips_columns)
        from += (count - 1) * pitch, pitch = -pitch;
    for (int64_t y = 0; y < to.height; y += RD_AT_ONCE)
        rd_turn<channels>(from + y * channels, pitch, count, std::min<int64_t>(RD_AT_ONCE, to.height - y),
                          out + y * down, down, 0);
}

/* Write a turned output from the same part in the image's order.  Throws std::bad_alloc. */
template <int channels>
static void rd_write_turned(const uint8_t *from, int64_t pitch, const rd_render &to) {
    if (!to.table && !to.channels_first) { /* no step in between */
        for (int64_t x = 0; x < to.width; x += RD_TURNED_AT_ONCE)
            rd_write_turned_columns<channels>(from + x * pitch, pitch, to, x,
                                              std::min<int64_t>(RD_TURNED_AT_ONCE, to.width - x));
        return;
    }
    static thread_local rd_work kept;
    const int64_t x_step = to.channels_first ? 1 : channels, row = to.width * x_step;
    const int64_t c_step = to.channels_first ? RD_AT_ONCE * row : 1;
    uint8_t *rows = kept.of((size_t)(RD_AT_ONCE * to.width * channels));
    for (int64_t y = 0; y < to.height; y += RD_AT_ONCE) {
        const int64_t count = std::min<int64_t>(RD_AT_ONCE, to.height - y);
        rd_turn<channels>(from + y * channels, pitch, to.width, count, rows, row,
                          to.channels_first ? c_step : 0);
        rd_write<channels>({rows, row, x_step, c_step}, to, y, count);
    }
    kept.keep_little();
}

/* Make a turned output out of a region that has all that `axes`, those of rd_unturned, read.  Throws
 * std::bad_alloc. */
template <int channels>
static void rd_make_turned(const rd_region &region, const rd_axes &axes, const rd_render &to) {
    if (axes.is_identity) {
        rd_write_turned<channels>(region.pixels + (axes.top - region.top) * region.pitch +
                                      (axes.left - region.left) * channels,
                                  region.pitch, to);
        return;
    }
    static thread_local rd_work kept;
    rd_render plain = rd_unturned(to);
    plain.out = kept.of((size_t)plain.height * (size_t)plain.width * channels);
    rd_make<channels>(region, axes, plain);
    rd_write_turned<channels>((const uint8_t *)plain.out, plain.width * channels, to);
    kept.keep_little();
}

/* Make the output out of a region, turned or not.  Throws std::bad_alloc. */
static void rd_make_any(const rd_region &region, const rd_axes &axes, const rd_render &to) {
    if (to.is_turned && to.channels == 3)
        rd_make_turned<3>(region, axes, to);
    else if (to.is_turned)
        rd_make_turned<1>(region, axes, to);
    else if (to.channels == 3)
        rd_make<3>(region, axes, to);
    else
        rd_make<1>(region, axes, to);
}

/* Make the output out of an image of `channels` bytes a pixel.  Throws std::bad_alloc. */
static void rd_render_image(const uint8_t *pixels, int64_t pitch, const rd_render &to) {
    const rd_region region = {pixels, pitch, 0, 0};
    rd_make_any(region, rd_axes_of(to.is_turned ? rd_unturned(to) : to), to);
}

/* An output whose rows are decoded some at a time: each of its pixels is one of the image. */
struct rd_taker {
    const rd_render *to;
    const rd_axes *axes;
};

/* Write the rows of `found`; see rd_jpeg_part. */
template <int channels>
static void rd_take(void *taker, const uint8_t *rows, const rd_region *found, int64_t count) {
    const rd_render &to = *((rd_taker *)taker)->to;
    const rd_axes &axes = *((rd_taker *)taker)->axes;
    rows += (axes.left - found->left) * channels;
    if (to.is_turned)
        rd_write_turned_columns<channels>(rows, found->pitch, to, found->top - axes.top, count);
    else
        rd_write<channels>({rows, found->pitch, channels, 1}, to, found->top - axes.top, count);
}

/* Make the output out of a JPEG; 0: another decoder must, and `text` says why. The spans are in pixels of the
 * image at 1/factor of its size. Throws std::bad_alloc. */
static int rd_render_jpeg(const rd_libjpeg &lib, rd_jpeg_part part, const rd_render &to, char *text) {
    static thread_local rd_work kept;
    const rd_axes axes = rd_axes_of(to.is_turned ? rd_unturned(to) : to);
    rd_taker taker = {&to, &axes};
    part.channels = to.channels;
    part.top = axes.top, part.bottom = axes.bottom;
    part.left = axes.left, part.right = axes.right;
    part.take = NULL;
    part.to = &taker;
    part.at_once = to.is_turned ? (int64_t)RD_TURNED_AT_ONCE : (int64_t)RD_AT_ONCE;
    const int64_t width = (part.width + part.factor - 1) / part.factor;
    const size_t row = (size_t)width * part.channels;
    const bool is_plain = !to.table && (!to.channels_first || to.channels == 1);
    const bool is_as_it_is =
        axes.is_identity && to.width == width && is_plain && !to.flips_columns && !to.is_turned;
    part.is_upside_down = is_as_it_is && to.flips_rows;
    int64_t rows = axes.bottom - axes.top;
    if (is_as_it_is)
        rows = 0; /* whole rows need no memory of their own */
    else if (axes.is_identity && (is_plain || !to.is_turned)) {
        part.take = to.channels == 3 ? rd_take<3> : rd_take<1>;
        rows = std::min(rows, part.at_once);
    }
    uint8_t *work = kept.of((size_t)(rows + 1) * row); /* the last row is spare */
    rd_region region;
    const int is_good = rd_jpeg_decode(&lib, &part, is_as_it_is ? (uint8_t *)to.out : work,
                                       work + (size_t)rows * row, &region, text);
    if (is_good && !is_as_it_is && !part.take)
        rd_make_any(region, axes, to);
    kept.keep_little();
    return is_good;
}

#endif
