/* Batches that several workers make: the maker opens its batch, others take rows of it one by one.
 *
 * The maker has the slot, and alone publishes it.  Another worker enters before it reads anything of
 * the batch, and leaves when it writes no more; the maker closes the batch and waits until all have
 * left.  Each side writes its own word, passes a barrier, and reads the other's word: when one worker
 * enters while the maker closes, at least one of the two sees the other.  The maker makes each row that
 * nobody marked as made.  May include release.h.  Nothing here owns state: it is in the arena.
 */
#ifndef READER_CORE_SHARE_H
#define READER_CORE_SHARE_H

#include "reader/_core/memory/release.h"

#define RD_SHARE_OPEN ((uint64_t)1 << 63)
#define RD_SHARE_LOOK_NS 50000000 /* how often a maker looks whether a worker in its batch has died */

typedef struct rd_share { /* of a heap, in its page: the batch that its worker makes */
    uint64_t next; /* atomic: RD_SHARE_OPEN | the next row to take; else nobody may enter */
    uint32_t is_waited;  /* futex word: 1 while the maker waits until all have left */
    uint32_t has_drawn;  /* atomic: 1: a guest drew from its global random state for a row */
    uint8_t pad0[48];
    /* of the open batch; the maker writes them while nobody is in it.  Atomic: seq, epoch, run, count */
    uint64_t seq, epoch;
    uint64_t form;  /* digest of what a row looks like */
    uint64_t slot;  /* offset of the slot record; the field table is at the slot's start */
    uint64_t keys;  /* offset from the slot's start: `count` int64, then `count` bytes, 1 = made */
    uint32_t run, count, nfields;
    uint8_t pad1[12];
    /* of the heap's worker among the others */
    uint32_t entered; /* atomic: 1 + the heap whose batch it makes rows of; 0 = none */
    uint32_t may_join; /* futex word: 1 while it makes its first batch of a run, which can wait; 2
                        * while it sleeps until another is opened */
} rd_share;

#ifdef __cplusplus
static_assert(sizeof(rd_heap) <= 1024 && sizeof(rd_header) <= 1024 && sizeof(rd_share) <= 1024,
              "a share lies behind its heap");
#endif

static inline rd_share *rd_share_at(const rd_arena *a, uint32_t index) {
    return (rd_share *)((uint8_t *)rd_heap_at(a, index) + 1024);
}

/* How many batches are open, as a hint: a maker that dies leaves it too high. */
static inline uint32_t *rd_open_shares(const rd_arena *a) { return (uint32_t *)(a->base + 1024); }

/* Whether opening a batch pays: another worker is idle, and the trainer waits for the batch, or will soon
 * because it is the worker's first of a run. */
static inline int rd_share_pays(const rd_arena *a, uint32_t index, uint64_t seq, int is_first) {
    const rd_header *h = rd_head(a);
    if (rd_load_relaxed(&h->wanted_seq) != seq) return 0;
    if (!is_first && !rd_load_relaxed(&h->consumer_waiting)) return 0;
    for (uint32_t i = 0; i + 1 < a->nheaps; i++)
        if (i != index && (rd_load_relaxed(&rd_heap_at(a, i)->task_waiting) ||
                           rd_load_relaxed(&rd_share_at(a, i)->may_join)))
            return 1;
    return 0;
}

