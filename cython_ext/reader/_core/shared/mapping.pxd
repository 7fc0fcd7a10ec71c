# The layout of Mapping: see mapping.pyx. Imports nothing.
cdef class Mapping:
    cdef char* start
    cdef readonly Py_ssize_t nbytes
    cdef readonly bint is_writable
