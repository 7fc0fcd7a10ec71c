# Handing batches over: what other modules of the core use of `handover`.
from reader._core.interpreter.signals cimport Finalized


cdef class Task:
    cdef public int kind
    cdef public object payload
    cdef public int worker
    cdef public object mark
    cdef public object seq
    cdef public object snapshot
    cdef public object drawn
    cdef public bint is_error
    cdef public bint is_end
    cdef public int part
    cdef public int parts


cdef class WaitStats:
    cdef public long long batches
    cdef public double wait_s
    cdef public double last_wait_s
    cdef bint is_waiting
    cdef double since              # when the last wait began


cdef class Made:
    cdef public object value
    cdef readonly Task task
    cdef readonly bint is_batch
    cdef readonly bint is_error
    cdef readonly object step
    cdef readonly list parts
    cdef bint is_accepted
    cdef public unsigned long long number  # of its batch, for the notes of a log; see LoDTensorArray
    cdef list behind               # tasks that are counted right behind this one; None: none


cdef class Handover(Finalized):
    cdef public Made made
    cdef public list ahead
    cdef public list handed
    cdef public object feeder
    cdef public dict tasks
    cdef public WaitStats stats
    cdef public Handover source
    cdef public object is_watched
    cdef object lock
    cdef object enter              # acquires it
    cdef object leave              # releases it
    cdef int steps                 # steps in progress: a signal's handler may call anything within one

    cdef bint due(self) except -1
    cdef int make(self) except -1
    cdef int pass_over(self) except -1
    cdef Made pass_on(self)
    cdef int end_task(self, Made made) except -1
    cdef int accept(self, Made made) except -1
    cdef int count(self, Made made, list tasks) except -1
    cdef int note_handed(self, Made made) noexcept
