# A worker that is the consumer itself.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from reader._core.collate.leaves cimport LeafMaker
from reader._core.collate.stack cimport BatchWriter
from reader._core.memory.arena cimport Arena, rd_record
from reader._core.memory.heap cimport Heap
from reader._core.memory.stage_times cimport rd_made, rd_timer
from reader._core.wire.times_log cimport TimesLog


cdef class UserBatch:
    cdef readonly uint64_t seq       # the number of its task
    cdef readonly object value       # the user's batch
    cdef readonly object attached    # the state that the worker attached to it, or None
    cdef readonly uint64_t number    # see LoDTensorArray


cdef class LocalMemory:
    cdef readonly Arena arena        # None: closed
    cdef Heap heap
    cdef BatchWriter writer
    cdef object side                 # SideTable: objects are handed over as they are

    cdef bint is_foreign(self) noexcept
    cdef int prepare(self) except -1
    cdef int release(self, list spare) except -1


cdef class LocalChannel:
    cdef object convert              # makes the user's batch of a written one; None: batches are packed
    cdef object make_memory          # makes a LocalMemory
    cdef list spare                  # LocalMemory that no iterator of the loader uses
    cdef object attach               # makes what is attached to each batch; None: nothing is
    cdef LocalMemory memory          # from the first stacked batch until the end
    cdef readonly bint is_closed
    cdef bint is_making              # `take` runs the user's code: close waits for its end
    # of the current task
    cdef readonly uint32_t run
    cdef readonly uint64_t epoch
    cdef readonly uint64_t seq
    cdef object answer               # the answer: a batch or a Failure; None: not yet
    cdef rd_made made                # its times, if it is not stacked
    cdef rd_timer timer              # see BatchWriter

    cdef bint is_here(self) noexcept
    cdef BatchWriter open_writer(self)
    cdef rd_record record(self) noexcept
    cdef int keep(self, rd_record* record) except -1
    cdef int release_memory(self) except -1


cdef class LocalFeeder:
    cdef LocalChannel channel
    cdef object step                 # does one task: (kind, keys)
    cdef object tasks                # deque of (seq, kind, payload); the first is being made
    cdef object current              # the answer that was taken and is not accepted yet
    cdef readonly uint64_t accepted, sent, sends
    cdef readonly TimesLog times     # of what was taken
    cdef bint is_slow, is_clocked   # the last batch took long; the thread's clock was read for this one
    cdef int64_t computed_before     # this thread's time when it began the current task; ns

    cdef void note_taken(self, uint64_t seq) noexcept

    cpdef object take(self, timeout=*)
