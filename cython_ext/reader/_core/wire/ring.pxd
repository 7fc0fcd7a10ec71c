# The contract of ring.h towards Cython: tasks go to workers, and results come from them.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from reader._core.collate.share cimport rd_guest
from reader._core.memory.arena cimport rd_arena, rd_header, rd_heap, rd_record

cdef extern from "reader/_core/wire/ring.h" nogil:
    enum:
        RD_TASK_INLINE

    ctypedef struct rd_task:
        uint64_t seq, epoch
        uint32_t run, kind
        uint64_t spill, nbytes
        uint32_t skip

    int rd_result_push(rd_arena*, uint32_t, const rd_record*) noexcept
    int rd_result_pop(rd_arena*, uint32_t, uint64_t*, rd_record*) noexcept
    int rd_result_waiting(const rd_arena*, uint32_t, const uint64_t*) noexcept
    int rd_wake_consumer(rd_header*) noexcept
    void rd_result_tell(rd_arena*, const rd_record*, int) noexcept
    int rd_task_push(rd_arena*, uint32_t, uint64_t*, rd_task*, const void*) noexcept
    int rd_task_peek(rd_arena*, uint32_t, rd_task*, const uint8_t**) noexcept
    void rd_task_pop(rd_heap*, const rd_task*) noexcept
    int rd_task_look(const rd_arena*, const rd_heap*, const rd_guest*) noexcept
    void rd_task_await(rd_heap*) noexcept
    void rd_task_rest(rd_heap*) noexcept
    int rd_task_wait(rd_arena*, rd_heap*, const rd_guest*) noexcept
