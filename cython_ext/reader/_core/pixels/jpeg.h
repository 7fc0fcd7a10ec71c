/* Decode a part of a JPEG. Rows above it and columns beside it are skipped without their inverse transform;
 * rows below it are not read. Includes libjpeg.h and the C++ library. Keeps no state; needs no GIL. */
#ifndef READER_CORE_JPEG_H
#define READER_CORE_JPEG_H

#include <setjmp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "reader/_core/pixels/libjpeg.h"

/* Some rows and columns of an image: `pixels` is that at (top, left), and rows lie `pitch` bytes
 * apart. */
struct rd_region {
    const uint8_t *pixels;
    int64_t pitch, top, left;
};

/* The image, and the part to decode. */
struct rd_jpeg_part {
    const uint8_t *content;
    int64_t nbytes;
    int64_t height, width; /* as its header says */
    int factor;            /* 1, 2, 4 or 8: it is decoded at 1/factor of its size, rounded up */
    int channels;          /* 3: red, green and blue; 1: grey */
    int64_t top, left, bottom, right; /* in pixels of the smaller image */
};

struct rd_jpeg_handler {
    struct rd_jpeg_errors errors; /* first: the library knows this part alone */
    jmp_buf on_failure;
};

static void rd_jpeg_fail(struct rd_jpeg *jpeg) {
    longjmp(((struct rd_jpeg_handler *)jpeg->errors)->on_failure, 1);
}

static void rd_jpeg_tell(struct rd_jpeg *jpeg, int level) {
    if (level < 0)
        jpeg->errors->warnings++;
}

static void rd_jpeg_print(struct rd_jpeg *jpeg) {
    (void)jpeg;
}

/* Set the error handler of the decompressor that is made next. */
static inline void rd_jpeg_prepare(const struct rd_libjpeg *lib, struct rd_jpeg *jpeg,
                                   struct rd_jpeg_handler *handler) {
    memset(jpeg, 0, sizeof *jpeg);
    jpeg->errors = lib->std_error(&handler->errors);
    handler->errors.fail = rd_jpeg_fail;
    handler->errors.tell = rd_jpeg_tell;
    handler->errors.print = rd_jpeg_print;
}

/* Whether the library's decompressors have the layout declared here. */
static inline int rd_libjpeg_fits(const struct rd_libjpeg *lib) {
    struct rd_jpeg jpeg;
    struct rd_jpeg_handler handler;
    rd_jpeg_prepare(lib, &jpeg, &handler);
    if (setjmp(handler.on_failure))
        return 0;
    lib->create(&jpeg, RD_JPEG_VERSION, sizeof jpeg);
    lib->destroy(&jpeg);
    return 1;
}

/* Decode the part into `target`, which has (bottom - top) * the smaller image's width * channels
 * bytes, and set `found` to where it lies there.
 *
 * Returns 0 if the library reported an error or a warning: then another decoder makes the image, or reports
 * the error. All that lives across setjmp is plain data. */
static int rd_jpeg_decode(const struct rd_libjpeg *lib, const struct rd_jpeg_part *part, uint8_t *target,
                          struct rd_region *found) {
    struct rd_jpeg jpeg;
    struct rd_jpeg_handler handler;
    rd_jpeg_prepare(lib, &jpeg, &handler);
    if (setjmp(handler.on_failure)) {
        lib->destroy(&jpeg);
        return 0;
    }
    lib->create(&jpeg, RD_JPEG_VERSION, sizeof jpeg);
    lib->mem_src(&jpeg, part->content, (unsigned long)part->nbytes);
    lib->read_header(&jpeg, 1);
    jpeg.scale_num = 1;
    jpeg.scale_denom = (unsigned)part->factor;
    jpeg.out_colors = part->channels == 3 ? RD_JPEG_RGB : RD_JPEG_GREY;
    lib->start(&jpeg);
    const int64_t wanted_width = (part->width + part->factor - 1) / part->factor;
    const int64_t wanted_height = (part->height + part->factor - 1) / part->factor;
    if (jpeg.out_width != wanted_width || jpeg.out_height != wanted_height ||
        jpeg.out_components != part->channels) {
        lib->destroy(&jpeg);
        return 0;
    }
    /* where colors are stored at half size, those at the edge depend on the next pixels */
    unsigned left = (unsigned)std::max<int64_t>(part->left - 2, 0);
    unsigned width = (unsigned)std::min<int64_t>(part->right + 2, wanted_width) - left;
    if (width < jpeg.out_width)
        lib->crop(&jpeg, &left, &width); /* moves left to the beginning of a block */
    else
        left = 0;
    if (part->top > 0)
        lib->skip(&jpeg, (unsigned)part->top);
    found->pitch = (int64_t)jpeg.out_width * part->channels;
    while (jpeg.row < part->bottom) {
        unsigned char *rows[16];
        const int64_t at = (int64_t)jpeg.row - part->top;
        const unsigned count = (unsigned)std::min<int64_t>(16, part->bottom - jpeg.row);
        for (unsigned i = 0; i < count; i++)
            rows[i] = target + (at + i) * found->pitch;
        if (lib->read(&jpeg, rows, count) == 0)
            rd_jpeg_fail(&jpeg);
    }
    const int is_good = handler.errors.warnings == 0;
    found->pixels = target;
    found->top = part->top;
    found->left = left;
    lib->destroy(&jpeg);
    return is_good;
}

#endif
