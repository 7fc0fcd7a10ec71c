/* What lies where in the arena: the shared memory that the trainer and its workers map.
 *
 *   | header page | heap pages | task ring, result ring, slot table, times of each heap | slots' bytes ... |
 *
 * One heap per worker (and one of the trainer's own, for long tasks): only its owner allocates in
 * it, only the trainer releases.  Offsets are from the start of the mapping and 0 means "none", so
 * every process may map the arena at another address. The trainer checks all that it reads here: see "what
 * crosses from shared memory" below. May include wait.h and system headers only. */
#ifndef READER_CORE_LAYOUT_H
#define READER_CORE_LAYOUT_H

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "wait.h"

#define RD_MAGIC 0x314e4552444f4cULL
#define RD_ALIGN 64
#define RD_NOTED_NBYTES 128 /* of the times of a batch, noted beside its result: see stage_times.h */
#define RD_ANY_SEQ UINT64_MAX /* no batch has this number */

/* A slot's life: FREE -> WRITING (owner) -> READY (reader thread) -> HELD (trainer) -> RELEASED
 * (trainer) -> FREE (owner, when it takes the released ones back).  KEPT slots carry schemas and
 * live as long as the pool. */
enum rd_slot_state {
    RD_FREE = 0,     /* in its owner's private list */
    RD_RELEASED = 1, /* in the heap's released stack, or before that in the trim stack */
    RD_WRITING = 2,
    RD_READY = 3,
    RD_HELD = 4,
    RD_KEPT = 5
};

typedef struct rd_slot { /* 64 bytes, in its heap's slot table */
    uint32_t state;      /* atomic: enum rd_slot_state */
    uint32_t generation; /* counts allocations; written by the owner while WRITING */
    uint64_t start;      /* offset of the slot's bytes, a multiple of the page; constant */
    uint64_t capacity;   /* bytes, a multiple of the page; constant */
    uint64_t backed;     /* bytes from start that may own memory; by whoever has the slot */
    uint64_t next;       /* link of the released and trim stacks: offset of a slot record */
    uint16_t heap;       /* index of its heap; constant */
    uint8_t locks;       /* atomic: page locks on the slot's bytes; by the trainer alone, the first
                          * while HELD. Above 0 its memory is never freed: see rd_slot_lock */
    uint8_t is_hot;      /* 1: hot_bytes of its heap counts `backed`; by whoever has the slot */
    uint32_t nfields;    /* entries of the field table at start; by the owner while WRITING */
    uint64_t objects;    /* offset from start of pickled leaves, 0 = none; by the owner */
    uint64_t objects_nbytes;
} rd_slot;

typedef struct rd_heap { /* one page */
    /* task ring: bytes, the trainer writes, the worker reads */
    uint64_t task_tail; /* trainer, release */
    uint8_t pad0[56];
    uint64_t task_head;    /* worker, release */
    uint32_t task_waiting; /* futex word: 1 while the worker sleeps on an empty ring */
    uint8_t pad1[52];
    /* result ring: records, the worker writes, the reader thread reads */
    uint64_t result_tail; /* worker, release */
    uint8_t pad2[56];
    uint64_t result_head; /* reader thread, release */
    uint8_t pad3[56];
    /* released slots: a stack to which the trainer pushes, and which the owner takes whole */
    uint64_t released; /* atomic: offset of a slot record */
    uint64_t hot_bytes; /* atomic: backed bytes of FREE and RELEASED slots that are not locked */
    uint64_t hot_limit; /* bytes of free slots worth keeping; written by the owner */
    uint8_t pad4[40];
    /* the owner's bump allocator; survives the owner, so that a replacement continues from here */
    uint64_t nslots;    /* records in use in the slot table; owner, release */
    uint64_t chunk_at;  /* next free byte of the current chunk */
    uint64_t chunk_end;
    uint8_t pad5[40];
    /* what the worker is making, for messages about its death or a timeout */
    uint64_t at_seq;
    int64_t at_row;
    int64_t at_since_ns; /* 0 while idle */
    uint32_t at_run;
    uint32_t at_pid;
    uint64_t batches_made;
    uint64_t busy_ns;
    /* memory that the system does not count as used yet; see Heap.promise.  Hints to the owners of
     * the other heaps, at most limit_nbytes each; the owner itself uses a copy outside of the arena */
    uint64_t promised; /* bytes that the owner may still write or allocate; owner, seq_cst */
    uint64_t expected; /* bytes of samples outside the arena that its last batch took; owner */
    /* constants, written at creation, from which a worker computes where everything lies */
    uint64_t task_ring_nbytes, result_ring_count; /* powers of two */
    uint64_t slot_table_count;
    uint64_t computed_ns; /* time of cores for this loader; by the worker; 0 unless it works for several */
    /* of a worker on another machine; written by the lander of its batches */
    uint64_t runnable_ns;    /* time in which it was ready to compute and had no core */
    uint64_t stored_ns;      /* time in which its batches were copied into a store there */
    uint64_t bounded_ns;     /* time in which its tasks were held back: enough bytes were in flight */
    uint64_t clock_error_ns; /* how far its times may be off; 0: it is on this machine */
} rd_heap;

