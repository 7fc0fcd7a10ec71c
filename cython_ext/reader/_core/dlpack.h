/* The data layout of the DLPack exchange protocol, version 1.1 (https://dmlc.github.io/dlpack).
 * Only layout lives here; tensor.pyx makes and takes the capsules. */
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

#endif
