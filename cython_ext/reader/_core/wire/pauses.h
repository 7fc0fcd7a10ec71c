/* Times in which this process did not run: it was stopped (SIGSTOP, a debugger), or the machine was.
 * A thread that wakes long after its deadline has found one. May include system headers only. Nothing here
 * owns state, or locks: the caller does both. Times are of CLOCK_MONOTONIC, in ns. */
#ifndef READER_CORE_PAUSES_H
#define READER_CORE_PAUSES_H

#include <stdint.h>

#define RD_PAUSE_NS 500000000LL /* a wake that is this late is a pause; a busy machine is less late */
#define RD_PAUSES 8 /* this many are kept with their times; the sum counts all */

typedef struct rd_pauses {
    int64_t from[RD_PAUSES], to[RD_PAUSES];
    uint64_t count;
    int64_t sum_ns;
} rd_pauses;

/* Note a pause between two times; several threads may have found the same one. */
static inline void rd_pauses_note(rd_pauses *p, int64_t from, int64_t to) {
    uint64_t last = (p->count - 1) % RD_PAUSES;
    if (p->count && from <= p->to[last] && to >= p->from[last]) {
        p->sum_ns -= p->to[last] - p->from[last];
        if (p->from[last] < from) from = p->from[last];
        if (p->to[last] > to) to = p->to[last];
    } else {
        last = p->count++ % RD_PAUSES;
    }
    p->from[last] = from;
    p->to[last] = to;
    p->sum_ns += to - from;
}

/* The length of all pauses between two times. */
static inline int64_t rd_pauses_between(const rd_pauses *p, int64_t from, int64_t to) {
    int64_t sum = 0;
    for (uint64_t i = 0; i < RD_PAUSES && i < p->count; i++) {
        int64_t begun = p->from[i] > from ? p->from[i] : from, ended = p->to[i] < to ? p->to[i] : to;
        if (ended > begun) sum += ended - begun;
    }
    return sum;
}

#endif