typedef struct rd_header { /* the first page */
    uint64_t magic;
    uint32_t nheaps;
    uint32_t page_nbytes;
    uint64_t reserved_nbytes;
    uint64_t limit_nbytes; /* most bytes of slots that may own memory */
    uint64_t heaps;        /* offset of the first heap page */
    uint64_t uncached_from; /* atomic: batches of this many bytes or more are copied past the cache */
    uint32_t advises_huge; /* 1: large slots are advised to have huge pages */
    uint8_t pad0[12];
    uint64_t data_at;      /* atomic: where the next chunk begins, an offset */
    uint64_t backed_bytes; /* atomic: memory owned by slots */
    uint8_t pad1[48];
    uint32_t stop;  /* atomic: the pool closes */
    uint32_t run;   /* atomic: tasks of another run are stale */
    uint8_t pad2[56];
    uint32_t reader_asleep; /* atomic: 1 while the reader thread waits on its bell */
    uint8_t pad3[60];
    uint32_t consumer_waiting; /* atomic: 1 while the consumer sleeps on the next word */
    uint32_t consumer_word;    /* futex word: counts what may wake the consumer */
    uint64_t wanted_seq;       /* atomic: the batch that is next in order, or RD_ANY_SEQ */
    uint32_t found_by;         /* atomic: pid of the last worker that ended at a failed check */
    uint32_t found_in;         /* atomic: the heap in which it failed */
    uint8_t pad4[40];
} rd_header;

/* A result: what the worker sends, the queue holds and the trainer opens.  The meaning of the words
 * after `generation` depends on the kind; those without one are 0. */
enum rd_kind {
    RD_BATCH = 1,
    RD_ERROR = 2,   /* objects of the slot: the encoded exception */
    RD_FULL = 3,    /* there is no memory for the batch */
    RD_END = 4,     /* the worker's iterable dataset is exhausted; up to here: in order */
    RD_SKIPPED = 5, /* a stale task */
    RD_HELLO = 6,   /* the worker runs */
    RD_FAILED = 7,  /* the worker could not start; objects: the encoded exception */
    RD_LOST = 8,    /* made by the trainer: the worker died and the batch is given up */
    RD_OBJECT = 9,  /* made by the trainer: a Python object in a BlockingQueue */
    RD_STATE = 10   /* objects: the state with which the worker begins an epoch; no slot: it has none */
};

