# The indices of batches as tasks carry them.
from libc.stdint cimport int64_t
from reader._core.random.permutation cimport Permutation


cdef class Indices:
    cdef readonly bytes payload   # int64, one after the other

    @staticmethod
    cdef Indices of(const char* data, Py_ssize_t nbytes)
    cdef int64_t* outside(self, int64_t count) noexcept


cdef class IndexBatches:
    cdef Permutation order        # None: each place is the index itself
    cdef int64_t at, stop         # places: of the next index, and behind the last
    cdef int64_t batch_size
    cdef bint drop_last

    cdef Indices draw(self)


cdef int64_t number_of(object key) noexcept
