# The iterator over an epoch.
from reader._core.epoch.dispatcher cimport Dispatcher
from reader._core.epoch.handover cimport Handover, Made
from reader._core.epoch.tasks cimport Task, TaskTable
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.local_channel cimport LocalFeeder


cdef class EpochIterator(Handover):
    cdef object __weakref__
    cdef dict __dict__
    cdef readonly object epoch
    cdef TaskTable table
    cdef readonly Dispatcher dispatcher
    cdef Feeder rings              # the feeder, where it is one of a pool
    cdef LocalFeeder local         # the feeder, where there are no workers
    cdef public object convert
    cdef bint is_usual
    cdef bint awaits_states
    cdef bint begins_next
    cdef double slow_s
    cdef double waited_s           # seconds waited in a step that was left to the epoch

    cdef bint try_usual_step(self) except -1
    cdef bint take_step(self) except -1
    cdef bint make_step(self) except -1
    cdef int set_made(self, Task task, object item) except -1
    cdef int hand(self, Task task, bint is_batch) except -1
