# Datasets that are arrays: their rows are gathered without Python code for each sample.
from libc.stdint cimport int64_t
from libcpp.vector cimport vector
from reader._core.collate.indices cimport Indices
from reader._core.collate.plan cimport Plan


cdef class Columns:
    cdef readonly object source    # the dataset whose samples the rows are
    cdef object arrays             # returns the arrays, in the order of a sample's fields
    cdef tuple indices             # sequences that map keys to rows, applied one after the other
    cdef readonly object fill      # writes the rows of a batch itself; None: they are rows of the arrays
    cdef list held                 # the arrays of the batch in hand, or arrays on tensors' memory
    cdef vector[int64_t] rows      # of the batch in hand
    # of the batch in hand, by field: the first row, the step from row to row, and the target
    cdef vector[const char*] starts
    cdef vector[int64_t] strides
    cdef vector[char*] targets
    cdef vector[size_t] sizes      # bytes of a row
    cdef int64_t count             # rows that each array has

    cdef bint suit(self, Plan plan) except -1
    cdef bint suit_one(self, object array, Plan plan, Py_ssize_t number) except -1
    cdef bint take_indices(self, Indices keys) except -1
    cdef bint take(self, object keys) except -1
    cdef int aim(self, Plan plan) except -1
    cdef int write(self, Plan plan, Py_ssize_t count, object owner) except -1
    cdef void copy(self, size_t first, size_t count, bint is_uncached) noexcept nogil
