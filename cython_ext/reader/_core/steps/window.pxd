# The tasks of an epoch that are in flight.
from libc.stdint cimport int64_t
from reader._core.collate.indices cimport IndexBatches
from reader._core.steps.handover cimport Task
from reader._core.steps.round_robin cimport RoundRobin
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.times_log cimport TimesLog


cdef class Window:
    cdef object __weakref__
    cdef public int64_t size
    cdef public int64_t leaving    # the task whose answer is being delivered
    cdef readonly int64_t dispatched
    cdef readonly dict tasks
    cdef readonly object feeder
    cdef TimesLog times            # the feeder's; None: it has none
    cdef Feeder rings              # the feeder, where it is one of a pool
    cdef readonly bint in_order
    cdef list passed               # sorted
    cdef object on_pass
    cdef object reword             # a function: what becomes of an exception of the source
    cdef object held               # deque of Task: no worker had room for them yet
    cdef object starts             # deque of (worker, kind, pickled EpochStart)
    cdef readonly bint is_drained  # the source has no more
    cdef public bint is_closed     # no batch can be taken any more
    cdef bint is_owing             # `source.drawn` is still to be called for the last task
    cdef readonly object error     # of the source, raised after the last batch; None: it raised nothing
    # where the batches of a built-in sampler are drawn without the source: see `draw_from`
    cdef IndexBatches batches
    cdef int64_t count             # of the dataset
    cdef RoundRobin turns
    cdef list odd                  # batches with an index out of range, for the source

    cpdef fill(self, source, int64_t taken=*)
    cdef Task draw_built_in(self)
    cdef bint send_to(self, Task task) except -1
    cdef int tell_drawn(self, source) except -1
    cdef int pass_by(self, Task task, source) except -1
    cdef int recover(self, int64_t seq, Task drawn, source) except -1
