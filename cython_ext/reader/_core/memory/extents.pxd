# The bytes of an array by its extents: see extents.h.
from libc.stdint cimport int64_t, uint64_t

cdef extern from "reader/_core/memory/extents.h" nogil:
    uint64_t rd_extents_nbytes(uint64_t itemsize, const int64_t* extents, int64_t ndim) noexcept
    uint64_t rd_extents_span(uint64_t itemsize, const int64_t* extents, int64_t ndim) noexcept
    const uint64_t RD_NO_SPAN "UINT64_MAX"
