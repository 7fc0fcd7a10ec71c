/* The data layout of the DLPack exchange protocol, version 1.1 (https://dmlc.github.io/dlpack).
 * Only the layout is here; dlpack.pyx exports and imports the capsules. */
#ifndef READER_CORE_DLPACK_H
#define READER_CORE_DLPACK_H

#include <stdint.h>

typedef struct rd_dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} rd_dl_tensor;

typedef struct rd_dl_managed {
    rd_dl_tensor tensor;
    void *context;
    void (*deleter)(struct rd_dl_managed *);
} rd_dl_managed;

typedef struct rd_dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct rd_dl_versioned *);
    uint64_t flags; /* 1: read-only, 2: a copy */
    rd_dl_tensor tensor;
} rd_dl_versioned;

/* The C exchange of DLPack 1.3: a class of tensors holds a capsule "dlpack_exchange_api" with it. */
typedef struct rd_dl_exchange {
    uint32_t major, minor;
    void *previous;
    void *allocate;
    int (*managed)(void *value, rd_dl_versioned **out);
    int (*make)(rd_dl_versioned *tensor, void **out);
    int (*view)(void *value, rd_dl_tensor *out); /* borrowed; not 0: a Python exception is set */
    void *stream;
} rd_dl_exchange;

#endif
