# The step that most batches of an epoch take.
from reader._core.steps.handover cimport Handover, Made, Task
from reader._core.steps.window cimport Window
from reader._core.wire.feeder cimport Feeder
from reader._core.wire.local_channel cimport LocalFeeder


cdef class QuickSteps(Handover):
    cdef public bint is_quick
    cdef readonly Window window
    cdef object schedule
    cdef public object convert
    cdef bint looks_for_end
    cdef object count_handed       # counts what was handed over
    cdef public double slow_s
    cdef double waited_s           # seconds waited here for what `prepare` then hands over

    cdef bint is_made(self) except -1
    cdef bint take_step(self, Window window, Feeder feeder) except -1
    cdef bint make_step(self, Window window, LocalFeeder feeder) except -1
    cdef int note_handed(self, Made made) noexcept
    cdef int land(self, Task task, object item, object step) except -1
