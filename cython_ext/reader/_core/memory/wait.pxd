# The contract of wait.h towards Cython: atomic words, sleeping and waking, the clock.
# T stands for a 32 or 64 bit word; the suffix is the memory order.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "reader/_core/memory/wait.h" nogil:
    void rd_fence() noexcept
    uint8_t load_u8 "rd_load_acquire"(uint8_t*) noexcept
    uint32_t load_u32 "rd_load_acquire"(uint32_t*) noexcept
    uint64_t load_u64 "rd_load_acquire"(uint64_t*) noexcept
    void store_u32 "rd_store_seq_cst"(uint32_t*, uint32_t) noexcept
    void store_u64 "rd_store_release"(uint64_t*, uint64_t) noexcept
    uint32_t load_relaxed_u32 "rd_load_relaxed"(uint32_t*) noexcept
    int64_t load_relaxed_i64 "rd_load_relaxed"(int64_t*) noexcept
    uint64_t load_relaxed_u64 "rd_load_relaxed"(uint64_t*) noexcept
    void store_seq_cst_u64 "rd_store_seq_cst"(uint64_t*, uint64_t) noexcept
    int load_relaxed_int "rd_load_relaxed"(int*) noexcept
    void store_relaxed_int "rd_store_relaxed"(int*, int) noexcept
    void store_relaxed_u32 "rd_store_relaxed"(uint32_t*, uint32_t) noexcept
    void store_relaxed_u64 "rd_store_relaxed"(uint64_t*, uint64_t) noexcept
    void store_relaxed_i64 "rd_store_relaxed"(int64_t*, int64_t) noexcept
    uint32_t add_u32 "rd_fetch_add"(uint32_t*, uint32_t) noexcept
    uint32_t exchange_u32 "rd_exchange"(uint32_t*, uint32_t) noexcept
    uint64_t exchange_u64 "rd_exchange"(uint64_t*, uint64_t) noexcept
    uint64_t add_u64 "rd_fetch_add"(uint64_t*, uint64_t) noexcept
    uint64_t sub_u64 "rd_fetch_sub"(uint64_t*, uint64_t) noexcept
    int64_t rd_now_ns() noexcept
    void rd_kill(int) noexcept
    int rd_futex_wait(uint32_t*, uint32_t, int64_t) noexcept
    void rd_futex_wake(uint32_t*, int) noexcept

    ctypedef struct rd_wait_word:
        pass

    rd_wait_word rd_word_of(uint32_t*, uint32_t) noexcept
    int rd_futex_wait_any(const rd_wait_word*, uint32_t) noexcept
    int rd_bell_open() noexcept
    void rd_bell_ring(int) noexcept
    void rd_bell_clear(int) noexcept
    int rd_start_trainer_watch(int) noexcept
