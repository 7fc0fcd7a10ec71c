# LoDTensorArray: a batch, restored from its slot.
from libc.stdint cimport uint64_t
from reader._core.batch.tensor cimport Schema
from reader._core.memory.arena cimport Lease, rd_record
from reader._core.memory.notes cimport rd_notes


cdef class LoDTensorArray:
    cdef readonly Schema schema    # None: a plain list of tensors
    cdef Lease lease               # None when made in Python
    cdef bytes table               # a copy of the slot's field table; None when made in Python
    cdef char* bytes_at            # start of the slot
    cdef list tensors              # LoDTensor by field, made on demand from the slot
    cdef readonly list objects     # leaves that are no arrays
    cdef bytes packed              # the objects instead, pickled around fields; mostly None
    cdef public list imported      # what a framework made of the fields; it may convert them only once
    cdef readonly object attached  # what the worker attached to the batch, or None
    cdef readonly object seq       # batch number, None when made in Python
    cdef readonly object epoch
    cdef readonly uint64_t number  # one more than its place in the log of times; 0: no profile runs

    @staticmethod
    cdef LoDTensorArray from_slot(Lease lease, Schema schema, list objects, bytes packed,
                                  object attached, const rd_record* record, uint64_t epoch,
                                  bytes table, uint64_t start)
    cdef list make_arrays(self)
    cdef list make_tensors(self)
    cdef list list_tensors(self)
    cdef int follow(self, rd_notes* notes, uint64_t number) noexcept
    cpdef object place_fields(self, list fields)
