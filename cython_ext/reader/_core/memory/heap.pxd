# The heap of one owner: see heap.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.vector cimport vector
from reader._core.memory.arena cimport Arena, rd_arena, rd_heap, rd_slot

cdef str heap_words(rd_arena* arena, uint32_t index)


cdef class Heap:
    cdef Arena arena              # keeps the mapping alive
    cdef rd_heap* c               # this owner's page in the arena
    cdef uint32_t index
    cdef uint32_t keep_slots      # how many slots of the largest recent size stay hot
    cdef object available_bytes   # hook: () -> bytes of memory the machine can still give
    # what the heap's `promised` consists of, in bytes:
    cdef uint64_t granted         # may be owned before the next call of the hook
    cdef uint64_t pending         # owned by slots that are WRITING, and not written yet
    cdef uint64_t reserved        # for the samples of the current task, outside the arena
    cdef uint64_t unasked         # of its first bytes, taken without a call of the hook: what is left
    cdef bint is_tight            # whether the hook returned little compared with the workers' needs
    cdef int64_t left             # bytes that were left when a promise was last refused
    cdef uint64_t expected        # bytes of samples outside the arena that the last batch took
    # the slots behind `pending`, and how many bytes of each; few at a time
    cdef vector[uint64_t] fresh_slots, fresh_nbytes
    cdef uint64_t recent_largest, recent_count
    cdef vector[vector[uint64_t]] hot   # by size class: offsets of FREE slot records with memory
    cdef vector[vector[uint64_t]] cold  # the same, without memory

    cdef rd_slot* alloc(self, uint64_t nbytes) except NULL
    cdef bint goes_past_cache(self, uint64_t nbytes) noexcept nogil
    cdef void put_free(self, rd_slot* slot) noexcept nogil
    cdef int check(self, rd_slot* slot, uint64_t nbytes) except -1
    cdef int refuse_damaged(self) except -1
    cdef int refuse_size(self, uint64_t nbytes) except -1
    cdef void collect(self) noexcept nogil
    cdef rd_slot* take_free(self, size_t size_class) noexcept nogil
    cdef rd_slot* carve(self, uint64_t capacity) except? NULL
    cdef int back(self, rd_slot* slot, uint64_t nbytes) except -1
    cdef void publish(self) noexcept nogil
    cdef void expect(self, uint64_t nbytes) noexcept nogil
    cdef bint is_fresh(self, rd_slot* slot) noexcept nogil
    cdef uint64_t take_fresh(self, rd_slot* slot) noexcept nogil
    cdef bint promise(self, uint64_t need) except -1
    cdef int64_t reserve_samples(self, bint is_firm) except -1
    cdef void release_samples(self) noexcept nogil
    cdef void release_grant(self) noexcept nogil
    cdef void note_written(self, rd_slot* slot, uint64_t used) noexcept nogil
    cdef int trim_own(self) noexcept nogil
    cdef void release_spare(self) noexcept nogil
    cdef bint knows(self, rd_slot* slot) noexcept nogil
    cdef void drop(self, rd_slot* slot) noexcept nogil
