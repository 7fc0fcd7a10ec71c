# What draws the tasks of an epoch and sends them to workers.
from libc.stdint cimport int64_t
from reader._core.collate.indices cimport IndexBatches
from reader._core.epoch.round_robin cimport RoundRobin
from reader._core.epoch.tasks cimport Task, TaskTable
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.times_log cimport TimesLog


cdef class Dispatcher:
    cdef readonly TaskTable table
    cdef readonly object feeder
    cdef Feeder rings              # the feeder, where it is one of a pool
    cdef TimesLog times            # the feeder's; None: it has none
    cdef object source
    cdef object reword
    cdef object starts             # deque of (worker, kind, pickled EpochStart)
    # where the batches of a built-in sampler are drawn without the source
    cdef IndexBatches batches
    cdef int64_t count             # of the dataset's samples
    cdef RoundRobin round_robin

    cpdef fill(self)
    cdef Task draw(self)
    cdef Task draw_built_in(self)
    cdef bint send(self, Task task) except -1
    cdef int accept(self, Task task) except -1
    cpdef int hand(self, Task task) except -1
