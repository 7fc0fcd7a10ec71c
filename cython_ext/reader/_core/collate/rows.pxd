# Samples of one field that are not stacked yet: written straight to the field's place.
cimport numpy as cnp
from libc.stdint cimport int64_t, uint64_t
from reader._core.batch.dtype cimport FieldType
from reader._core.batch.structure cimport Unwritten


cdef class Rows(Unwritten):
    cdef list arrays             # of the samples, ndarrays; one at least
    cdef list types              # and their FieldTypes
    cdef FieldType type          # of the field
    cdef readonly bint is_joined # the samples lie end to end; else each is a row
    cdef int ndim                # of the field
    cdef int64_t[65] extents     # of the field
    cdef Py_ssize_t nbytes       # of the field
    cdef bint is_uncached        # samples are copied past the cache
    cdef bytes filling           # the padding element; None: nothing is padded

    cdef int read(self, object samples, object dtype) except -1
    cdef int axis_of(self, int axis) except -1
    cdef uint64_t axes_of(self, object axis) except? 0
    cdef int refuse(self, Py_ssize_t row, object reason) except -1
    cdef int measure(self, uint64_t axes, Py_ssize_t round_to) except -1
    cdef int refuse_shape(self, Py_ssize_t row, uint64_t axes) except -1
    cdef int count_bytes(self) except -1
    cdef int set_filling(self, object value) except -1
    cdef int write(self, char* target) except -1
    cdef int write_whole(self, cnp.ndarray array, FieldType type, char* target) except -1
    cdef int convert(self, object array, FieldType type, object view) except -1
    cdef int write_row(self, cnp.ndarray array, FieldType type, char* target) except -1
    cdef int fill(self, char* target, Py_ssize_t nbytes) except -1
