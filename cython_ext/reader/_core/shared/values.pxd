# What other modules of the core ask values for: see values.pyx. Imports nothing.
cdef class Values:
    cdef readonly Py_ssize_t count
    cdef object get(self, Py_ssize_t i)
