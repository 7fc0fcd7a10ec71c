# The contract of share.h towards Cython, and a worker's part in batches that several workers make.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp.vector cimport vector
from reader._core.collate.plan cimport Plan
from reader._core.memory.arena cimport rd_arena, rd_record, rd_slot
from reader._core.memory.heap cimport Heap

cdef extern from "reader/_core/collate/share.h" nogil:
    ctypedef struct rd_share:
        uint64_t next
        uint32_t is_waited, has_drawn
        uint64_t seq, epoch, form, slot, keys
        uint32_t run, count, nfields, entered, may_join

    ctypedef struct rd_guest:
        uint32_t index, run
        uint64_t epoch, from_seq

    rd_share* rd_share_at(const rd_arena*, uint32_t) noexcept
    uint32_t* rd_open_shares(const rd_arena*) noexcept
    bint rd_share_pays(const rd_arena*, uint32_t, uint64_t, bint) noexcept
    void rd_share_open(rd_arena*, uint32_t, uint64_t) noexcept
    void rd_share_close(rd_arena*, uint32_t) noexcept
    int64_t rd_share_take(rd_share*, uint32_t) noexcept
    uint32_t rd_share_find(const rd_arena*, const rd_guest*, uint64_t) noexcept
    bint rd_share_enter(rd_arena*, uint32_t, uint32_t, rd_share*) noexcept
    void rd_share_await_open(rd_arena*, const rd_guest*, uint64_t, int64_t) noexcept
    void rd_share_leave(rd_arena*, uint32_t) noexcept
    int rd_share_await(rd_arena*, uint32_t) noexcept

cdef enum:
    AGAIN = -1   # next_row() returns it if this worker must make the whole batch again, alone


cdef class Sharing:
    cdef Heap heap
    cdef object source           # the dataset
    cdef bint is_strict          # of the plans
    cdef object watch            # reports draws from the global random state; None: they do not matter
    cdef readonly bint is_on     # whether batches may be shared, as far as is known
    cdef rd_guest guest          # which batches it can make rows of
    cdef rd_share* c             # what it shows the others
    cdef bint is_first           # it makes its first batch of a run
    # of its own batch, as the maker:
    cdef int64_t began_ns        # when its first row was begun
    cdef int64_t each_ns         # what a row takes, as far as is known
    cdef bint was_fresh          # whether each_ns was measured in memory that was new
    cdef int64_t copy_ns         # how long the copy of a row may take
    cdef Py_ssize_t looks_at     # the row before which to ask whether to open it
    cdef bint is_shared          # it was opened: others may have made rows
    cdef bint is_open            # others may still take rows
    cdef bint has_drawn          # a row depends on random numbers that another worker drew
    cdef uint32_t count
    cdef vector[uint8_t] mine    # by row: 1 = made by this worker
    cdef const uint8_t* theirs   # the same of the others, in the slot
    cdef vector[Py_ssize_t] left # rows that nobody has made, in order, and how many of them are done
    # of the last batch: the row for which it waited until others had made it, -1: none; and how long
    cdef Py_ssize_t waited_row
    cdef int64_t waited_ns
    cdef size_t left_at
    # of another's batch:
    cdef Plan plan               # the form of its rows
    cdef uint64_t form           # digest of that

    cdef void note_task(self, uint32_t run, uint64_t epoch) noexcept nogil
    cdef void note_answer(self) noexcept nogil
    cdef uint64_t extra_nbytes(self, Py_ssize_t count) noexcept nogil
    cdef void begin(self) noexcept nogil
    cdef bint is_due(self, Py_ssize_t row, Py_ssize_t count, Plan plan, uint64_t seq) noexcept
    cdef bint is_slow(self, Py_ssize_t rows) noexcept nogil
    cdef int help_first(self, Py_ssize_t count, uint64_t seq) except -1
    cdef bint open(self, rd_slot* slot, uint64_t at, Plan plan, list keys, Py_ssize_t row,
                   rd_record* record) except -1
    cdef int close(self) except -1
    cdef void note_left(self) noexcept
    cdef Py_ssize_t next_row(self, Py_ssize_t row) except -2
    cdef Py_ssize_t next_left(self) noexcept
    cdef Py_ssize_t row_before(self, Py_ssize_t row) except -2
    cdef bint help(self, uint64_t before) except -1
    cdef int make_rows(self, const rd_share* share, uint32_t heap) except -1
    cdef bint suits(self, const rd_share* share, object sample, char* start) except -1
