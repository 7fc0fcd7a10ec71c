# The steps of an epoch whose batches the thread that iterates makes.
from libc.stdint cimport int64_t, uint64_t
from reader._core.steps.handover cimport Handover, Made, Task, WaitStats
from reader._core.wire.local_channel cimport LocalFeeder


cdef class InlineSteps(Handover):
    cdef readonly list keys         # the batch of keys that is not delivered yet, or nothing
    cdef readonly list torn         # not empty: a signal's handler raised in the sampler
    cdef readonly Task task         # made of it, once the feeder has it; None: not yet
    cdef readonly object error      # what the sampler raised; None: nothing
    cdef readonly bint is_first     # nothing was drawn yet
    cdef readonly bint is_drained   # the sampler has no more
    cdef readonly bint is_slow      # the batch in hand took more than `slow_s`
    cdef public bint is_usual       # usual steps are taken here; else `prepare` makes all
    cdef public double slow_s
    cdef LocalFeeder local
    cdef readonly object batches    # the order's iterator
    cdef object sized               # the dataset, where indices are compared with its length; None: not
    cdef bint takes_any             # lists of keys are passed on as they are
    cdef public object convert      # makes the user's batch of a LoDTensorArray
    cdef object count_handed        # counts what was handed over
    cdef WaitStats waits            # the times of making a batch
    cdef double waited_s            # seconds waited here for what `prepare` then hands over
    cdef int64_t length             # of the dataset, when it was last asked; -1: never
    cdef uint64_t seq               # of the next task

    cdef bint is_made(self) except -1
    cdef bint begin_task(self) except -1
    cdef list usual_keys(self)
    cdef bint is_within(self, list keys) except -1
    cdef int begin_order(self) except -1
    cdef void leave_task(self) noexcept
    cdef int note_handed(self, Made made) noexcept
