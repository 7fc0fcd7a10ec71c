# The step that most batches of an epoch take.
from libc.stdint cimport uint64_t
from reader._core.steps.handover cimport Handover
from reader._core.steps.window cimport Window
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.local_channel cimport LocalFeeder


cdef class QuickSteps(Handover):
    cdef public bint is_quick
    cdef public bint looks_for_end
    cdef public Window window
    cdef public object convert
    cdef public object settle
    cdef double waited_s           # for what `prepare` is to hand over

    cdef bint is_made(self) except -1
    cdef bint take_step(self, Window window, Feeder feeder) except -1
    cdef bint make_step(self, Window window, LocalFeeder feeder) except -1
    cdef int land(self, uint64_t seq, object attached, object item, bint is_users) except -1
