# Element types of fields.
from cpython.object cimport PyObject

cdef class FieldType:
    cdef readonly object storage   # numpy.dtype of the bytes, native byte order
    cdef readonly str name         # interned
    cdef readonly bint extended    # NumPy itself lacks the type
    cdef readonly Py_ssize_t itemsize
    cdef int dl_code               # DLPack type code; -1: the type cannot be exchanged
    cdef object shown              # ml_dtypes' dtype, once it was needed


cdef FieldType dl_field_type(int code, int bits, int lanes)
cdef PyObject* dl_type_at(int code, int bits, int lanes) except? NULL