typedef struct rd_record {
    uint64_t seq;
    uint32_t run;
    uint16_t kind;
    uint16_t worker;
    uint64_t slot;   /* offset of the slot record, 0 = none */
    uint64_t schema; /* offset of the KEPT slot with the schema, 0 = inline or none */
    union {
        uint32_t generation;  /* of the slot */
        uint32_t is_at_limit; /* FULL: 1 = the arena's own limit, 0 = the machine has no more */
    };
    uint32_t sum; /* of the record without this word: rd_record_sum; 0 from a worker thread */
    union {
        int64_t token;      /* BATCH, ERROR, FAILED, END, STATE of a worker thread: its entry in the
                             * SideTable; 0 = none, or the worker is a process */
        struct rd_arena *arena; /* the same of a process: where its slot lies; the trainer notes it */
        int64_t need_bytes; /* FULL: what the batch needs */
        void *held_object;  /* OBJECT: the LoDTensorArray, a reference that the queue owns */
    };
    union {
        int64_t attached_nbytes; /* BATCH: of what is attached, behind the objects; 0 = nothing */
        int64_t have_bytes;      /* FULL: what is left */
    };
    union {
        struct {
            uint16_t has_fields_within; /* BATCH: 1 = its objects are pickled around some fields */
            uint16_t place_sum; /* of where the slot and its objects lie: rd_place_sum */
            uint32_t payload_sum; /* of field table and objects of the slot, before they were written
                                   * there, where others may overwrite them: rd_payload_sum */
        };
        int64_t limit_bytes; /* FULL: the limit, or what is left of the machine's memory */
    };
} rd_record;

#ifdef __cplusplus
static_assert(sizeof(rd_slot) == 64, "a slot record is one cache line");
static_assert(sizeof(rd_record) == 64, "a result is one cache line");
static_assert(sizeof(rd_heap) <= 4096, "a heap is one page");
static_assert(offsetof(rd_heap, promised) == 432 && offsetof(rd_heap, task_ring_nbytes) == 448,
              "the tests of overwritten memory write to these words");
#endif

/* This process's handle on one arena.  Counted: one reference for its Arena object, one for each
 * lease; the last one unmaps, in whatever thread, without the GIL. */
typedef struct rd_ledger { /* one per process, owned by the arena module */
    int64_t arenas;
    int64_t leases;
    uint32_t fork_generation; /* counts forks this process descends through since import */
} rd_ledger;

typedef struct rd_arena {
    uint8_t *base;
    uint64_t nbytes;
    /* This process's own copy of constants of the header and the heaps: a worker that writes out of bounds
     * cannot change it. The shared ones are read when a worker attaches. */
    uint64_t page, limit_nbytes;
    uint64_t areas, area_nbytes; /* of heap 0 its task ring, result ring, slot table, times; of each */
    uint64_t task_ring_nbytes, result_ring_count, slot_table_count;
    uint64_t result_ring_at, slot_table_at, noted_at; /* within an area */
    uint64_t data;         /* where the slots' bytes begin */
    uint32_t nheaps;
    uint32_t is_worker;    /* a worker process: it ends when it finds the arena damaged */
    uint32_t damaged;      /* atomic: one more than the heap in which a check failed; 0 = none */
    uint32_t stopping;     /* atomic: this process stopped the workers */
    int fd;                /* atomic: the memory file; -1 = the pool has closed it */
    int bell;              /* atomic: the reader thread's bell; -1 = nobody trims */
    int own_fd, own_bell;  /* atomic: the same, for rd_arena_leave to close: a release in another
                            * thread may be about to use them; -1 = closed, or not ours */
    int64_t users;         /* atomic: threads that use fd or bell, and one for the pool */
    int64_t refs;          /* atomic */
    uint32_t closed;       /* atomic: the pool is gone, free slots give their memory back */
    uint32_t fork_generation;
    uint64_t trim;         /* atomic: stack of slots whose memory goes back */
    uint64_t trimming;     /* atomic: slots taken off that stack; by the thread that trims */
    int64_t trims;         /* atomic: slots on both stacks; their links are shared, and may be damaged */
    rd_ledger *ledger;
} rd_arena;

static inline rd_header *rd_head(const rd_arena *a) { return (rd_header *)a->base; }

static inline rd_heap *rd_heap_at(const rd_arena *a, uint32_t index) {
    return (rd_heap *)(a->base + a->page * (1 + (uint64_t)index));
}

static inline rd_slot *rd_slot_at(const rd_arena *a, uint64_t offset) {
    return (rd_slot *)(a->base + offset);
}

