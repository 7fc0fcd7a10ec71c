# The tasks of an epoch, each once, in one table.
from libc.stdint cimport int64_t
from reader._core.epoch.round_robin cimport RoundRobin

cpdef enum TaskState:
    GONE
    DRAWN
    HELD
    SENT
    ARRIVED
    ASIDE
    LANDED
    HANDED
    EARLY

cdef enum:
    STATES = 9


cdef class Task:
    cdef readonly int kind
    cdef readonly object payload
    cdef readonly int worker
    cdef readonly object mark
    cdef readonly int64_t number
    cdef readonly int64_t first_number
    cdef readonly int64_t step
    cdef readonly TaskState state
    cdef readonly object value
    cdef readonly object snapshot
    cdef readonly object drawn
    cdef readonly bint is_error
    cdef readonly bint is_end
    cdef readonly int part
    cdef readonly int parts
    cdef readonly unsigned long long log_number
    cdef readonly int tries
    cdef readonly object deaths
    cdef readonly object hung
    cdef readonly object start_failure


cdef class TaskTable:
    cdef object __weakref__
    cdef dict tasks                # by number
    cdef int64_t[STATES] counts    # of the tasks in each state
    cdef readonly int64_t size
    cdef readonly int64_t drawn
    cdef readonly int64_t delivered
    cdef readonly object mark
    cdef readonly object last_mark
    cdef readonly int last_worker
    cdef readonly bint in_order
    cdef readonly bint is_stream
    cdef readonly bint is_drained
    cdef readonly bint is_closed
    cdef readonly object error
    cdef set passed                # numbers that were delivered in an earlier run, and are not drawn yet
    cdef set answered              # workers of which an answer was accepted
    cdef Task again                # the one that is asked for once more, before all others
    cdef readonly object worker_cursors
    cdef readonly bint reports_first
    cdef public int64_t steps      # what the iterator gave: steps of batches, and exceptions in their place
    cdef readonly dict marks       # by position; None: only the last one is kept
    cdef readonly bint has_news    # what was handed over is to be counted now: a lot, or one with a snapshot

    cdef int move(self, Task task, TaskState to) except -1
    cdef int64_t have(self, TaskState state) noexcept
    cdef list in_states(self, int states)
    cpdef Task draw(self, int kind, object payload, int worker=*, bint is_ready=*)
    cpdef Task arrive(self, int64_t number)
    cdef int hand(self, Task task) except -1
    cdef int close_gap(self) except -1
    cdef bint has_space(self) noexcept
    cdef bint is_plain(self) noexcept
    cdef bint awaits(self) noexcept
