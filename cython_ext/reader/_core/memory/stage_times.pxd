# When a batch was at each stage: what Cython uses of stage_times.h.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from reader._core.memory.arena cimport rd_arena

cdef extern from "reader/_core/memory/stage_times.h" nogil:
    ctypedef struct rd_made:
        uint32_t rows, timed, run
        int64_t begun_ns, sent_ns, fetch_ns, slowest_ns, slowest_key
        int32_t slowest_row

    ctypedef struct rd_timer:
        uint32_t untimed
        int64_t glance_ns

    ctypedef struct rd_landed:
        int64_t came_ns, landed_ns, others_ns

    ctypedef struct rd_times:
        uint64_t seq, epoch
        int64_t dispatched_ns, begun_ns, sent_ns, arrived_ns, ordered_ns, asked_ns, delivered_ns
        int64_t came_ns, landed_ns, others_ns, fetch_ns, slowest_ns, slowest_key
        int32_t slowest_row, worker
        uint32_t rows, run

    ctypedef struct rd_noted:
        rd_made made
        rd_landed landed

    rd_noted* rd_noted_at(const rd_arena*, uint32_t index, uint64_t result) noexcept
    void rd_made_begin(rd_made*, int64_t now) noexcept
    bint rd_made_note(rd_made*, int64_t row, int64_t ns) noexcept
    int64_t rd_coarse_ns() noexcept
    int64_t rd_sample_begins(const rd_timer*, int64_t row) noexcept
    bint rd_sample_ends(rd_made*, rd_timer*, int64_t row, int64_t begun_ns) noexcept
    void rd_made_fetched(rd_made*, uint32_t rows, int64_t now) noexcept
    uint32_t rd_made_end(rd_made*, int64_t now) noexcept
    void rd_made_show(rd_made*, const rd_arena*, uint32_t index, uint64_t seq, uint32_t run) noexcept
    void rd_times_take(rd_times*, const rd_arena*, uint32_t index, uint32_t run, uint64_t result) noexcept
