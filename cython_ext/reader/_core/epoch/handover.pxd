# Handing batches over: what other modules of the core use of `handover`.
from reader._core.epoch.tasks cimport Task
from reader._core.interpreter.signals cimport Finalized


cdef class WaitStats:
    cdef public long long batches
    cdef public double wait_s
    cdef public double last_wait_s
    cdef bint is_waiting
    cdef double since              # when the last wait began


cdef class Made:
    cdef public object value
    cdef readonly Task task
    cdef readonly list tasks
    cdef readonly bint is_batch
    cdef readonly bint is_error
    cdef readonly object step


cdef class Handover(Finalized):
    cdef public Made made
    cdef public WaitStats stats
    cdef public Handover source
    cdef public object is_watched
    cdef object lock
    cdef object enter              # acquires it
    cdef object leave              # releases it
    cdef int steps                 # steps in progress: a signal's handler may call anything within one

    cdef int make(self) except -1
    cdef int pass_over(self) except -1
    cdef Made pass_on(self)
