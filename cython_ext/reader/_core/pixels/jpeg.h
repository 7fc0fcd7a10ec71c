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
    int reads_all;         /* rows below the part are decoded, too, so that their damage is found */
    int64_t top, left, bottom, right; /* in pixels of the smaller image */
    int is_upside_down; /* the last row comes first in the target; not with `take` */
    /* NULL; or what takes the rows, `at_once` of them or fewer: then the target has room for so many. */
    void (*take)(void *to, const uint8_t *rows, const struct rd_region *found, int64_t count);
    void *to;
    int64_t at_once;
};

struct rd_jpeg_handler {
    struct rd_jpeg_errors errors; /* first: the library knows this part alone */
    jmp_buf on_failure;
    int is_damaged; /* the library warned of damage */
    char *text;     /* RD_JPEG_TEXT bytes for the first damage or the error */
};

static void rd_jpeg_fail(struct rd_jpeg *jpeg) {
    struct rd_jpeg_handler *handler = (struct rd_jpeg_handler *)jpeg->errors;
    if (!handler->is_damaged && handler->text)
        jpeg->errors->format(jpeg, handler->text);
    longjmp(handler->on_failure, 1);
}

/* Note a warning, level -1. Bytes between two parts of the file lose no pixel. */
static void rd_jpeg_tell(struct rd_jpeg *jpeg, int level) {
    struct rd_jpeg_handler *handler = (struct rd_jpeg_handler *)jpeg->errors;
    const struct rd_jpeg_errors *errors = jpeg->errors;
    if (level >= 0 || handler->is_damaged)
        return;
    const int is_known = errors->code > 0 && errors->code <= errors->last_text;
    if (is_known && strstr(errors->texts[errors->code], "extraneous bytes"))
        return;
    handler->is_damaged = 1;
    if (handler->text)
        errors->format(jpeg, handler->text);
}

static void rd_jpeg_print(struct rd_jpeg *jpeg) {
    (void)jpeg;
}

/* Set the error handler of the decompressor that is made next. */
static inline void rd_jpeg_prepare(const struct rd_libjpeg *lib, struct rd_jpeg *jpeg,
                                   struct rd_jpeg_handler *handler, char *text) {
    memset(jpeg, 0, sizeof *jpeg);
    jpeg->errors = lib->std_error(&handler->errors);
    handler->errors.fail = rd_jpeg_fail;
    handler->errors.tell = rd_jpeg_tell;
    handler->errors.print = rd_jpeg_print;
    handler->is_damaged = 0;
    handler->text = text;
}

/* Whether the library's decompressors have the layout declared here. */
static inline int rd_libjpeg_fits(const struct rd_libjpeg *lib) {
    struct rd_jpeg jpeg;
    struct rd_jpeg_handler handler;
    rd_jpeg_prepare(lib, &jpeg, &handler, NULL);
    if (setjmp(handler.on_failure))
        return 0;
    lib->create(&jpeg, RD_JPEG_VERSION, sizeof jpeg);
    lib->destroy(&jpeg);
    return 1;
}

enum {
    RD_TRAILER = 16, /* bytes; fewer behind the pixels are no trailer: the file is cut off there */
    RD_JPEG_SOI = 0xd8,
    RD_JPEG_EOI = 0xd9
};

/* Return where the first image of a file ends, behind its end marker; 0: something else comes before that
 * marker. No length in the file is followed beyond its bytes. */
static inline int64_t rd_jpeg_end(const uint8_t *content, int64_t nbytes) {
    bool is_in_scan = false;
    for (int64_t at = 2; at < nbytes;) {
        const uint8_t *found = (const uint8_t *)memchr(content + at, 0xff, (size_t)(nbytes - at));
        if (!found)
            return 0;
        for (at = found - content; at < nbytes && content[at] == 0xff;)
            at++;
        if (at == nbytes)
            return 0;
        const int marker = content[at++];
        if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd7))
            continue; /* a byte of pixels, or a restart */
        if (marker == RD_JPEG_EOI)
            return is_in_scan ? at : 0;
        /* between scans: tables, a number of lines, an interval, a comment or the next scan */
        const bool is_table = marker == 0xc4 || marker == 0xcc || (marker >= 0xda && marker <= 0xdd);
        if (marker < 0xc0 || marker == RD_JPEG_SOI || (is_in_scan && !is_table && marker != 0xfe) ||
            nbytes - at < 2)
            return 0;
        is_in_scan |= marker == 0xda;
        at += std::max(2, content[at] << 8 | content[at + 1]);
    }
    return 0;
}

/* Decode the part into `target`, which has room for its rows, as long as those of the smaller image, and
 * set `found` to where it lies there. `take` gets each time the rows from `found->top` on. `spare` has room for a row where `reads_all` is set.
 *
 * Returns 1; 0 if the library reported an error, or warned of damage: then `text`, of RD_JPEG_TEXT bytes,
 * says why, and another decoder makes the image, or reports the error. All that lives across setjmp is plain
 * data. */
static int rd_jpeg_decode(const struct rd_libjpeg *lib, const struct rd_jpeg_part *part, uint8_t *target,
                          uint8_t *spare, struct rd_region *found, char *text) {
    struct rd_jpeg jpeg;
    struct rd_jpeg_handler handler;
    rd_jpeg_prepare(lib, &jpeg, &handler, text);
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
    found->pixels = target;
    found->pitch = (int64_t)jpeg.out_width * part->channels;
    found->top = part->top;
    found->left = left;
    while (jpeg.row < part->bottom) {
        unsigned char *rows[16];
        int64_t at = (int64_t)jpeg.row - found->top, most = part->bottom - jpeg.row;
        if (part->take)
            most = std::min<int64_t>(most, part->at_once - at);
        const unsigned count = (unsigned)std::min<int64_t>(16, most);
        for (unsigned i = 0; i < count; i++)
            rows[i] = target + (part->is_upside_down ? part->bottom - part->top - 1 - at - i : at + i) *
                                   found->pitch;
        if (lib->read(&jpeg, rows, count) == 0)
            rd_jpeg_fail(&jpeg);
        at = (int64_t)jpeg.row - found->top;
        if (part->take && (at == part->at_once || jpeg.row == part->bottom)) {
            part->take(part->to, target, found, at);
            found->top = jpeg.row;
        }
    }
    int is_good = !handler.is_damaged;
    if (part->reads_all && is_good) {
        while (jpeg.row < jpeg.out_height)
            if (lib->read(&jpeg, &spare, 1) == 0)
                rd_jpeg_fail(&jpeg);
        is_good = !handler.is_damaged;
        const uint8_t *last = part->content + part->nbytes - 2;
        const bool is_ended = part->nbytes > 2 && last[0] == 0xff && last[1] == RD_JPEG_EOI;
        if (is_good && !is_ended && jpeg.source->left < RD_TRAILER) {
            is_good = 0;
            strcpy(text, "Premature end of JPEG file");
        }
    }
    lib->destroy(&jpeg);
    return is_good;
}

#endif