static inline uint8_t *rd_task_ring(const rd_arena *a, uint32_t index) {
    return a->base + a->areas + index * a->area_nbytes;
}

static inline rd_record *rd_result_ring(const rd_arena *a, uint32_t index) {
    return (rd_record *)(rd_task_ring(a, index) + a->result_ring_at);
}

static inline rd_slot *rd_slot_table(const rd_arena *a, uint32_t index) {
    return (rd_slot *)(rd_task_ring(a, index) + a->slot_table_at);
}

/* Compute where everything lies, from the trainer's choices or the header. Returns 0, or -1 if it does not
 * fit into the mapping: then nothing may be read through the handle. */
static inline int rd_lay_out(rd_arena *a, uint64_t page, uint64_t nheaps, uint64_t task_ring_nbytes,
                             uint64_t result_ring_count, uint64_t slot_table_count,
                             uint64_t limit_nbytes) {
    const uint64_t most = (uint64_t)1 << 40;
    if (page < 4096 || page > most || (page & (page - 1)) || nheaps < 1 || nheaps > 0xffff ||
        task_ring_nbytes < page || task_ring_nbytes > most ||
        (task_ring_nbytes & (task_ring_nbytes - 1)) || result_ring_count < 1 ||
        result_ring_count > most || (result_ring_count & (result_ring_count - 1)) ||
        slot_table_count < 1 || slot_table_count > most)
        return -1;
    a->page = page;
    a->nheaps = (uint32_t)nheaps;
    a->limit_nbytes = limit_nbytes;
    a->task_ring_nbytes = task_ring_nbytes;
    a->result_ring_count = result_ring_count;
    a->slot_table_count = slot_table_count;
    a->areas = page * (1 + nheaps);
    a->result_ring_at = (task_ring_nbytes + page - 1) & ~(page - 1);
    a->slot_table_at =
        a->result_ring_at + ((result_ring_count * sizeof(rd_record) + page - 1) & ~(page - 1));
    a->noted_at =
        a->slot_table_at + ((slot_table_count * sizeof(rd_slot) + page - 1) & ~(page - 1));
    a->area_nbytes =
        a->noted_at + ((result_ring_count * RD_NOTED_NBYTES + page - 1) & ~(page - 1));
    if (a->area_nbytes > a->nbytes / nheaps) return -1;
    a->data = a->areas + nheaps * a->area_nbytes;
    return a->data <= a->nbytes ? 0 : -1;
}

/* Whether the shared constants are what this process computed (trainer). */
static inline int rd_constants_hold(const rd_arena *a) {
    const rd_header *h = rd_head(a);
    return h->magic == RD_MAGIC && h->nheaps == a->nheaps && h->page_nbytes == a->page &&
           h->reserved_nbytes == a->nbytes && h->limit_nbytes == a->limit_nbytes &&
           rd_heap_at(a, 0)->task_ring_nbytes == a->task_ring_nbytes &&
           rd_heap_at(a, 0)->result_ring_count == a->result_ring_count &&
           rd_heap_at(a, 0)->slot_table_count == a->slot_table_count;
}

/* A byte count that processes share, limited to what slots may own. */
static inline uint64_t rd_bounded(const rd_arena *a, uint64_t nbytes) {
    return nbytes < a->limit_nbytes ? nbytes : a->limit_nbytes;
}

/* Whether the promises of all heaps are within the limit: see Heap.publish (trainer). */
static inline int rd_promises_hold(const rd_arena *a) {
    for (uint32_t i = 0; i < a->nheaps; i++) {
        rd_heap *heap = rd_heap_at(a, i);
        if (rd_load_relaxed(&heap->promised) > a->limit_nbytes ||
            rd_load_relaxed(&heap->expected) > a->limit_nbytes)
            return 0;
    }
    return 1;
}

/* ---- what crosses from shared memory is checked before it is used ---- */

/* Note that a check failed in a heap's part of the arena. A worker process ends. In the trainer the
 * consumer replaces all workers and the arena: see results.pyx. */