/* Let others make rows of the batch, from `row` on (maker), and wake those that wait for a task. */
static inline void rd_share_open(rd_arena *a, uint32_t index, uint64_t row) {
    rd_share *share = rd_share_at(a, index);
    rd_store_relaxed(&share->has_drawn, 0u);
    rd_fetch_add(rd_open_shares(a), 1u);
    rd_store_seq_cst(&share->next, RD_SHARE_OPEN | row);
    rd_fence(); /* pairs with those in rd_task_wait and rd_share_await_open */
    for (uint32_t i = 0; i + 1 < a->nheaps; i++) {
        rd_heap *heap = rd_heap_at(a, i);
        if (i != index && rd_load_relaxed(&heap->task_waiting) &&
            rd_exchange(&heap->task_waiting, 0u))
            rd_futex_wake(&heap->task_waiting, 1);
        uint32_t sleeps = 2, *word = &rd_share_at(a, i)->may_join;
        if (rd_load_relaxed(word) == sleeps &&
            __atomic_compare_exchange_n(word, &sleeps, 1u, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            rd_futex_wake(word, 1);
    }
}

/* Let nobody take another row (maker). */
static inline void rd_share_close(rd_arena *a, uint32_t index) {
    if (rd_exchange(&rd_share_at(a, index)->next, (uint64_t)0) & RD_SHARE_OPEN)
        rd_fetch_sub(rd_open_shares(a), 1u);
    rd_fence(); /* pairs with the one in rd_share_enter */
}

/* Take a row to make, the maker too.  -1: there is none. */
static inline int64_t rd_share_take(rd_share *share, uint32_t count) {
    uint64_t next = rd_load_relaxed(&share->next);
    if (!(next & RD_SHARE_OPEN) || (next & ~RD_SHARE_OPEN) >= count) return -1;
    next = rd_fetch_add(&share->next, (uint64_t)1);
    if (!(next & RD_SHARE_OPEN) || (next & ~RD_SHARE_OPEN) >= count) return -1;
    return (int64_t)(next & ~RD_SHARE_OPEN);
}

/* A worker that looks for rows to make. */
typedef struct rd_guest {
    uint32_t index;    /* of its heap */
    uint32_t run;      /* its last task's */
    uint64_t epoch;
    uint64_t from_seq; /* batches before were declined */
} rd_guest;

/* The heap with the first open batch of which the guest can make rows, or nheaps.  `before`: the number of
 * the guest's own batch, which it leaves only for the batch that is delivered next. */
static inline uint32_t rd_share_find(const rd_arena *a, const rd_guest *guest, uint64_t before) {
    const rd_header *h = rd_head(a);
    uint32_t found = a->nheaps;
    uint64_t first = before;
    if (rd_load_acquire(&h->run) != guest->run || rd_load_relaxed(&h->stop)) return found;
    if (before != RD_ANY_SEQ && rd_load_relaxed(&h->wanted_seq) >= before) return found;
    for (uint32_t i = 0; i + 1 < a->nheaps; i++) {
        const rd_share *share = rd_share_at(a, i);
        uint64_t next = rd_load_acquire(&share->next), seq = rd_load_relaxed(&share->seq);
        if (i == guest->index || !(next & RD_SHARE_OPEN) || seq >= first || seq < guest->from_seq ||
            rd_load_relaxed(&share->run) != guest->run ||
            rd_load_relaxed(&share->epoch) != guest->epoch ||
            (next & ~RD_SHARE_OPEN) >= rd_load_relaxed(&share->count))
            continue;
        if (before != RD_ANY_SEQ && rd_load_relaxed(&h->wanted_seq) != seq) continue;
        first = seq;
        found = i;
    }
    return found;
}

/* Sleep until a batch before number `before` is opened of which the guest can make rows, or until the
 * deadline.  A signal ends the sleep, too. */
static inline void rd_share_await_open(rd_arena *a, const rd_guest *guest, uint64_t before,
                                       int64_t deadline_ns) {
    uint32_t *word = &rd_share_at(a, guest->index)->may_join;
    rd_store_seq_cst(word, 2u);
    rd_fence(); /* pairs with the one in rd_share_open */
    if (rd_share_find(a, guest, before) == a->nheaps) rd_futex_wait(word, 2u, deadline_ns);
    rd_store_relaxed(word, 1u);
}

static inline void rd_share_leave(rd_arena *a, uint32_t index) {
    uint32_t *entered = &rd_share_at(a, index)->entered;
    uint32_t heap = rd_exchange(entered, 0u);
    rd_fence(); /* pairs with the one in rd_share_await */
    if (heap == 0 || heap >= a->nheaps) return;
    rd_share *share = rd_share_at(a, heap - 1);
    if (rd_load_relaxed(&share->is_waited) && rd_exchange(&share->is_waited, 0u))
        rd_futex_wake(&share->is_waited, 1);
}

/* Enter the batch of a heap, and copy its description.  0: it is closed already. */
static inline int rd_share_enter(rd_arena *a, uint32_t index, uint32_t heap, rd_share *copy) {
    rd_share *share = rd_share_at(a, heap);
    rd_store_seq_cst(&rd_share_at(a, index)->entered, heap + 1);
    rd_fence(); /* pairs with the one in rd_share_close */
    if (rd_load_acquire(&share->next) & RD_SHARE_OPEN) {
        memcpy(copy, share, sizeof *copy);
        __asm__ volatile("" : "+m"(*copy)); /* what is checked is what is used: no second read */
        return 1;
    }
    rd_share_leave(a, index);
    return 0;
}

/* Whether a worker is in the batch of a heap. A worker whose process is gone does not count. Nor does one
 * that sleeps until there is a task: its word can only be damaged. */
static inline int rd_share_has_guests(rd_arena *a, uint32_t index) {
    for (uint32_t i = 0; i + 1 < a->nheaps; i++) {
        uint32_t heap = index + 1, pid = rd_load_relaxed(&rd_heap_at(a, i)->at_pid);
        uint32_t *entered = &rd_share_at(a, i)->entered;
        if (i == index || rd_load_acquire(entered) != heap) continue;
        if (!rd_load_acquire(&rd_heap_at(a, i)->task_waiting) &&
            (pid == 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH))
            return 1;
        __atomic_compare_exchange_n(entered, &heap, 0u, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    return 0;
}

/* Wait until nobody is in the closed batch of a heap; called by the heap's worker or its replacement.
 * 0, or EINTR. Returns at once when the pool stops: nobody uses the slot again. */
static inline int rd_share_await(rd_arena *a, uint32_t index) {
    uint32_t *word = &rd_share_at(a, index)->is_waited;
    for (;;) {
        int rc = 0;
        rd_store_seq_cst(word, 1u);
        rd_fence(); /* pairs with the one in rd_share_leave */
        int is_empty = !rd_share_has_guests(a, index) || rd_load_acquire(&rd_head(a)->stop);
        if (!is_empty) rc = rd_futex_wait(word, 1u, rd_now_ns() + RD_SHARE_LOOK_NS);
        rd_store_relaxed(word, 0u);
        if (is_empty) return 0;
        if (rc == EINTR) return EINTR;
    }
}

#endif
