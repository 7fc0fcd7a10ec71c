/* The binary interface of libjpeg 6.2, as far as it is used: libjpeg-turbo, as most systems and
 * Pillow's wheels have it, on 64-bit machines. The library is opened when first needed, so the package
 * builds without its headers. It checks the version and the size of these structures itself, when a
 * decompressor is made. May include system headers only and owns no state.
 *
 * Source: the structures' documented order in libjpeg's manual, and their offsets on x86-64.
 */
#ifndef READER_CORE_LIBJPEG_H
#define READER_CORE_LIBJPEG_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RD_JPEG_VERSION = 62,
    RD_JPEG_GREY = 1, /* JCS_GRAYSCALE */
    RD_JPEG_RGB = 2,  /* JCS_RGB */
    RD_JPEG_NBYTES = 632,
    RD_JPEG_TEXT = 200 /* bytes of a message, with its end */
};

struct rd_jpeg;

/* The error handler of a decompressor; the first five are called by the library. */
struct rd_jpeg_errors {
    void (*fail)(struct rd_jpeg *);           /* error_exit: must not return */
    void (*tell)(struct rd_jpeg *, int level); /* emit_message: level -1 is a warning */
    void (*print)(struct rd_jpeg *);
    void (*format)(struct rd_jpeg *, char *text); /* at most RD_JPEG_TEXT */
    void (*reset)(struct rd_jpeg *);
    int code;
    char values[80];
    int trace_level;
    long warnings;
    const char *const *texts;
    int last_text;
    const char *const *more_texts;
    int first_more_text, last_more_text;
};

/* A decompressor: the part of jpeg_decompress_struct that programs set and read. */
struct rd_jpeg {
    struct rd_jpeg_errors *errors;
    void *memory, *progress, *client_data;
    int is_decompressor, state;
    struct rd_jpeg_source *source;
    unsigned width, height;
    int components, file_colors, out_colors;
    unsigned scale_num, scale_denom;
    double gamma;
    int is_buffered, is_raw, dct_method, has_fancy_upsampling, has_block_smoothing, is_quantized;
    int dither, has_two_passes, colors_wanted, one_pass, external, two_pass;
    unsigned out_width, out_height;
    int out_color_components, out_components, rows_wanted, colors;
    void *color_map;
    unsigned row; /* output_scanline: the next one */
    char rest[RD_JPEG_NBYTES - 172];
};

#ifdef __cplusplus
static_assert(sizeof(struct rd_jpeg) == RD_JPEG_NBYTES, "a 64-bit machine");
static_assert(offsetof(struct rd_jpeg, out_width) == 136, "as in jpeglib.h");
static_assert(offsetof(struct rd_jpeg, row) == 168, "as in jpeglib.h");
static_assert(sizeof(struct rd_jpeg_errors) == 168, "as in jpeglib.h");
#endif

/* Where a decompressor reads; the library has more fields behind these. */
struct rd_jpeg_source {
    const unsigned char *next;
    size_t left; /* bytes from `next` on */
};

/* The functions of an opened library. */
struct rd_libjpeg {
    struct rd_jpeg_errors *(*std_error)(struct rd_jpeg_errors *);
    void (*create)(struct rd_jpeg *, int version, size_t nbytes);
    void (*mem_src)(struct rd_jpeg *, const unsigned char *, unsigned long);
    int (*read_header)(struct rd_jpeg *, int must_be_image);
    int (*start)(struct rd_jpeg *);
    void (*crop)(struct rd_jpeg *, unsigned *left, unsigned *width);
    unsigned (*skip)(struct rd_jpeg *, unsigned rows);
    unsigned (*read)(struct rd_jpeg *, unsigned char **rows, unsigned count);
    void (*destroy)(struct rd_jpeg *);
};

/* Open the library at a path, for good; nonzero where it is no libjpeg-turbo of version 6.2. */
static inline int rd_libjpeg_open(const char *path, struct rd_libjpeg *lib) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return -1;
    struct {
        const char *name;
        void **to;
    } functions[] = {
        {"jpeg_std_error", (void **)&lib->std_error},
        {"jpeg_CreateDecompress", (void **)&lib->create},
        {"jpeg_mem_src", (void **)&lib->mem_src},
        {"jpeg_read_header", (void **)&lib->read_header},
        {"jpeg_start_decompress", (void **)&lib->start},
        {"jpeg_crop_scanline", (void **)&lib->crop},
        {"jpeg_skip_scanlines", (void **)&lib->skip},
        {"jpeg_read_scanlines", (void **)&lib->read},
        {"jpeg_destroy_decompress", (void **)&lib->destroy},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *functions[i].to = dlsym(handle, functions[i].name);
        if (*functions[i].to == NULL) {
            dlclose(handle);
            return -1;
        }
    }
    return 0;
}

#endif
