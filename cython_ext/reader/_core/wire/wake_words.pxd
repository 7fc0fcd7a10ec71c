# The words that a worker of several loaders sleeps on.
from libc.stdint cimport uint32_t


cdef class WakeWords:
    cdef uint32_t* words          # mapped, shared with the trainer
    cdef uint32_t count

    cdef uint32_t* word(self, uint32_t worker) except NULL
