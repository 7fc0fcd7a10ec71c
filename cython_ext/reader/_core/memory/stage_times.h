/* When a batch was at each stage. A worker notes its times beside its result; the trainer adds the others
 * and keeps the last batches. The worker's numbers are read once and not trusted. May include layout.h and
 * wait.h. Times are of CLOCK_MONOTONIC, in ns. */
#ifndef READER_CORE_STAGE_TIMES_H
#define READER_CORE_STAGE_TIMES_H

#include <string.h>
#include <time.h>

#include "reader/_core/memory/layout.h"
#include "reader/_core/memory/wait.h"

#define RD_EACH_NS 5000 /* samples with a longer mean time are each timed, others one in 32 */
#define RD_MOVES 2 /* a glanced sample was slow if the coarse clock moved this many times */

/* The worker's times of a batch; one cache line. */
typedef struct rd_made {
    uint64_t seq;
    uint32_t run;
    int32_t slowest_row; /* of the samples that were timed; -1: none was */
    int64_t begun_ns, sent_ns;
    int64_t fetch_ns;    /* time in the dataset's code */
    int64_t slowest_ns;
    int64_t slowest_key; /* its index in the dataset; -1: it has none */
    uint32_t rows;
    uint32_t timed;      /* how many rows fetch_ns is the sum of; 0: all */
} rd_made;

/* Which samples are timed. The others are glanced at: reading the coarse clock costs a third of reading the
 * exact one, and shows which sample took several ms. */
typedef struct rd_timer {
    uint32_t untimed;  /* mask: a row is timed if its number has none of these bits */
    int64_t glance_ns; /* the coarse clock after the previous sample was fetched; 0: unknown */
} rd_timer;

/* How a batch that was made on another machine came to this one; written by the lander. */
typedef struct rd_landed {
    int64_t came_ns;   /* when this machine had its bytes */
    int64_t landed_ns; /* when they lay in a slot */
    int64_t others_ns; /* time before it was begun in which its worker made batches of other programs */
} rd_landed;

/* Both for one batch, beside its result in the ring; the second is 0 for workers on this machine. */
typedef struct rd_noted {
    rd_made made;
    rd_landed landed;
    uint8_t pad[40];
} rd_noted;

/* All times of a batch that are known when it is delivered; 0: unknown. */
typedef struct rd_times {
    uint64_t seq, epoch;
    int64_t dispatched_ns; /* sent to the worker */
    int64_t begun_ns;      /* taken by it */
    int64_t sent_ns;       /* made: fetched and collated */
    int64_t came_ns, landed_ns, others_ns; /* see rd_landed; 0: it was made on this machine */
    int64_t arrived_ns;    /* taken from the worker's ring */
    int64_t ordered_ns;    /* all before it had arrived */
    int64_t asked_ns;      /* the consumer wanted it */
    int64_t delivered_ns;  /* the consumer had it */
    int64_t fetch_ns, slowest_ns, slowest_key;
    int32_t slowest_row, worker;
    uint32_t rows, run;
} rd_times;

#ifdef __cplusplus
static_assert(sizeof(rd_made) == 64, "what a worker notes of a batch is one cache line");
static_assert(sizeof(rd_noted) == RD_NOTED_NBYTES, "layout.h has as many bytes for it");
#endif

/* Where a worker notes the batch of its result number `result`. */
static inline rd_noted *rd_noted_at(const rd_arena *a, uint32_t index, uint64_t result) {
    return (rd_noted *)(rd_task_ring(a, index) + a->noted_at) + (result & (a->result_ring_count - 1));
}

/* Begin a batch. The batch before decided which rows are timed. */
static inline void rd_made_begin(rd_made *made, int64_t now) {
    made->begun_ns = now;
    made->sent_ns = made->fetch_ns = made->slowest_ns = 0;
    made->slowest_row = -1;
    made->slowest_key = -1;
    made->rows = made->timed = 0;
}

/* Note the time of a sample.  Returns whether it is the slowest so far. */
static inline int rd_made_note(rd_made *made, int64_t row, int64_t ns) {
    made->timed++;
    made->fetch_ns += ns;
    if (ns <= made->slowest_ns) return 0;
    made->slowest_ns = ns;
    made->slowest_row = (int32_t)row;
    made->slowest_key = -1;
    return 1;
}