static inline void rd_arena_damage(rd_arena *a, uint32_t heap) {
    if (a->is_worker) {
        rd_store_relaxed(&rd_head(a)->found_in, heap);
        rd_store_relaxed(&rd_head(a)->found_by, (uint32_t)getpid());
        syscall(SYS_exit_group, 1);
        return;
    }
    rd_store_relaxed(&a->damaged, heap + 1);
}

/* Whether `offset` is that of a slot record in the heap's table. */
static inline int rd_slot_known(const rd_arena *a, uint32_t heap, uint64_t offset) {
    uint64_t within = offset - (uint64_t)((uint8_t *)rd_slot_table(a, heap) - a->base);
    return within < a->slot_table_count * sizeof(rd_slot) && within % sizeof(rd_slot) == 0;
}

/* The heap whose table has a slot record at `offset`, or nheaps. */
static inline uint32_t rd_slot_heap(const rd_arena *a, uint64_t offset) {
    if (offset < a->areas || offset >= a->data) return a->nheaps;
    uint32_t heap = (uint32_t)((offset - a->areas) / a->area_nbytes);
    return rd_slot_known(a, heap, offset) ? heap : a->nheaps;
}

/* Copy a slot record, which its worker may go on writing, and check where its bytes lie.  Returns
 * 0, or -1: then `copy` is not to be used. */
static inline int rd_slot_read(const rd_arena *a, const rd_slot *s, rd_slot *copy) {
    memcpy(copy, s, sizeof *copy);
    __asm__ volatile("" : "+m"(*copy)); /* the checked copy is used: no second read */
    if (copy->start < a->data || copy->start > a->nbytes || (copy->start & (a->page - 1)) ||
        copy->capacity == 0 || copy->capacity > a->nbytes - copy->start ||
        (copy->capacity & (a->page - 1)))
        return -1;
    return 0;
}

/* Sums detect accidental damage, not forgery. */
static inline uint64_t rd_mix(uint64_t sum, uint64_t word) {
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ULL;
    return sum ^ (sum >> 32);
}

static inline uint64_t rd_sum(uint64_t sum, const void *at, uint64_t nbytes) {
    const uint8_t *bytes = (const uint8_t *)at;
    uint64_t word;
    for (; nbytes >= 8; nbytes -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        sum = rd_mix(sum, word);
    }
    word = 0;
    if (nbytes) memcpy(&word, bytes, nbytes);
    return rd_mix(sum, word ^ (nbytes << 56));
}

static inline uint32_t rd_record_sum(const rd_record *r) {
    rd_record copy = *r;
    copy.sum = 0;
    return (uint32_t)rd_sum(RD_MAGIC, &copy, sizeof copy) | 1;
}

/* The bytes of a field table, at most `most`; UINT64_MAX: longer, or more than 64 dimensions. */
static inline uint64_t rd_table_nbytes(const uint8_t *table, uint32_t nfields, uint64_t most) {
    uint64_t at = 0;
    for (uint32_t i = 0; i < nfields; i++) {
        int64_t ndim;
        if (most - at < 24) return UINT64_MAX;
        memcpy(&ndim, table + at + 16, 8);
        if (ndim < 0 || ndim > 64 || most - at < 24 + 8 * (uint64_t)ndim) return UINT64_MAX;
        at += 24 + 8 * (uint64_t)ndim;
    }
    return at;
}

/* The sum of the place of a slot and its objects; checked before anything is read there. */
static inline uint64_t rd_place_sum(const rd_slot *s) {
    uint64_t sum = rd_mix(rd_mix(RD_MAGIC, s->start), s->capacity);
    return rd_mix(rd_mix(rd_mix(sum, s->nfields), s->objects), s->objects_nbytes);
}

/* The sum of the parts of a slot that the trainer reads besides samples: its field table and objects. */
static inline uint32_t rd_payload_sum(const void *table, uint64_t table_nbytes,
                                      const void *objects, uint64_t objects_nbytes) {
    uint64_t sum = rd_sum(RD_MAGIC, table, table_nbytes);
    return (uint32_t)rd_sum(sum, objects, objects_nbytes);
}

