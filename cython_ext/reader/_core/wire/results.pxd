# The state of a feed, and the functions that move results from the rings to the queue.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from reader._core.memory.arena cimport rd_arena, rd_record
from reader._core.memory.stage_times cimport rd_times
from reader._core.wire.blocking_queue cimport pthread_mutex_t, queue_state
from reader._core.wire.ring cimport rd_task

cdef enum:
    SEEN_NBYTES = 320      # of the text with a failed check's values, terminating 0 included

# A task that a worker has and has not answered.
cdef struct flight:
    uint64_t seq
    uint32_t run           # the run in which `detach` reports it as lost; without a batch: the run before
    uint32_t sent_run      # the run in which it was sent
    uint64_t spill         # slot of the trainer's heap that carries a long task; 0 = none

# One worker as the trainer sees it. `lock` of the feed guards it.
cdef struct worker_side:
    int pidfd              # readable when the process ended; -1: a thread, or gone
    int alive              # whether it takes tasks
    int is_resting         # whether it takes only tasks meant for it
    uint32_t said_hello    # atomic: also read without the lock
    uint32_t end_run       # the run in which it last answered END; 0 = never
    int owes_state         # it was asked for its initial state, and has not sent it
    int ended              # set by the reader thread, until the worker is detached
    uint64_t result_head   # results taken from its ring; atomic: also read without the lock
    uint64_t task_tail     # bytes written to its task ring
    uint32_t stalls        # consecutive checks that found tasks of it and no progress
    flight* flights        # ring of `space`, oldest first: workers answer in order
    size_t head, count, space

cdef extern from "reader/_core/wire/pauses.h" nogil:
    cdef enum:
        RD_PAUSE_NS
    ctypedef struct rd_pauses:
        uint64_t count
        int64_t sum_ns
    void rd_pauses_note(rd_pauses*, int64_t since, int64_t until) noexcept
    int64_t rd_pauses_between(const rd_pauses*, int64_t since, int64_t until) noexcept

# Everything the reader thread touches: plain memory, no Python. Threads: the reader thread and
# the consumer. `lock` guards all but the constants and the two atomic flags; it is taken before
# the queue's own lock.
cdef struct feed_state:
    rd_arena* arena        # constant; the Feeder's Arena keeps it
    uint32_t nworkers      # constant
    int bell               # constant: eventfd, rung by workers, releases and the consumer
    pthread_mutex_t lock
    pthread_mutex_t trim_lock   # one thread at a time frees memory; no other lock is taken with it
    queue_state queue
    worker_side* workers
    uint32_t run           # the current attempt at an epoch
    uint64_t epoch
    uint64_t next_seq      # the batch that goes into the queue next
    bint any_order         # batches go into the queue in the order in which they come
    rd_record* waiting     # reorder ring: batches that came early, by seq & mask
    rd_times* times        # of the same batches, by seq & mask
    int64_t now_ns         # when a result was taken last
    uint64_t mask
    uint32_t flights_limit # most tasks one worker may have
    rd_record* failures    # FAILED records, one per worker
    rd_record* states      # STATE records of the current run, one per worker
    uint32_t owing         # how many workers still owe their initial state; nothing is queued before
    uint64_t received, reordered, trimmed   # counts for stats
    bint is_trusted        # constant: workers are threads, and the records are not checked
    uint32_t damaged       # atomic: 1 = a check failed and all workers are killed; until renewed
    const char* check      # which check failed; NULL = none
    char[SEEN_NBYTES] seen # the values that it saw, as text
    uint32_t damaged_worker    # whose record it was; nworkers = of no worker in particular
    uint64_t damaged_seq   # whose batch it was; RD_ANY_SEQ = of no batch in particular
    int64_t inspected_ns   # when the consumer last checked the shared words; only the consumer uses it
    rd_pauses pauses       # when this process did not run, as noticed by a waiting thread
    int tick_ms            # atomic: the interval at which the reader thread wakes to notice pauses; -1: never
    uint32_t stop          # atomic: the reader thread must stop
    uint32_t starving      # atomic: notify the consumer when a worker can take a task again

cdef void drop(feed_state* s, rd_record* record) noexcept nogil
cdef int push_task(feed_state* s, uint32_t worker, rd_task* task, const char* payload) noexcept nogil
cdef uint32_t least_busy(feed_state* s, int worker) noexcept nogil
cdef void note_initial_state(feed_state* s, uint32_t index) noexcept nogil
cdef void enqueue(feed_state* s, rd_record* record) noexcept nogil
cdef void notify(feed_state* s) noexcept nogil
cdef void mark_damaged(feed_state* s, uint32_t worker, uint64_t seq, const char* check,
                       const char* seen) noexcept nogil
cdef const char* damage_of(feed_state* s, char* seen) noexcept nogil
cdef void note_damage(feed_state* s) noexcept nogil
cdef void ask_again(feed_state* s, const rd_record* record) noexcept nogil
cdef void hold_queued(feed_state* s) noexcept nogil
cdef void requeue(feed_state* s) noexcept nogil
cdef void inspect(feed_state* s) noexcept nogil
cdef int64_t look_between(feed_state* s, int64_t deadline_ns) noexcept nogil
cdef bint take_all(feed_state* s, uint32_t index) noexcept nogil
cdef rd_arena* arena_of(feed_state* s, const rd_record* record) noexcept nogil
cdef bint drain(feed_state* s) noexcept nogil
cdef void note_wake(feed_state* s, int64_t begun_ns, int64_t due_ns) noexcept nogil
cdef int64_t paused_between(feed_state* s, int64_t since_ns, int64_t until_ns) noexcept nogil
cdef int feed_get(feed_state* s, rd_record* record, int64_t deadline_ns) noexcept nogil
cdef void* reader_thread(void* argument) noexcept nogil
