# Objects that worker threads hand over as they are.

cdef class SideTable:
    cdef dict entries            # token -> (run, value); one operation of a dict at a time
    cdef Py_ssize_t last         # token; written with the GIL, or the object's lock without one
