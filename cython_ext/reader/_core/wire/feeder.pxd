# The trainer's side of the rings: dispatch and delivery; results.pxd has the state that both share.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from reader._core.memory.arena cimport Arena, rd_record
from reader._core.memory.heap cimport Heap
from reader._core.wire.results cimport feed_state
from reader._core.wire.ring cimport rd_task
from reader._core.wire.times_log cimport TimesLog

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_join(pthread_t, void**) noexcept

cdef class Feeder:
    cdef feed_state s
    cdef pthread_t thread
    cdef bint running
    cdef readonly Arena arena
    cdef Heap heap                 # the trainer's own, for long tasks
    cdef object side               # SideTable when workers are threads
    cdef object available_bytes    # hook of the trainer's heap: see Heap
    cdef list damaged              # damaged (Arena, its schemas) of which records are still queued
    cdef readonly uint64_t accepted    # items of this run that accept() has confirmed
    cdef readonly uint64_t sent        # one more than the highest number dispatched in this run
    cdef readonly uint64_t sends       # tasks dispatched in all runs, those sent again too
    cdef rd_record opening         # left the queue and is not opened yet; kind 0 = none
    cdef readonly TimesLog times   # of what was taken
    cdef int64_t asked_ns          # when the consumer asked for the next item; 0: it has not
    cdef dict failed               # by worker: the Failure of one that could not start and was not replaced
    cdef dict unreported           # those of `failed` that `failed_worker` has not returned in this run
    cdef object current            # what take() returned and accept() has not confirmed
    cdef dict schemas              # offset of a KEPT slot -> Schema
    cdef uint32_t fork_generation
    # Futex word. 1: the consumer's wait is over, and it waits for the GIL; 2: another thread has released the
    # GIL for it. Set without the GIL by the consumer, which alone clears it, with it.
    cdef uint32_t is_back

    cdef void flush(self) noexcept
    cdef bint dispatch_task(self, rd_task* task, const char* data, int worker) except -1
    cdef int report_damage(self, rd_record* record, error) except -1
    cdef object open_taken(self)
    cdef void note_taken(self, uint64_t seq) noexcept
    cdef int give_way(self) except -1
    cdef int check_process(self) except -1
    cdef object open_record(self, rd_record* record)
    cdef bint is_here(self) noexcept
    cdef object ready(self)
    cpdef bint dispatch(self, uint64_t seq, int kind, bytes payload, int worker=*) except -1
    cpdef accept(self)
