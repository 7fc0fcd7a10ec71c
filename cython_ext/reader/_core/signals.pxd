"""What other modules of the core use of `signals`."""


cdef class Finalized:
    pass
