# Makes the Feeder's reports of workers.
from libc.stdint cimport uint32_t, uint64_t
from reader._core.wire.results cimport feed_state

cdef object progress_of(feed_state* s, uint32_t worker, uint64_t sent)
cdef object counts_of(feed_state* s, uint32_t worker)
