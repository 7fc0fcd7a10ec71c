# The last batches that were delivered: what the feeders use of `times_log`.
from libc.stdint cimport int64_t, uint64_t
from reader._core.batch.tensor_array cimport LoDTensorArray
from reader._core.memory.notes cimport rd_notes
from reader._core.memory.stage_times cimport rd_times


cdef class TimesLog:
    cdef rd_times* kept            # a ring of KEPT; NULL: nothing was added
    cdef readonly uint64_t count   # of all that were added
    cdef int64_t drawn_ns          # in the user's sampler
    cdef int64_t computed_ns       # see `computed_s`
    cdef int64_t[9] totals         # see `sums`

    cdef rd_notes* notes           # of delivered batches; NULL: no profile runs
    cdef int askers                # how many profiles ask for notes

    cdef int follow(self, LoDTensorArray batch) noexcept
    cdef int note_handed(self, uint64_t number) noexcept
    cdef void add(self, const rd_times* times) noexcept
