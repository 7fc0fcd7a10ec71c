/* How memory comes back: slots are released, trimmed and locked, workers are stopped, and the arena
 * lives until its last reference goes.  Leases count who still views a slot.
 * May include layout.h and notes.h.
 */
#ifndef READER_CORE_RELEASE_H
#define READER_CORE_RELEASE_H

#include "layout.h"
#include "notes.h"

/* Whether slots wait for rd_arena_trim.  Without a lock: a hint, but a push rings the bell. */
static inline int rd_arena_has_trim(const rd_arena *a) {
    return rd_load_relaxed(&a->trim) || rd_load_relaxed(&a->trimming);
}

/* Whether this process only inherited the arena by fork: it may read, but must release nothing. */
static inline int rd_is_foreign(const rd_arena *a) {
    return a->ledger->fork_generation != a->fork_generation;
}

static inline void rd_stack_push(const rd_arena *a, uint64_t *head, rd_slot *s) {
    uint64_t old = rd_load_relaxed(head), offset = rd_slot_offset(a, s);
    do {
        s->next = old;
    } while (!rd_cas_u64(head, &old, offset));
}

/* Count a free slot's memory as hot (whoever has the slot). Locked memory is not counted: it would crowd
 * out the slots that can be trimmed. */
static inline void rd_slot_heat(rd_heap *heap, rd_slot *s) {
    if (rd_load_acquire(&s->locks)) return;
    rd_fetch_add(&heap->hot_bytes, s->backed);
    s->is_hot = 1;
}

/* The reverse, before the slot is used or its memory freed. */
static inline void rd_slot_cool(rd_heap *heap, rd_slot *s) {
    if (!s->is_hot) return;
    rd_fetch_sub(&heap->hot_bytes, s->backed);
    s->is_hot = 0;
}

/* Read fd and bell of the arena only between rd_arena_enter and rd_arena_leave. The last to leave after
 * rd_arena_close_files closes both: until then neither number can be another file's. */
static inline void rd_arena_enter(rd_arena *a) {
    rd_fetch_add(&a->users, (int64_t)1);
    rd_fence(); /* pairs with the one in rd_arena_close_files */
}

static inline void rd_arena_leave(rd_arena *a) {
    if (rd_fetch_sub(&a->users, (int64_t)1) != 1) return;
    int fd = rd_exchange(&a->own_fd, -1), bell = rd_exchange(&a->own_bell, -1);
    if (fd >= 0) close(fd);
    if (bell >= 0) close(bell);
}

/* Close the arena's descriptors with the pool: batches that the user keeps hold only the mapping. */
static inline void rd_arena_close_files(rd_arena *a) {
    rd_store_relaxed(&a->fd, -1);
    rd_store_relaxed(&a->bell, -1);
    rd_fence(); /* pairs with the one in rd_arena_enter */
    rd_arena_leave(a);
}

/* Take a slot off a stack whose links are shared. Returns the link; 0: the end, or the link is damaged. */
static inline uint64_t rd_stack_next(rd_arena *a, uint32_t heap, rd_slot *s) {
    uint64_t next = rd_load_relaxed(&s->next);
    uint32_t found;
    if (next == 0) return 0;
    found = rd_slot_heap(a, next);
    if (heap < a->nheaps ? found == heap : found < a->nheaps) return next;
    rd_arena_damage(a, rd_slot_heap(a, rd_slot_offset(a, s)));
    return 0;
}

/* Return a slot's memory to the system; the slot stays usable and gets fresh memory on next use.
 * The memory of a locked slot stays: else a device would keep the old pages while the mapping got
 * new ones, and read stale bytes. */
static inline void rd_slot_punch(rd_arena *a, rd_slot *s) {
    if (rd_load_acquire(&s->locks)) return;
    uint64_t nbytes = rd_exchange(&s->backed, (uint64_t)0);
    rd_slot copy;
    if (nbytes == 0) return;
    if (rd_slot_read(a, s, &copy) || nbytes > copy.capacity) {
        rd_arena_damage(a, rd_slot_heap(a, rd_slot_offset(a, s)));
        return;
    }
    rd_arena_enter(a);
    int fd = rd_load_relaxed(&a->fd);
    if (fd < 0) { /* a forked process may map the file too: only removing the pages frees them */
        if (madvise(a->base + copy.start, copy.capacity, MADV_REMOVE))
            madvise(a->base + copy.start, copy.capacity, MADV_DONTNEED); /* anonymous memory */
    } else
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)copy.start,
                  (off_t)copy.capacity);
    rd_arena_leave(a);
    rd_fetch_sub(&rd_head(a)->backed_bytes, nbytes);
}

