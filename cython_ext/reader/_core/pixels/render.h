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
    rd_normal normals[3]; /* of floats in planes of channels: see rd_find_normals */
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
static inline void rd_reach(const rd_axis &axis, int64_t size, int64_t *first, int64_t *last) {
    *first = rd_first(axis, 0);
    *last = rd_first(axis, size - 1) + axis.taps;
}

enum : int64_t { RD_AT_ONCE = 16 }; /* rows that stay in the nearest cache while they are read */

/* Rows of pixels: channel c of pixel x of row k is at k * pitch + x * x_step + c * c_step. */
struct rd_rows {
    const uint8_t *pixels;
    int64_t pitch, x_step, c_step;
    int64_t x, width; /* of the output: these pixels of its rows, before columns are flipped */
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
static void rd_write_planes(const uint8_t *from, int64_t pitch, int64_t step, const Item *table,
                            rd_normal normal, Item *out, int64_t out_pitch, int64_t width, int64_t count) {
    if constexpr (sizeof(Item) == sizeof(float))
        if (table && normal.std != 0 && (step == 1 || step == -1)) {
            for (int64_t k = 0; k < count; k++, from += pitch, out += out_pitch)
                rd_normalize(from, step, normal, (float *)out, width);
            return;
        }
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
    const int64_t left = to.flips_columns ? to.width - rows.x - rows.width : rows.x;
    Item *out = (Item *)to.out;
    if (to.flips_columns) {
        rows.pixels += (rows.width - 1) * rows.x_step;
        rows.x_step = -rows.x_step;
    }
    if (to.channels_first) {
        for (int c = 0; c < channels; c++)
            rd_write_planes(rows.pixels + c * rows.c_step, rows.pitch, rows.x_step,
                            table ? table + c * 256 : NULL, to.normals[c],
                            out + (c * to.height + y) * to.width + left, down * to.width, rows.width, count);
        return;
    }
    const int64_t length = to.width * channels;
    for (int64_t k = 0; k < count; k++) {
        const uint8_t *from = rows.pixels + k * rows.pitch;
        Item *row = out + (y + k * down) * length + left * channels;
        if (!table && rows.x_step == channels) {
            memcpy(row, from, (size_t)(rows.width * channels));
            continue;
        }
        int64_t x = 0;
        if (sizeof(Item) == 1 && channels == 3 && !table && rows.x_step == -3 && rd_has_shuffle()) {
            x = rd_reverse_pixels(from, (uint8_t *)row, rows.width);
            from -= 3 * x, row += 3 * x;
        }
        for (; x < rows.width; x++, from += rows.x_step, row += channels)
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
    rd_reach(axes.rows, to.height, &axes.top, &axes.bottom);
    rd_reach(axes.columns, to.width, &axes.left, &axes.right);
    return axes;
}

/* Make the outputs of some columns, by the function that fits their number of inputs. */
template <int channels>
static void rd_make_columns(const rd_eight *columns, const rd_tile &tile, rd_eight *out) {
    if (tile.taps > RD_FEW_TAPS)
        rd_shrink_columns<channels>(columns, tile, out);
    else
        rd_resize_columns<channels>(columns, tile, out);
}

#ifdef RD_SIXTEEN
template <int channels>
static void rd_make_columns(const rd_sixteen *columns, const rd_tile &tile, rd_sixteen *out) {
    rd_resize_columns<channels>(columns, tile, out);
}
#endif

/* The work space of some rows that are resized at once. `Column` has one number of each. Each part has space
 * for RD_TILE numbers of a row, or for all of it. */
template <typename Column> struct rd_resizing {
    enum : int64_t { ROWS = sizeof(Column) / sizeof(uint16_t) };
    int64_t numbers;     /* of an input row's part */
    int64_t out_numbers; /* of an output row's part, with space for the padding */
    Column *columns;     /* the sums, one column after the other */
    Column *out_columns;
    uint16_t *sums; /* the sums of the inputs above each other, one row after the other */
    uint32_t *row_work;
    int64_t *offsets;
    uint16_t *weights;
    uint8_t *rows; /* the outputs as rows, by channel if `out` is laid out so */
};

/* Sum up the inputs of `count` rows of the output, y and the next, over inputs [left, right) of each row, and
 * lay the sums out as columns. */
template <int channels, typename Column>
static void rd_sum_rows(const uint8_t *corner, int64_t pitch, const rd_axes &axes,
                        const rd_resizing<Column> &work, int64_t y, int64_t count, int64_t left,
                        int64_t right) {
    const int64_t n = (right - left) * channels, padded = (n + 7) & ~(int64_t)7;
    const int64_t taps = axes.rows.taps;
    for (int64_t k = 0; k < count; k++) {
        rd_weights weights(axes.rows, y + k, taps > RD_FEW_TAPS ? 65536 : 256);
        const uint8_t *from =
            corner + (weights.first - axes.top) * pitch + (left - axes.left) * channels;
        uint16_t *sums = work.sums + k * padded;
        if (taps > RD_FEW_TAPS) {
            rd_shrink_rows(from, pitch, weights, n, work.row_work, sums);
        } else {
            uint16_t whole[RD_FEW_TAPS];
            weights.write(taps, whole);
            rd_add_rows(from, pitch, whole, taps, n, sums);
        }
    }
    rd_rows_to_columns(work.sums, padded, padded, work.columns);
}

/* Make the only output of a tile that reads more inputs than there is space for: some of them at a time. */
template <int channels>
static void rd_make_wide_column(const uint8_t *corner, int64_t pitch, const rd_axes &axes,
                                const rd_resizing<rd_eight> &work, const rd_tile &tile, int64_t y,
                                int64_t count) {
    const int64_t most = RD_TILE / channels;
    rd_weights weights(axes.columns, tile.x, 65536);
    rd_wide sums[channels] = {};
    for (int64_t left = tile.left; left < tile.right; left += most) {
        const int64_t right = std::min(tile.right, left + most);
        rd_sum_rows<channels>(corner, pitch, axes, work, y, count, left, right);
        weights.write(right - left, work.weights);
        rd_add_columns<channels>(work.columns, work.weights, right - left, sums);
    }
    rd_write_sums<channels>(sums, work.out_columns);
}

template <int channels>
static void rd_make_wide_column(const uint8_t *, int64_t, const rd_axes &, const rd_resizing<rd_sixteen> &,
                                const rd_tile &, int64_t, int64_t) {
    /* sixteen rows at once have few taps, which fit */
}

/* Describe the tile that begins with output x: its inputs and their weights. */
template <int channels, typename Column>
static rd_tile rd_tile_at(const rd_axis &axis, const rd_resizing<Column> &work, int64_t x, int64_t width) {
    rd_tile tile;
    tile.x = x;
    tile.width = rd_tile_end(axis, x, width, channels) - x;
    tile.left = rd_first(axis, x);
    tile.right = rd_first(axis, x + tile.width - 1) + axis.taps;
    tile.taps = axis.taps;
    tile.offsets = work.offsets;
    tile.weights = work.weights;
    if (tile.right - tile.left > RD_TILE / channels)
        return tile; /* a wide column, which makes its weights in parts */
    for (int64_t k = 0; k < tile.width; k++) {
        rd_weights weights(axis, x + k, 65536);
        work.offsets[k] = weights.first - tile.left;
        weights.write(axis.taps, work.weights + k * axis.taps);
    }
    return tile;
}

/* Lay the work space of a resize out. Throws std::bad_alloc. */
template <int channels, typename Column>
static rd_resizing<Column> rd_resizing_of(const rd_axes &axes, const rd_render &to, rd_work *kept) {
    enum : int64_t { ROWS = rd_resizing<Column>::ROWS, MOST = RD_TILE / channels };
    const int64_t width = std::min<int64_t>(axes.right - axes.left, MOST);
    const int64_t out_width = (std::min<int64_t>(to.width, MOST) + 7) & ~(int64_t)7;
    /* where an image shrinks each input has two outputs, but for the tile's edges */
    const int64_t taps = std::max(width, std::min(axes.columns.taps * out_width,
                                                  4 * width + 2 * out_width + 8));
    rd_resizing<Column> work;
    const int64_t n = work.numbers = (width * channels + 7) & ~(int64_t)7;
    const int64_t out_n = work.out_numbers = out_width * channels;
    uint8_t *bytes = kept->of((size_t)(2 * n + out_n) * sizeof(Column) + (size_t)n * sizeof(uint32_t) +
                              (size_t)out_width * sizeof(int64_t) + (size_t)taps * sizeof(uint16_t) +
                              (size_t)(ROWS * out_n));
    work.columns = (Column *)bytes;
    work.out_columns = work.columns + n;
    work.sums = (uint16_t *)(work.out_columns + out_n);
    work.row_work = (uint32_t *)(work.sums + ROWS * n);
    work.rows = (uint8_t *)(work.row_work + n);
    work.offsets = (int64_t *)(work.rows + ROWS * out_n); /* n and out_n are multiples of 8 */
    work.weights = (uint16_t *)(work.offsets + out_width);
    memset(work.sums, 0, (size_t)(ROWS * n) * sizeof *work.sums);
    memset((void *)work.out_columns, 0, (size_t)out_n * sizeof *work.out_columns);
    return work;
}

/* Make the output of rows that are resized, tile by tile; all but very wide images are one tile. `Column`
 * has one number of each of several rows, which are resized at once.  Throws std::bad_alloc. */
template <int channels, typename Column>
static void rd_resize(const uint8_t *corner, int64_t pitch, const rd_axes &axes, const rd_render &to) {
    enum : int64_t { ROWS = rd_resizing<Column>::ROWS };
    static thread_local rd_work kept;
    const rd_resizing<Column> work = rd_resizing_of<channels, Column>(axes, to, &kept);
    rd_tile tile = rd_tile_at<channels>(axes.columns, work, 0, to.width);
    for (int64_t y = 0; y < to.height; y += ROWS) {
        const int64_t count = std::min<int64_t>(ROWS, to.height - y);
        for (int64_t x = 0; x < to.width; x += tile.width) {
            if (x != tile.x)
                tile = rd_tile_at<channels>(axes.columns, work, x, to.width);
            if (tile.right - tile.left > RD_TILE / channels) {
                rd_make_wide_column<channels>(corner, pitch, axes, work, tile, y, count);
            } else {
                rd_sum_rows<channels>(corner, pitch, axes, work, y, count, tile.left, tile.right);
                rd_make_columns<channels>(work.columns, tile, work.out_columns);
            }
            const int64_t width = (tile.width + 7) & ~(int64_t)7, n = width * channels;
            if (to.channels_first)
                for (int c = 0; c < channels; c++)
                    rd_columns_to_bytes(work.out_columns + c, channels, width, work.rows + c * ROWS * width,
                                        width);
            else
                rd_columns_to_bytes(work.out_columns, 1, n, work.rows, n);
            const rd_rows made =
                to.channels_first ? rd_rows{work.rows, width, 1, ROWS * width, tile.x, tile.width}
                                  : rd_rows{work.rows, n, channels, 1, tile.x, tile.width};
            rd_write<channels>(made, to, y, count);
        }
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
            rd_write<channels>({corner + y * region.pitch, region.pitch, channels, 1, 0, to.width}, to, y,
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
    for (int64_t y = 0; y < to.height; y += RD_AT_ONCE) {
        const int64_t next = y + RD_AT_ONCE;
        rd_fetch_rows(out + next * down, down, std::min<int64_t>(RD_AT_ONCE, to.height - next), count * channels);
        rd_turn<channels>(from + y * channels, pitch, count, std::min<int64_t>(RD_AT_ONCE, to.height - y),
                          out + y * down, down, 0);
    }
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
    const int64_t at_once = std::min<int64_t>(RD_AT_ONCE, to.height);
    const int64_t c_step = to.channels_first ? at_once * row : 1;
    uint8_t *rows = kept.of((size_t)(at_once * to.width * channels));
    for (int64_t y = 0; y < to.height; y += at_once) {
        const int64_t count = std::min<int64_t>(at_once, to.height - y);
        rd_turn<channels>(from + y * channels, pitch, to.width, count, rows, row,
                          to.channels_first ? c_step : 0);
        rd_write<channels>({rows, row, x_step, c_step, 0, to.width}, to, y, count);
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
        rd_write<channels>({rows, found->pitch, channels, 1, 0, to.width}, to, found->top - axes.top, count);
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