/* Fill in the other sums of a record that is about to be sent (worker). */
static inline void rd_record_seal(rd_arena *a, rd_record *r) {
    if (r->slot && r->kind != RD_FULL) {
        rd_slot copy;
        if (rd_slot_read(a, rd_slot_at(a, r->slot), &copy)) {
            rd_arena_damage(a, r->worker); /* another worker overwrote it meanwhile */
            return;
        }
        r->place_sum = (uint16_t)rd_place_sum(&copy);
    }
    r->sum = rd_record_sum(r);
}

static inline uint64_t rd_slot_offset(const rd_arena *a, const rd_slot *s) {
    return (uint64_t)((uint8_t *)s - a->base);
}

/* Whether the worker of a heap makes a batch, or has a task that it has not begun. */
static inline int rd_has_work(const rd_heap *heap) {
    return rd_load_relaxed(&heap->at_since_ns) ||
           rd_load_relaxed(&heap->task_head) != rd_load_relaxed(&heap->task_tail);
}

/* How many bytes the owners of other heaps may still write or allocate. For a busy worker that has made no
 * batch yet, the caller's `expected` is added: the size of its samples is unknown, and its batch may be
 * delivered next, so later batches must leave memory for it. The last heap is the trainer's, which makes no
 * batch. */
static inline uint64_t rd_promised_to_others(const rd_arena *a, uint32_t index, uint64_t expected) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < a->nheaps; i++) {
        const rd_heap *heap = rd_heap_at(a, i);
        if (i == index) continue;
        total += rd_bounded(a, rd_load_acquire(&heap->promised));
        if (i + 1 < a->nheaps && rd_has_work(heap) && rd_load_relaxed(&heap->expected) == 0)
            total += expected;
    }
    return total < INT64_MAX / 2 ? total : INT64_MAX / 2;
}

/* The bytes that samples of a batch take outside of the arena: the most that any worker has seen. */
static inline uint64_t rd_most_expected(const rd_arena *a) {
    uint64_t most = 0;
    for (uint32_t i = 0; i + 1 < a->nheaps; i++) {
        uint64_t expected = rd_load_relaxed(&rd_heap_at(a, i)->expected);
        if (expected > most) most = expected;
    }
    return rd_bounded(a, most);
}

#ifdef __cplusplus
extern "C" int malloc_trim(size_t) noexcept __attribute__((weak)); /* glibc has it, musl does not */
#endif

/* Give the memory of freed samples back to the system: the C library may keep tens of MiB of it. */
static inline void rd_trim_malloc(void) {
#ifdef __cplusplus
    if (malloc_trim) malloc_trim(0);
#endif
}

/* Whether another worker makes a batch now. */
static inline int rd_has_busy_neighbour(const rd_arena *a, uint32_t index) {
    for (uint32_t i = 0; i + 1 < a->nheaps; i++)
        if (i != index && rd_load_relaxed(&rd_heap_at(a, i)->at_since_ns)) return 1;
    return 0;
}

/* Whether a replacement can take over a heap whose worker is dead (trainer).  0 or -1. */
static inline int rd_heap_holds(const rd_arena *a, uint32_t index) {
    const rd_heap *heap = rd_heap_at(a, index);
    uint64_t n = rd_load_acquire(&heap->nslots), k, at = rd_load_acquire(&heap->released);
    rd_slot copy;
    if (n > a->slot_table_count) return -1;
    /* 0: it died between two words, and a new chunk is taken */
    if (heap->chunk_end && (heap->chunk_at > heap->chunk_end || heap->chunk_end > a->nbytes ||
                            (heap->chunk_at & (a->page - 1)) || heap->chunk_at < a->data))
        return -1;
    for (k = 0; k < n; k++)
        if (rd_slot_read(a, &rd_slot_table(a, index)[k], &copy) || copy.state > RD_KEPT ||
            copy.backed > copy.capacity)
            return -1;
    for (k = 0; at; k++) {
        if (k >= n || !rd_slot_known(a, index, at)) return -1;
        at = rd_load_relaxed(&rd_slot_at(a, at)->next);
    }
    return 0;
}

#endif