/* The clock that moves a few hundred times a second. */
static inline int64_t rd_coarse_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The interval at which it moves, in ns. */
static inline int64_t rd_coarse_step_ns(void) {
    static int64_t step;
    int64_t found = __atomic_load_n(&step, __ATOMIC_RELAXED);
    struct timespec each;
    if (found) return found;
    found = clock_getres(CLOCK_MONOTONIC_COARSE, &each) ? 10000000 : each.tv_nsec;
    __atomic_store_n(&step, found, __ATOMIC_RELAXED);
    return found;
}

/* Call before a sample is fetched. Returns the time; 0: it is only glanced at. */
static inline int64_t rd_sample_begins(const rd_timer *timer, int64_t row) {
    return row & timer->untimed ? 0 : rd_now_ns();
}

/* Call after a sample is fetched, with the time of its begin. Returns whether it is the slowest so far. */
static inline int rd_sample_ends(rd_made *made, rd_timer *timer, int64_t row, int64_t begun_ns) {
    const int64_t before = timer->glance_ns;
    if (begun_ns) {
        const int64_t took = rd_now_ns() - begun_ns;
        if (timer->untimed) timer->glance_ns = rd_coarse_ns();
        return rd_made_note(made, row, took);
    }
    timer->glance_ns = rd_coarse_ns();
    if (timer->glance_ns == before || !before) return 0; /* usually it has not moved */
    if (timer->glance_ns - before < RD_MOVES * rd_coarse_step_ns()) return 0;
    return rd_made_note(made, row, timer->glance_ns - before);
}

/* Note that all rows are fetched, where they were not timed one by one. */
static inline void rd_made_fetched(rd_made *made, uint32_t rows, int64_t now) {
    made->fetch_ns = now - made->begun_ns;
    made->rows = rows;
    made->timed = 0;
}

/* End a batch. Returns the mask for the next one: see rd_timer. */
static inline uint32_t rd_made_end(rd_made *made, int64_t now) {
    const int64_t busy = now - made->begun_ns;
    made->sent_ns = now;
    if (made->timed > 1 && made->rows > made->timed) /* the slowest is no estimate for the others */
        made->fetch_ns = made->slowest_ns + (int64_t)((double)(made->fetch_ns - made->slowest_ns) *
                                                      (made->rows - 1) / (made->timed - 1));
    else if (made->timed && made->rows > made->timed)
        made->fetch_ns = made->fetch_ns * made->rows;
    if (made->fetch_ns > busy) made->fetch_ns = busy;
    return made->rows && busy / made->rows > RD_EACH_NS ? 0u : 31u;
}

/* Show a batch to the trainer, before its result (worker). */
static inline void rd_made_show(rd_made *made, const rd_arena *a, uint32_t index, uint64_t seq,
                                uint32_t run) {
    made->seq = seq;
    made->run = run;
    memcpy(&rd_noted_at(a, index, rd_heap_at(a, index)->result_tail)->made, made, sizeof *made);
}

/* Copy a worker's times of a batch, if they belong to it and are plausible. `result`: the number of its
 * result at that worker. */
static inline void rd_times_take(rd_times *times, const rd_arena *a, uint32_t index, uint32_t run,
                                 uint64_t result) {
    const rd_noted *noted = rd_noted_at(a, index, result);
    rd_made made;
    rd_landed landed;
    memcpy(&made, &noted->made, sizeof made);
    if (made.seq != times->seq || made.run != run || made.begun_ns < times->dispatched_ns ||
        made.sent_ns < made.begun_ns || made.sent_ns > times->arrived_ns || made.fetch_ns < 0 ||
        made.fetch_ns > made.sent_ns - made.begun_ns || made.slowest_ns < 0)
        return;
    times->begun_ns = made.begun_ns;
    times->sent_ns = made.sent_ns;
    times->fetch_ns = made.fetch_ns;
    times->slowest_ns = made.slowest_ns;
    times->slowest_key = made.slowest_key;
    times->slowest_row = made.slowest_row;
    times->rows = made.rows;
    memcpy(&landed, &noted->landed, sizeof landed);
    if (landed.came_ns < made.sent_ns || landed.landed_ns < landed.came_ns ||
        landed.landed_ns > times->arrived_ns || landed.others_ns < 0)
        return;
    times->came_ns = landed.came_ns;
    times->landed_ns = landed.landed_ns;
    times->others_ns = landed.others_ns;
}

#endif
