# A keyed order of a range, read by place.
from libc.stdint cimport int64_t, uint16_t, uint64_t


cdef extern from "reader/_core/random/permutation.h" nogil:
    ctypedef struct rd_permutation:
        pass

    void rd_permutation_init(rd_permutation* self, uint64_t count, uint64_t root, uint64_t low,
                             uint64_t high) noexcept
    void rd_permutation_take(const rd_permutation* self, uint64_t start, uint64_t step,
                             size_t length, int64_t* values) noexcept


cdef class Permutation:
    cdef readonly int64_t count    # how many values there are
    cdef readonly object key       # the int that chooses the order
    cdef rd_permutation order      # constant after __cinit__: read without a lock or the GIL

    cdef object take_values(self, int64_t start, int64_t stop, int64_t step)