/* Release a slot that nobody views any more to its owner (trainer only). Lock-free, never blocks, calls no
 * Python; any thread, also during garbage collection. */
static inline void rd_slot_release(rd_arena *a, uint64_t offset) {
    rd_slot *s = rd_slot_at(a, offset);
    rd_heap *heap = rd_heap_at(a, rd_slot_heap(a, offset)); /* checked when the record came */
    uint64_t nbytes = s->backed;
    if (rd_load_acquire(&a->closed)) {
        rd_store_release(&s->state, RD_RELEASED);
        rd_fence(); /* pairs with the one in rd_slot_unlock */
        rd_slot_punch(a, s);
        return;
    }
    /* signed: the owner may have died between taking a slot and counting it */
    int bell = rd_load_relaxed(&a->bell);
    if (bell >= 0 && !rd_load_relaxed(&s->locks) &&
        (int64_t)(rd_load_relaxed(&heap->hot_bytes) + nbytes) >
            (int64_t)rd_load_relaxed(&heap->hot_limit)) {
        /* more than the working set: the reader thread frees the memory */
        rd_store_release(&s->state, RD_RELEASED);
        rd_fetch_add(&a->trims, (int64_t)1);
        rd_stack_push(a, &a->trim, s);
        if (rd_exchange(&rd_head(a)->reader_asleep, 0u)) {
            rd_arena_enter(a);
            bell = rd_load_relaxed(&a->bell);
            if (bell >= 0) rd_bell_ring(bell);
            rd_arena_leave(a);
        }
        return;
    }
    rd_slot_heat(heap, s);
    rd_store_release(&s->state, RD_RELEASED);
    rd_stack_push(a, &heap->released, s);
    rd_fence(); /* rd_arena_close may have skipped this slot while it was held */
    if (rd_load_relaxed(&a->closed)) rd_slot_punch(a, s);
}

/* Punch at most `most` slots of the trim stack; return how many. Freeing memory takes long, and results
 * wait meanwhile. Called by the reader thread, or by the thread that closes the pool. */
static inline int rd_arena_trim(rd_arena *a, int most) {
    int count = 0;
    uint64_t at = rd_load_relaxed(&a->trimming);
    if (at == 0) at = rd_exchange(&a->trim, (uint64_t)0);
    while (at && count < most) {
        rd_slot *s = rd_slot_at(a, at);
        uint32_t heap = rd_slot_heap(a, at);
        if (rd_fetch_sub(&a->trims, (int64_t)1) <= 0) { /* the links form a ring */
            rd_arena_damage(a, heap);
            rd_store_relaxed(&a->trims, (int64_t)0);
            at = 0;
            break;
        }
        at = rd_stack_next(a, a->nheaps, s);
        rd_slot_punch(a, s);
        rd_stack_push(a, &rd_heap_at(a, heap)->released, s);
        count++;
    }
    rd_store_relaxed(&a->trimming, at);
    return count;
}

/* Free the memory of every slot that nobody holds, after the workers have ended. */
static inline void rd_arena_close(rd_arena *a) {
    if (rd_is_foreign(a)) return;
    rd_store_seq_cst(&a->closed, 1u);
    rd_fence(); /* pairs with the ones in rd_slot_release and rd_slot_unlock */
    for (uint32_t i = 0; i < a->nheaps; i++) {
        rd_slot *table = rd_slot_table(a, i);
        uint64_t n = rd_load_acquire(&rd_heap_at(a, i)->nslots);
        if (n > a->slot_table_count) n = 0; /* damaged: unmapping frees the memory */
        for (uint64_t k = 0; k < n; k++)
            if (rd_load_acquire(&table[k].state) != RD_HELD) rd_slot_punch(a, &table[k]);
    }
}

/* Note one more page lock on a slot that this process holds (trainer, with a lease).  From now on
 * the slot owns all of its capacity, and keeps its pages through every later use, until as many calls of
 * rd_slot_unlock. The caller then locks the pages itself. Returns 0, or -1 if the limit does not allow the
 * whole capacity, or there are 255 locks. */
