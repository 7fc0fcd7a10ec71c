/* The bytes of an array by its extents, computed without overflow.
 *
 * An array with an extent of 0 has no bytes, whatever its other extents: a batch may have 40,960 empty
 * rows. NumPy counts an extent of 0 as 1 when it limits the size of an array; both numbers are here.
 * Includes system headers only and owns no state. */
#ifndef READER_CORE_EXTENTS_H
#define READER_CORE_EXTENTS_H

#include <stdint.h>

/* The bytes of an array: 0 where an extent is 0 or elements have none; UINT64_MAX where an extent is
 * negative, or the product is UINT64_MAX or more. */
static inline uint64_t rd_extents_nbytes(uint64_t itemsize, const int64_t *extents, int64_t ndim) {
    uint64_t nbytes = itemsize;
    int is_empty = itemsize == 0, overflows = 0;
    for (int64_t i = 0; i < ndim; i++) {
        if (extents[i] < 0) return UINT64_MAX;
        is_empty |= extents[i] == 0;
        overflows |= __builtin_mul_overflow(nbytes, (uint64_t)extents[i], &nbytes);
    }
    return is_empty ? 0 : overflows ? UINT64_MAX : nbytes;
}

/* The bytes that an array spans: as above, with 1 for each extent of 0 and for elements without
 * bytes.  NumPy refuses arrays that span more than INT64_MAX; strides within less cannot overflow.
 * UINT64_MAX where it is more, or an extent is negative. */
static inline uint64_t rd_extents_span(uint64_t itemsize, const int64_t *extents, int64_t ndim) {
    uint64_t span = itemsize ? itemsize : 1;
    int overflows = 0;
    for (int64_t i = 0; i < ndim; i++) {
        if (extents[i] < 0) return UINT64_MAX;
        overflows |= __builtin_mul_overflow(span, (uint64_t)(extents[i] ? extents[i] : 1), &span);
    }
    return overflows || span > INT64_MAX ? UINT64_MAX : span;
}

#endif
