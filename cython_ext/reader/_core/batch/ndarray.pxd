# Arrays of NumPy: the contract of ndarray.h, the array behind a value, and a copy of one.
cimport numpy as cnp
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from reader._core.batch.dtype cimport FieldType

cdef extern from "reader/_core/batch/ndarray.h":
    object rd_make_ndarray(object type, int ndim, const int64_t* shape, void* data, int readonly,
                           PyObject* base)
    object rd_make_strided(object type, int ndim, const int64_t* shape, const int64_t* strides,
                           void* data, int readonly, PyObject* base)

cdef object as_ndarray(object value, list name)
cdef int copy_array(cnp.ndarray source, FieldType type, char* target, bint is_uncached) except -1
