/* The rings in the arena, one task ring to each worker and one result ring from it, and their wake-ups.
 * Each ring has one writer and one reader at a time; see docs/concurrency.md for the pairs of flags and
 * fences. May include share.h. Nothing here owns state: it is in the arena. */
#ifndef READER_CORE_RING_H
#define READER_CORE_RING_H

#include "reader/_core/collate/share.h"

/* ---- rings: one writer, one reader each ---- */

/* Write a result (worker).  0, or -1 when the ring is full, which the window rules out. */
static inline int rd_result_push(rd_arena *a, uint32_t index, const rd_record *r) {
    rd_heap *heap = rd_heap_at(a, index);
    uint64_t tail = heap->result_tail;
    if (tail - rd_load_acquire(&heap->result_head) >= a->result_ring_count) return -1;
    rd_result_ring(a, index)[tail & (a->result_ring_count - 1)] = *r;
    rd_store_release(&heap->result_tail, tail + 1);
    return 0;
}

/* Take a result into memory of the trainer's own.  `head`: the trainer's own count, written under
 * the feed's lock. Returns 1; 0: there is none; -1: the worker's count is impossible. */
static inline int rd_result_pop(rd_arena *a, uint32_t index, uint64_t *head, rd_record *r) {
    rd_heap *heap = rd_heap_at(a, index);
    uint64_t at = rd_load_relaxed(head), count = rd_load_acquire(&heap->result_tail) - at;
    if (count == 0) return 0;
    if (count > a->result_ring_count) return -1;
    memcpy(r, &rd_result_ring(a, index)[at & (a->result_ring_count - 1)], sizeof *r);
    __asm__ volatile("" : "+m"(*r)); /* the checked copy is used: no second read */
    rd_store_relaxed(head, at + 1);
    rd_store_release(&heap->result_head, at + 1);
    return 1;
}

static inline int rd_result_waiting(const rd_arena *a, uint32_t index, const uint64_t *head) {
    return rd_load_acquire(&rd_heap_at(a, index)->result_tail) != rd_load_relaxed(head);
}

/* Wake the consumer if it sleeps. Call it after every event that it may wait for. */
static inline int rd_wake_consumer(rd_header *h) {
    if (!rd_load_relaxed(&h->consumer_waiting) || !rd_exchange(&h->consumer_waiting, 0u))
        return 0;
    rd_fetch_add(&h->consumer_word, 1u);
    rd_futex_wake(&h->consumer_word, INT_MAX);
    return 1;
}

/* Wake the trainer for a result that was pushed (worker). A waiting consumer takes it itself; otherwise the
 * reader thread does. Both set their flag before they check the rings a last time, so that one side sees
 * the other. */
static inline void rd_result_tell(rd_arena *a, const rd_record *r, int bell) {
    rd_header *h = rd_head(a);
    rd_fence();
    /* A batch that is not next in order wakes nobody: the thread that takes the next one empties
     * all rings, and checks them again after it has set the new wanted_seq. */
    uint64_t wanted = rd_load_relaxed(&h->wanted_seq);
    if (r->kind <= RD_END && r->seq != wanted && wanted != RD_ANY_SEQ &&
        r->run == rd_load_relaxed(&h->run))
        return;
    if (rd_wake_consumer(h)) return;
    if (rd_load_relaxed(&h->reader_asleep) && rd_exchange(&h->reader_asleep, 0u))
        rd_bell_ring(bell);
}

/* A task in its ring: this head, then nbytes of payload, padded to whole lines.  A run is one
 * attempt at an epoch: a new run makes all earlier tasks stale. */
#define RD_TASK_INLINE 448 /* longest payload that goes into the ring itself */

typedef struct rd_task {
    uint64_t seq;
    uint64_t epoch;
    uint32_t run;
    uint32_t kind;
    uint64_t spill; /* slot record with the payload, when it is long; 0 = inline */
    uint64_t nbytes; /* of the payload */
    uint32_t skip;   /* 1: filler up to the end of the ring */
    uint8_t pad[4];
    uint64_t payload_sum; /* of the payload */
    uint64_t sum;         /* of this head without this word */
} rd_task;

#ifdef __cplusplus
static_assert(sizeof(rd_task) == 64, "tasks begin on cache lines");
#endif

static inline uint64_t rd_task_sum(const rd_task *task) {
    rd_task copy = *task;
    copy.sum = 0;
    return rd_sum(RD_MAGIC, &copy, sizeof copy);
}

/* Write a task (trainer). `own_tail`: the trainer's own count of the ring. Returns 0; -1: the ring is full;
 * -2: the worker's count is impossible. */
