# The contract of layout.h and release.h towards Cython, and the classes of the arena module.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from reader._core.memory.notes cimport rd_notes

cdef extern from "reader/_core/memory/release.h" nogil:
    enum:
        RD_ALIGN
        RD_MAGIC
        RD_FREE
        RD_RELEASED
        RD_WRITING
        RD_READY
        RD_HELD
        RD_KEPT
        RD_BATCH
        RD_ERROR
        RD_FULL
        RD_END
        RD_SKIPPED
        RD_HELLO
        RD_FAILED
        RD_STATE
        RD_LOST
        RD_OBJECT

    const uint64_t RD_ANY_SEQ

    ctypedef struct rd_slot:
        uint32_t state
        uint32_t generation
        uint64_t start, capacity, backed, next
        uint16_t heap
        uint8_t locks, is_hot
        uint32_t nfields
        uint64_t objects, objects_nbytes

    ctypedef struct rd_heap:
        uint64_t task_tail, task_head
        uint32_t task_waiting
        uint64_t result_tail, result_head, released, hot_bytes, hot_limit
        uint64_t nslots, chunk_at, chunk_end
        uint64_t at_seq
        int64_t at_row, at_since_ns
        uint32_t at_run, at_pid
        uint64_t batches_made, busy_ns, promised, expected
        uint64_t task_ring_nbytes, result_ring_count, slot_table_count, computed_ns, runnable_ns, stored_ns
        uint64_t bounded_ns, clock_error_ns

    ctypedef struct rd_header:
        uint64_t magic
        uint32_t nheaps, page_nbytes
        uint64_t reserved_nbytes, limit_nbytes, heaps, uncached_from, data_at, backed_bytes
        uint32_t advises_huge, stop, run, reader_asleep, consumer_waiting, consumer_word
        uint64_t wanted_seq
        uint32_t found_by, found_in

    ctypedef struct rd_ledger:
        int64_t arenas, leases
        uint32_t fork_generation

    ctypedef struct rd_arena:
        uint8_t* base
        uint64_t nbytes, page, limit_nbytes, data
        uint64_t task_ring_nbytes, result_ring_count, slot_table_count
        uint64_t areas, area_nbytes, noted_at
        uint32_t nheaps, is_worker, damaged, stopping
        int fd, bell, own_fd, own_bell
        int64_t refs, users
        uint32_t closed, fork_generation
        uint64_t trim, trimming
        int64_t trims
        rd_ledger* ledger

    ctypedef struct rd_record:
        uint64_t seq
        uint32_t run
        uint16_t kind, worker
        uint64_t slot, schema
        uint32_t generation, is_at_limit  # one word with two names: see layout.h
        uint32_t sum
        # three words with several names
        int64_t token, need_bytes
        rd_arena* arena
        void* held_object
        int64_t attached_nbytes, have_bytes
        uint16_t has_fields_within, place_sum
        uint32_t payload_sum
        int64_t limit_bytes

    ctypedef struct rd_lease:
        rd_arena* arena
        uint64_t slot, number
        int64_t refs
        rd_notes* notes

    rd_header* rd_head(const rd_arena*) noexcept
    rd_heap* rd_heap_at(const rd_arena*, uint32_t) noexcept
    rd_slot* rd_slot_at(const rd_arena*, uint64_t) noexcept
    uint64_t rd_slot_offset(const rd_arena*, const rd_slot*) noexcept
    uint64_t rd_bounded(const rd_arena*, uint64_t) noexcept
    uint64_t rd_promised_to_others(const rd_arena*, uint32_t, uint64_t) noexcept
    uint64_t rd_most_expected(const rd_arena*) noexcept
    void rd_trim_malloc() noexcept
    bint rd_has_busy_neighbour(const rd_arena*, uint32_t) noexcept
    rd_slot* rd_slot_table(const rd_arena*, uint32_t) noexcept
    int rd_lay_out(rd_arena*, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t) noexcept
    int rd_constants_hold(const rd_arena*) noexcept
    int rd_promises_hold(const rd_arena*) noexcept
    void rd_arena_damage(rd_arena*, uint32_t) noexcept
    int rd_heap_holds(const rd_arena*, uint32_t) noexcept
    int rd_slot_known(const rd_arena*, uint32_t, uint64_t) noexcept
    uint32_t rd_slot_heap(const rd_arena*, uint64_t) noexcept
    int rd_slot_read(const rd_arena*, const rd_slot*, rd_slot*) noexcept
    uint64_t rd_stack_next(rd_arena*, uint32_t, rd_slot*) noexcept
    uint64_t rd_sum(uint64_t, const void*, uint64_t) noexcept
    uint64_t rd_place_sum(const rd_slot*) noexcept
    uint64_t rd_table_nbytes(const uint8_t*, uint32_t, uint64_t) noexcept
    uint32_t rd_payload_sum(const void*, uint64_t, const void*, uint64_t) noexcept
    uint32_t rd_record_sum(const rd_record*) noexcept
    void rd_record_seal(rd_arena*, rd_record*) noexcept
    bint rd_is_foreign(const rd_arena*) noexcept
    void rd_slot_heat(rd_heap*, rd_slot*) noexcept
    void rd_slot_cool(rd_heap*, rd_slot*) noexcept
    void rd_slot_punch(rd_arena*, rd_slot*) noexcept
    int rd_slot_lock(rd_arena*, rd_slot*) noexcept
    void rd_slot_unlock(rd_arena*, rd_slot*) noexcept
    void rd_slot_release(rd_arena*, uint64_t) noexcept
    void rd_stop_workers(rd_arena*) noexcept
    int rd_arena_trim(rd_arena*, int) noexcept
    bint rd_arena_has_trim(const rd_arena*) noexcept
    void rd_arena_close(rd_arena*) noexcept
    void rd_arena_close_files(rd_arena*) noexcept
    void rd_arena_ref(rd_arena*) noexcept
    void rd_arena_unref(rd_arena*) noexcept
    rd_lease* rd_lease_take(rd_arena*, uint64_t) noexcept
    void rd_lease_ref(rd_lease*) noexcept
    void rd_lease_unref(rd_lease*) noexcept


cdef rd_ledger* process_ledger() noexcept
cdef uint64_t round_up(uint64_t value, uint64_t multiple) noexcept nogil


cdef class Arena:
    cdef rd_arena* c              # one counted reference; NULL once released
    cdef list others              # arenas in this process that share a budget with it, or None
    cdef uint64_t budget_nbytes   # of all of them together
    cdef uint32_t idle            # how many others will share it and have no arena yet

    cdef uint64_t limit(self)
    cdef int check_open(self) except -1
    cdef int close_damaged(self) except -1


cdef class Lease:
    cdef rd_lease* c              # one counted reference, released in __dealloc__

    @staticmethod
    cdef Lease take(rd_arena* arena, uint64_t slot)


cdef class PageLock:
    cdef rd_arena* c              # one counted reference; NULL once unlocked
    cdef rd_slot* slot
    cdef readonly size_t address  # of the slot's bytes in this process
    cdef readonly size_t nbytes   # the slot's capacity

    @staticmethod
    cdef PageLock take(Lease lease)


cdef class Hold:
    cdef rd_arena* c           # mapped while this object lives

    @staticmethod
    cdef Hold on(rd_arena* arena)
