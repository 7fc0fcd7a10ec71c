# Arrays of NumPy: the one behind a value, and a copy of one.
cimport numpy as cnp
from reader._core.batch.dtype cimport FieldType

cdef object as_ndarray(object value, list name)
cdef int copy_array(cnp.ndarray source, FieldType type, char* target, bint is_uncached) except -1