static inline int rd_task_push(rd_arena *a, uint32_t index, uint64_t *own_tail, rd_task *task,
                               const void *payload) {
    rd_heap *heap = rd_heap_at(a, index);
    uint64_t size = a->task_ring_nbytes, tail = *own_tail;
    uint64_t need = (sizeof(rd_task) + (task->spill ? 0 : task->nbytes) + 63) & ~(uint64_t)63;
    uint64_t taken = tail - rd_load_acquire(&heap->task_head), space = size - taken;
    uint64_t at = tail & (size - 1), to_end = size - at;
    uint8_t *ring = rd_task_ring(a, index);
    if (taken > size || (taken & 63)) return -2;
    task->payload_sum = rd_sum(RD_MAGIC, payload, task->nbytes);
    task->sum = rd_task_sum(task);
    if (to_end < need) { /* tasks do not wrap: fill up to the end and begin at the start */
        rd_task filler;
        if (space < to_end + need) return -1;
        memset(&filler, 0, sizeof filler);
        filler.skip = 1;
        filler.sum = rd_task_sum(&filler);
        memcpy(ring + at, &filler, sizeof filler);
        tail += to_end;
        at = 0;
    } else if (space < need) {
        return -1;
    }
    memcpy(ring + at, task, sizeof *task);
    if (!task->spill && task->nbytes) memcpy(ring + at + sizeof *task, payload, task->nbytes);
    *own_tail = tail + need;
    rd_store_release(&heap->task_tail, tail + need);
    rd_fence(); /* pairs with the one in rd_task_wait */
    if (rd_load_relaxed(&heap->task_waiting) && rd_exchange(&heap->task_waiting, 0u))
        rd_futex_wake(&heap->task_waiting, 1);
    return 0;
}

/* Copy the head of the next task without taking it (worker), and say where its payload is.  1, or 0
 * when there is none. A worker process that finds it damaged ends, and its tasks go to another worker. */
static inline int rd_task_peek(rd_arena *a, uint32_t index, rd_task *task, const uint8_t **payload) {
    rd_heap *heap = rd_heap_at(a, index);
    uint64_t size = a->task_ring_nbytes;
    for (;;) {
        uint64_t head = heap->task_head, left = rd_load_acquire(&heap->task_tail) - head;
        uint64_t at = head & (size - 1);
        const uint8_t *found = rd_task_ring(a, index) + at;
        rd_slot slot;
        if (left == 0) return 0;
        if (left > size || (head & 63)) break;
        memcpy(task, found, sizeof *task);
        if (task->sum != rd_task_sum(task)) break;
        if (task->skip) {
            rd_store_release(&heap->task_head, head + (size - at));
            continue;
        }
        *payload = found + sizeof *task;
        if (task->spill) {
            if (rd_slot_heap(a, task->spill) != a->nheaps - 1 ||
                rd_slot_read(a, rd_slot_at(a, task->spill), &slot) || task->nbytes > slot.capacity)
                break;
            *payload = a->base + slot.start;
        } else if (task->nbytes > size - at - sizeof *task) {
            break;
        }
        if (task->payload_sum != rd_sum(RD_MAGIC, *payload, task->nbytes)) break;
        return 1;
    }
    rd_arena_damage(a, index);
    return 0;
}

static inline void rd_task_pop(rd_heap *heap, const rd_task *task) {
    uint64_t need = (sizeof(rd_task) + (task->spill ? 0 : task->nbytes) + 63) & ~(uint64_t)63;
    rd_store_release(&heap->task_head, heap->task_head + need);
}

static inline int rd_task_waits(const rd_heap *heap) {
    return heap->task_head != rd_load_acquire(&heap->task_tail);
}

static inline int rd_has_rows_for(const rd_arena *a, const rd_guest *guest) {
    return guest != NULL && rd_load_relaxed(rd_open_shares(a)) &&
           rd_share_find(a, guest, RD_ANY_SEQ) != a->nheaps;
}

/* What a worker has to do. 0: stop; 1: a task; 2: rows of another's batch, as `guest` unless it is NULL; 3:
 * nothing. */
static inline int rd_task_look(const rd_arena *a, const rd_heap *heap, const rd_guest *guest) {
    if (rd_load_acquire(&rd_head(a)->stop)) return 0;
    if (rd_task_waits(heap)) return 1;
    return rd_has_rows_for(a, guest) ? 2 : 3;
}

/* Ask to be woken for the next task: the thread that takes the worker's tasks is about to sleep. Check for
 * tasks once more afterwards. */
static inline void rd_task_watch(rd_heap *heap) {
    rd_store_seq_cst(&heap->task_waiting, 1u);
    rd_fence(); /* pairs with those in rd_task_push and rd_share_open */
}

/* As `rd_task_watch`, by the worker itself, which then has no task. */
static inline void rd_task_rest(rd_heap *heap) {
    rd_store_relaxed(&heap->at_since_ns, (int64_t)0); /* it is idle, whatever damage wrote there */
    rd_task_watch(heap);
}

/* Sleep until there is something to do (worker).  Returns what `rd_task_look` does, or -1: interrupted
 * by a signal. */
static inline int rd_task_wait(rd_arena *a, rd_heap *heap, const rd_guest *guest) {
    for (;;) {
        int found = rd_task_look(a, heap, guest);
        if (found != 3) return found;
        rd_task_rest(heap);
        if (rd_task_look(a, heap, guest) == 3 &&
            rd_futex_wait(&heap->task_waiting, 1u, -1) == EINTR) {
            rd_store_seq_cst(&heap->task_waiting, 0u);
            return -1;
        }
        rd_store_seq_cst(&heap->task_waiting, 0u);
    }
}

#endif
