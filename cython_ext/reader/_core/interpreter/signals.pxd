"""What other modules of the core use of `signals`."""


cdef class Finalized:
    cdef public bint is_ended
