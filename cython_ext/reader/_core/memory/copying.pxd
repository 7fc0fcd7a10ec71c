# How bytes get into a batch: through the cache or past it, or gathered row by row.
from libc.stdint cimport int64_t


cdef enum:
    # shorter pieces are copied through the cache: their ends and the fence would cost more
    UNCACHED_NBYTES = 4096
    NOGIL_NBYTES = 65536

cdef void copy_bytes(char* to, const char* source, size_t nbytes, bint is_uncached) noexcept nogil
cdef void copy_with_gil(char* to, const char* source, size_t nbytes, bint is_uncached) noexcept
cdef void gather_rows(char* to, const char* base, int64_t stride, const int64_t* rows, size_t count,
                      size_t nbytes, bint is_uncached) noexcept nogil