static inline int rd_slot_lock(rd_arena *a, rd_slot *s) {
    rd_header *h = rd_head(a);
    uint8_t locks = rd_load_acquire(&s->locks);
    do {
        if (locks == UINT8_MAX) return -1;
    } while (!rd_cas_u8(&s->locks, &locks, (uint8_t)(locks + 1)));
    uint64_t backed = rd_exchange(&s->backed, s->capacity), need = s->capacity - backed;
    if (need && rd_fetch_add(&h->backed_bytes, need) + need > a->limit_nbytes) {
        rd_fetch_sub(&h->backed_bytes, need);
        rd_store_release(&s->backed, backed);
        rd_fetch_sub(&s->locks, (uint8_t)1);
        return -1;
    }
    return 0;
}

/* Release one page lock, whoever has the slot by now. The caller has unlocked the pages. */
static inline void rd_slot_unlock(rd_arena *a, rd_slot *s) {
    if (rd_fetch_sub(&s->locks, (uint8_t)1) != 1) return;
    rd_fence(); /* pairs with the ones in rd_slot_release and rd_arena_close */
    if (rd_load_relaxed(&a->closed) && rd_load_acquire(&s->state) != RD_HELD) rd_slot_punch(a, s);
}

static inline void rd_arena_ref(rd_arena *a) { rd_fetch_add(&a->refs, (int64_t)1); }

static inline void rd_arena_unref(rd_arena *a) {
    if (rd_fetch_sub(&a->refs, (int64_t)1) != 1) return;
    /* pairs with the map in Arena.create / Arena.attach */
    munmap(a->base, a->nbytes);
    rd_store_relaxed(&a->users, (int64_t)1); /* if rd_arena_close_files was never called; no user is left */
    rd_arena_leave(a);
    if (!rd_is_foreign(a)) rd_fetch_sub(&a->ledger->arenas, (int64_t)1);
    free(a);
}

/* A lease: the trainer's hold on one slot, shared by all views of it.  Counted; the last view
 * releases the slot.  Needs neither the GIL nor Python, so a DLPack deleter may call it. */
typedef struct rd_lease {
    rd_arena *arena;
    uint64_t slot;
    int64_t refs;    /* atomic */
    rd_notes *notes; /* where it notes its end; a counted reference; NULL: no profile runs */
    uint64_t number; /* its batch's number in the log of times, for `notes` */
} rd_lease;

static inline rd_lease *rd_lease_take(rd_arena *a, uint64_t slot) {
    rd_lease *lease = (rd_lease *)malloc(sizeof *lease);
    if (lease == NULL) return NULL;
    lease->arena = a;
    lease->slot = slot;
    lease->refs = 1;
    lease->notes = NULL;
    rd_arena_ref(a);
    rd_fetch_add(&a->ledger->leases, (int64_t)1);
    rd_store_release(&rd_slot_at(a, slot)->state, RD_HELD);
    return lease;
}

static inline void rd_lease_ref(rd_lease *lease) { rd_fetch_add(&lease->refs, (int64_t)1); }

static inline void rd_lease_unref(rd_lease *lease) {
    if (rd_fetch_sub(&lease->refs, (int64_t)1) != 1) return;
    if (!rd_is_foreign(lease->arena)) {
        rd_slot_release(lease->arena, lease->slot);
        rd_fetch_sub(&lease->arena->ledger->leases, (int64_t)1);
    }
    if (lease->notes != NULL) {
        if (!rd_is_foreign(lease->arena))
            rd_notes_add(lease->notes, lease->number, 0, RD_GIVEN_BACK);
        rd_notes_unref(lease->notes);
    }
    rd_arena_unref(lease->arena);
    free(lease);
}

/* Stop every worker (trainer). */
static inline void rd_stop_workers(rd_arena *a) {
    rd_header *h = rd_head(a);
    rd_store_seq_cst(&a->stopping, 1u);
    rd_store_seq_cst(&h->stop, 1u);
    for (uint32_t i = 0; i < a->nheaps; i++) {
        rd_heap *heap = rd_heap_at(a, i);
        rd_store_seq_cst(&heap->task_waiting, 0u);
        rd_futex_wake(&heap->task_waiting, INT_MAX);
    }
}

#endif
