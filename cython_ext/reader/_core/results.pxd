# The state of a feed, and the functions that move results from the rings to the queue.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from reader._core.arena cimport rd_arena, rd_record
from reader._core.blocking_queue cimport pthread_mutex_t, queue_state

# A task that a worker has and has not answered.
cdef struct flight:
    uint64_t seq
    uint32_t run
    uint64_t spill         # slot of the trainer's heap that carries a long task; 0 = none

# One worker as the trainer sees it. `lock` of the feed guards it.
cdef struct worker_state:
    int pidfd              # readable when the process ended; -1: a thread, or gone
    int alive              # whether it takes tasks
    int said_hello
    uint32_t end_run       # the run in which it last answered END; 0 = never
    int ended              # set by the reader thread, until the worker is detached
    flight* flights        # ring of `room`, oldest first: workers answer in order
    size_t head, count, room

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
    worker_state* workers
    uint32_t run           # the current attempt at an epoch
    uint64_t epoch
    uint64_t next_seq      # the batch that goes into the queue next
    bint any_order         # batches go into the queue as they come
    rd_record* waiting     # reorder ring: batches that came early, by seq & mask
    uint64_t mask
    uint32_t flights_limit # most tasks one worker may have
    rd_record* failures    # FAILED records, one per worker
    uint64_t received, reordered, trimmed   # counts for stats
    uint32_t stop          # atomic: the reader thread ends
    uint32_t starving      # atomic: notify the consumer when a worker can take a task again

cdef void drop(feed_state* s, rd_record* record) noexcept nogil
cdef void place(feed_state* s, rd_record* record) noexcept nogil
cdef void notify(feed_state* s) noexcept nogil
cdef bint drain(feed_state* s) noexcept nogil
cdef int feed_get(feed_state* s, rd_record* record, int64_t deadline_ns) noexcept nogil
cdef void* reader_thread(void* argument) noexcept nogil
